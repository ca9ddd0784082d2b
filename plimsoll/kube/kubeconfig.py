"""The checks of a kubeconfig, in our own words. Imports nothing of the Kubernetes client."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from plimsoll.part.errors import InputError
from plimsoll.part.settings import check_url, shown_url

IN_CLUSTER: Final = "in-cluster"
"""The value, in a setting that names a kubeconfig, for the pod's own service account."""

NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""The pod's own namespace, inside a cluster."""

_PROVIDERS: Final = ("oidc", "gcp")
"""The login providers of the Kubernetes client, which passes over any other and sends no login."""

REMEDY: Final = f"name a readable kubeconfig, or, in a pod with a service account, {IN_CLUSTER}"


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """The setting of the parts that speak with a cluster.

    Attributes:
        kubeconfig: path of a kubeconfig, or `in-cluster`, which is the default of webhook and pool. Empty: monitor
            and broker do without a cluster, and the placer schedules for Kubernetes where it runs inside a cluster
            and has no local nodes.
    """

    kubeconfig: str = ""


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


def corrected(kind: str, fields: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The fields of a cluster, user or context, changed so that the Kubernetes client reads them as kubectl does.

    The client fails at a null, takes an empty text for data, and a user's certificate from the cluster's folder. It
    uses no certificates where the scheme is in capitals. It prefers a plugin to the user's own login, and sends no
    login where a user has no password.

    Args:
        kind: `cluster`, `user` or `context`.
        fields: the fields as they stand in the file.
        folder: that of the file.
    """
    given = {name: value for name, value in fields.items() if value is not None and value != ""}
    server = given.get("server")
    if kind == "cluster" and isinstance(server, str):
        scheme, mark, rest = server.partition("://")
        given["server"] = scheme.lower() + mark + rest
    if kind == "user":
        files = given.keys() & {"client-certificate", "client-key"}
        given |= {name: str(folder / given[name]) for name in files if isinstance(given[name], str)}
        if "username" in given:
            given.setdefault("password", "")
        if given.keys() & {"token", "tokenFile", "username"}:
            given.pop("exec", None)
    return given


def check_cluster(kubeconfig: str, cluster: Mapping[str, object]) -> None:
    """Refuse the address of a server that no request could ever reach, and an unclear word on trusting the server.

    Args:
        kubeconfig: the file that has the cluster.
        cluster: its `clusters[].cluster`.

    Raises:
        InputError: the address is no URL, or has a user in it; or it is not clear whether the server's certificate
            is verified. The message names file and field.
    """
    field, server = f"{kubeconfig}: clusters[].cluster.server", str(cluster.get("server", ""))
    check_url(field, server, ("https", "http"))
    if urlsplit(server).username is not None:
        remedy = "write them into users[].user of the same file"
        raise InputError(field, shown_url(server), "has a user or password in it", remedy)
    name = "insecure-skip-tls-verify"
    field, is_insecure = f"{kubeconfig}: clusters[].cluster.{name}", cluster.get(name, False)
    if not isinstance(is_insecure, bool):
        raise InputError(field, is_insecure, "is neither true nor false", "write it without quotes")
    if is_insecure and any(other.startswith("certificate-authority") for other in cluster):
        problem = "contradicts the certificate-authority beside it"
        raise InputError(field, is_insecure, problem, "leave one of both out")


def check_user(kubeconfig: str, user: Mapping[str, Any]) -> None:
    """Refuse a user whose login Plimsoll does not know: requests would have rights that nobody meant.

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
    provider = user.get("auth-provider", {}).get("name", "oidc")
    if provider not in _PROVIDERS:
        field, remedy = f"{kubeconfig}: users[].user.auth-provider.name", "name an exec plugin for this cloud"
        raise InputError(field, provider, "is not supported", remedy)


class _Context(msgspec.Struct):
    cluster: str


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
