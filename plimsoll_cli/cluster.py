"""The cluster that a command asks, found as kubectl finds it, and the client of its API server."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.kube.client import KubeClient, connect
from plimsoll.kube.configuration import namespace_of
from plimsoll.kube.kubeconfig import NAMESPACE_FILE, check_kubeconfig
from plimsoll.kube.names import NAME_PATTERN
from plimsoll.part.errors import InputError
from plimsoll_cli.output import named_if_slow

NAME: Final = re.compile(NAME_PATTERN)
"""The names of pods and namespaces: nothing else may stand in the path of a request."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster to ask, as kubectl names it.

    Attributes:
        kubeconfig: `--kubeconfig`; empty for KUBECONFIG, `~/.kube/config`, or the pod's own service account.
        context: `--context`; None for the kubeconfig's current one.
    """

    kubeconfig: str = ""
    context: str | None = None


@asynccontextmanager
async def client_of(cluster: Cluster) -> AsyncIterator[KubeClient]:
    """A client of the cluster's API server. Standard error names a server, or a plugin, that is silent for seconds.

    Raises:
        InputError: as of `kubeconfig_of`, or the kubeconfig cannot be used.
    """
    kubeconfig = await asyncio.to_thread(kubeconfig_of, cluster)
    async with AsyncExitStack() as stack:
        with named_if_slow("the kubeconfig's plugin for credentials"):  # nothing else here takes long
            connected = connect(kubeconfig, cluster.context, named_if_slow)
            client = await stack.enter_async_context(connected)
        yield client


def kubeconfig_of(cluster: Cluster) -> Path | None:
    """The kubeconfig to use; None for the pod's own service account.

    Raises:
        InputError: a named file is missing, or none is named and none is there.
    """
    if cluster.kubeconfig:
        check_kubeconfig("--kubeconfig", cluster.kubeconfig)
        return Path(cluster.kubeconfig)
    named = [path for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if named:
        # As kubectl, leave out files that are missing, unless all are.
        there = [path for path in named if Path(path).exists()] or named
        for path in there:
            check_kubeconfig("KUBECONFIG", path)
        return Path(os.pathsep.join(there))
    home = Path(os.path.expanduser("~/.kube/config"))  # noqa: PTH111 - a `Path` raises where nobody has a home
    if home.exists():
        check_kubeconfig("--kubeconfig", str(home))
        return home
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        return None
    remedy = "give --kubeconfig or KUBECONFIG; or -n plimsoll-run for a command of `plimsoll run`"
    raise InputError("--kubeconfig", None, "is not given, and there is no ~/.kube/config", remedy)


def namespace_in(cluster: Cluster) -> str | None:
    """The namespace that kubectl would take: the context's, or in a pod its own; None if nothing names one. Blocks.

    Raises:
        InputError: as of `kubeconfig_of`, or the kubeconfig cannot be used.
    """
    kubeconfig = kubeconfig_of(cluster)
    named = namespace_of(kubeconfig, cluster.context) if kubeconfig is not None else None
    if named is None and "KUBERNETES_SERVICE_HOST" in os.environ and NAMESPACE_FILE.exists():
        named = NAMESPACE_FILE.read_text().strip()
    return named
