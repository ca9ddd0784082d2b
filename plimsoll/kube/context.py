"""The context of a kubeconfig that a client uses: a cluster and a user, and the files that have them.

Several files are merged as kubectl does: the first file with an entry of a name, or with a current context, counts.
What always holds: a field that kubectl refuses is refused with its file and its place, and no message shows a secret.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from plimsoll.kube.exec_plugin import Exec
from plimsoll.kube.kubeconfig import check_server
from plimsoll.kube.transport import text_of
from plimsoll.part.errors import InputError

FIELD: Final = "kubeconfig"

T = TypeVar("T")


class Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    """A server: its URL, and how a client trusts and reaches it. Data is base64, and wins over a file's path."""

    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """The credentials of requests. Data is base64, and wins over a file's path; a token's file wins over a token."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    exec: Exec | None = None
    auth_provider: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """A cluster and a user. Paths in each are relative to the folder of the file that has it."""

    cluster: Cluster
    cluster_file: Path
    user: User
    user_file: Path


class _Names(msgspec.Struct):
    cluster: str
    user: str


class _NamedContext(msgspec.Struct):
    name: str
    context: _Names


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: Cluster


class _NamedUser(msgspec.Struct):
    name: str
    user: User | None = None


class _Kubeconfig(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    contexts: list[_NamedContext] | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None


def chosen(where: str, name: str | None) -> Context:
    """The context that a client uses. Blocks, briefly.

    Args:
        where: the path of a kubeconfig, or several with `:`.
        name: the context; None for the current one.

    Raises:
        InputError: a file cannot be read, a field is missing or has another type, or the address of the server cannot
            work. The message names the file.
    """
    files = [(path, _decoded(path)) for path in where.split(os.pathsep) if path]
    name = name or next((file.current_context for _, file in files if file.current_context), None)
    if not name:
        remedy = "choose one by `kubectl config use-context`"
        raise InputError(FIELD, where, "names no current context", remedy)
    contexts = ((path, one.name, one.context) for path, file in files for one in file.contexts or ())
    clusters = ((path, one.name, one.cluster) for path, file in files for one in file.clusters or ())
    users = ((path, one.name, one.user) for path, file in files for one in file.users or ())
    names = _first(contexts, name)
    if names is None:
        raise InputError(FIELD, where, f"has no context {name!r}", "see `kubectl config get-contexts`")
    cluster = _first(clusters, names[1].cluster)
    if cluster is None:
        problem = f"has no cluster {names[1].cluster!r}, which its context {name!r} names"
        raise InputError(FIELD, where, problem, "add that entry to `clusters`")
    check_server(cluster[0], cluster[1].server)
    user_path, user = _first(users, names[1].user) or (names[0], None)
    return Context(cluster[1], Path(cluster[0]), user or User(), Path(user_path))


def _first(entries: Iterable[tuple[str, str, T]], name: str) -> tuple[str, T] | None:
    """The first entry with a name, and the file that has it."""
    return next(((path, entry) for path, own, entry in entries if own == name), None)


def _decoded(path: str) -> _Kubeconfig:
    try:
        return msgspec.yaml.decode(Path(path).read_bytes(), type=_Kubeconfig)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        fields = re.sub(r"^`\$\.?|`$", "", place) or "its top"
        remedy = "mend that field: YAML reads a text in quotes as a text, and 5 as a number"
        raise InputError(FIELD, path, f"is damaged at {fields}: {what}", remedy) from error
    except (msgspec.DecodeError, OSError) as error:
        raise unusable(path, error) from error


def unusable(path: object, error: Exception) -> InputError:
    """The refusal of a kubeconfig for an error of another kind."""
    remedy = "mend it: `kubectl --kubeconfig` with this file must work"
    return InputError(FIELD, str(path), f"cannot be used ({text_of(error)})", remedy)
