"""The checks of a kubeconfig, in our own words. Imports nothing of the Kubernetes client."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from plimsoll.part.errors import InputError
from plimsoll.part.settings import check_url, shown_url

IN_CLUSTER: Final = "in-cluster"
"""The value, in a setting that names a kubeconfig, for the pod's own service account."""

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The pod's own namespace, inside a cluster."""

REMEDY: Final = f"name a readable kubeconfig, or, in a pod with a service account, {IN_CLUSTER}"


def check_kubeconfig(field: str, where: str) -> None:
    """Refuse a path that names no readable file. Blocks, briefly.

    Args:
        field: the setting or option that names it.
        where: a path, several with `:`, `in-cluster`, or empty for none.

    Raises:
        InputError: the file is missing or may not be read; the message has the remedy.
    """
    if where in ("", IN_CLUSTER):
        return
    for path in where.split(os.pathsep):
        _check_file(field, path)


def check_server(kubeconfig: str, server: str) -> None:
    """Refuse the address of a server that no request could ever reach.

    Args:
        kubeconfig: the file that names it.
        server: its `clusters[].cluster.server`.

    Raises:
        InputError: the address is no URL, or has a user in it; the message names file and field.
    """
    field = f"{kubeconfig}: clusters[].cluster.server"
    check_url(field, server, ("https", "http"))
    if urlsplit(server).username is not None:
        remedy = "write them into users[].user of the same file"
        raise InputError(field, shown_url(server), "has a user or password in it", remedy)


def check_user(kubeconfig: str, user: Mapping[str, object]) -> None:
    """Refuse a user who wants to act as another one: without that, requests would have rights that nobody meant.

    Args:
        kubeconfig: the file that has the user.
        user: its `users[].user`.

    Raises:
        InputError: the message names file and field.
    """
    for name in ("as", "as-uid", "as-groups", "as-user-extra"):
        if user.get(name):
            remedy = "give Plimsoll credentials of its own, without impersonation"
            raise InputError(f"{kubeconfig}: users[].user.{name}", user[name], "is not supported", remedy)


class _Context(msgspec.Struct):
    cluster: str
    user: str


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context


class _Cluster(msgspec.Struct):
    server: str


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster


class _Kubeconfig(msgspec.Struct):
    """The fields of one file without which the Kubernetes client fails. YAML reads `5` as a number, not as a text."""

    contexts: list[_NamedContext] | None = None
    clusters: list[_NamedCluster] | None = None


def damage(field: str, where: str) -> InputError | None:
    """The first field of these files that is missing or no text; None if none is. Blocks, briefly.

    Args:
        field: the setting or option that names the files.
        where: a path, or several with `:`; each may be read.
    """
    for path in where.split(os.pathsep):
        try:
            msgspec.yaml.decode(Path(path).read_bytes(), type=_Kubeconfig)
        except msgspec.ValidationError as error:
            what, _, place = str(error).partition(" - at ")
            fields = re.sub(r"^`\$\.?|`$", "", place) or "its top"
            remedy = "mend that field: it holds a text, and YAML reads a text in quotes as one"
            return InputError(field, path, f"is damaged at {fields}: {what}", remedy)
        except (msgspec.DecodeError, OSError):
            continue  # the Kubernetes client has its own words for these
    return None


def _check_file(field: str, where: str) -> None:
    try:
        with Path(where).open("rb"):
            return
    except FileNotFoundError as error:
        raise InputError(field, where, "does not exist", REMEDY) from error
    except PermissionError as error:
        remedy = "make it readable for the user of this process, or name another"
        raise InputError(field, where, "may not be read by this user", remedy) from error
    except OSError as error:
        raise InputError(field, where, f"cannot be read ({error})", REMEDY) from error


def own_namespace() -> str:
    """The namespace of the pod in which this process runs; `kube-system` outside of a cluster."""
    return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "kube-system"
