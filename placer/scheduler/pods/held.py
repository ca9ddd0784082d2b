"""The policy for pods whose containers nothing would hold to their lines: refused by name, or placed knowingly.

The webhook puts pages and library into each container that asks for a GPU. A pod that the webhook never saw lacks
them: its namespace is left out, the webhook was away, or the pod is older than the webhook. Such a pod would get its
GPU and use all of it. Its author may also bring the mounts, in one of two ways that docs/webhook.md shows: by the
volume of the container, or from the directory of the node's broker. What always holds: a container that has neither
way as a whole counts as held by nothing, and nothing but the pod's own spec is read, so the answer is the same for
every node.
"""

import posixpath
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec

from plimsoll.broker.pages import CONTAINER_COUNTS_DIR, CONTAINER_LIMITS_DIR
from plimsoll.broker.volume import (
    CONTAINER_DIR,
    CONTAINER_LIBRARY,
    PRELOAD,
    PRELOADS_FILE,
    PRELOADS_SUBPATH,
    VISIBLE,
    can_hide,
    container_of,
    is_ours,
    normal_path,
    preloads,
    remedy_for_hiding,
    visible_field,
)
from plimsoll.contract import asking_containers
from plimsoll.ids import ContainerName
from plimsoll.kube.models import Container, EnvVar, Pod, VolumeMount
from plimsoll.part.errors import InputError

_LIBRARY: Final = posixpath.basename(CONTAINER_LIBRARY)
_POD_UID: Final = "POD_UID"
_REMEDY: Final = (
    "create the pod anew where the webhook sees it, or write the mounts and variables of docs/webhook.md, "
    '"Pods without the webhook"'
)

_Mounts = Mapping[str, tuple[VolumeMount, Mapping[str, Any]]]
"""A container's mounts with their volumes by normal path, in the pod's order."""


def refuse_unheld(pod: Pod, asking: Iterable[str]) -> None:
    """Refuse a pod with a container that asks for a GPU and lacks its pages, the library, or the choice of its GPUs.

    Args:
        pod: the pod as it is stored.
        asking: the names of its containers and init containers that ask for GPUs.

    Raises:
        InputError: the error names the first such container, and what it lacks.
    """
    names, volumes = set(asking), {one.get("name"): one for one in pod.spec.volumes or ()}
    kinds = (("initContainers", pod.spec.initContainers or ()), ("containers", pod.spec.containers))
    for kind, containers in kinds:
        for container in containers:
            if container.name in names:
                _check(f"spec.{kind}[{container.name}]", container, volumes)


def why_unheld(pod: Pod) -> str:
    """The reason why nothing holds a pod that was bound by somebody else; empty for a pod that something holds."""
    try:
        refuse_unheld(pod, asking_containers(pod))
    except InputError as error:
        return str(error)
    return ""


def _check(where: str, container: Container, volumes: Mapping[Any, Mapping[str, Any]]) -> None:
    mounts = _mounts_of(container, volumes)
    of_volume = _has_own(container.name, mounts, CONTAINER_DIR, "")
    if not of_volume and not _has_pages_of_node(container, mounts):
        problem = "have no volume with its pages, so nothing would hold the container to what it declares"
        raise InputError(f"{where}.volumeMounts", sorted(mounts), problem, _REMEDY)
    value = _value(container, PRELOAD)
    library = _mount_of_library(value, mounts)
    ours = {CONTAINER_DIR} if of_volume else {CONTAINER_LIMITS_DIR, CONTAINER_COUNTS_DIR, library or ""}
    hiding = next((path for path in mounts if path not in ours and can_hide(path)), None)
    if hiding is not None:
        problem = "lies over Plimsoll's place in the container"
        raise InputError(f"{where}.volumeMounts", hiding, problem, remedy_for_hiding(hiding))
    has_file = _has_own(container.name, mounts, PRELOADS_FILE, PRELOADS_SUBPATH)
    is_named = CONTAINER_LIBRARY in preloads(value or "")
    if not (has_file or is_named if of_volume else library):
        problem = f"names no {_LIBRARY} of Plimsoll's, nor does a mount of Plimsoll's at {PRELOADS_FILE}"
        raise InputError(f"{where}.env[{PRELOAD}]", value, problem, _REMEDY)
    if _field(container, VISIBLE) != (field := visible_field(ContainerName(container.name))):
        problem = f"does not come from {field}, so the container would see other GPUs than its own"
        raise InputError(f"{where}.env[{VISIBLE}]", _value(container, VISIBLE), problem, _REMEDY)


def _mounts_of(container: Container, volumes: Mapping[Any, Mapping[str, Any]]) -> _Mounts:
    """The mounts by their place. The later of two mounts at one place hides the other, and counts."""
    mounts: dict[str, tuple[VolumeMount, Mapping[str, Any]]] = {}
    for one in container.volumeMounts or ():
        path = normal_path(one.mountPath)
        mounts.pop(path, None)
        mounts[path] = one, volumes.get(one.name, {})
    return mounts


def _has_own(container: str, mounts: _Mounts, path: str, part: str) -> bool:
    """Whether this part of the container's own volume, or the whole (empty), is mounted at this path."""
    mount, volume = mounts.get(path, (VolumeMount(), {}))
    is_part = (mount.subPath or "") == part and not mount.subPathExpr
    return is_part and is_ours(volume) and container_of(volume) == container


def _has_pages_of_node(container: Container, mounts: _Mounts) -> bool:
    """Whether the container's pages come from the directory of the node's broker, whose place only the node knows."""
    limits, counts = mounts.get(CONTAINER_LIMITS_DIR), mounts.get(CONTAINER_COUNTS_DIR)
    if limits is None or counts is None or not limits[0].readOnly or counts[0].readOnly:
        return False
    own = f"$({_POD_UID})/{container.name}"
    root = _source(*limits).removesuffix(f"/limits/{own}")
    is_own = (_source(*limits), _source(*counts)) == (f"{root}/limits/{own}", f"{root}/counts/{own}")
    return is_own and _field(container, _POD_UID) == "metadata.uid"


def _mount_of_library(value: str | None, mounts: _Mounts) -> str | None:
    """The path of the read-only mount from the node that has a library named by the variable, or None."""
    for entry in preloads(value or ""):
        around = (entry, *map(str, PurePosixPath(entry).parents)) if entry == normal_path(entry) else ()
        path = next((path for path in around if path in mounts), None)
        if path is None or not mounts[path][0].readOnly:
            continue
        source = _source(*mounts[path])
        file = source + entry.removeprefix(path)
        if source and "$(" not in file and posixpath.basename(file) == _LIBRARY:
            return path
    return None


def _source(mount: VolumeMount, volume: Mapping[str, Any]) -> str:
    """The path on the node of what is mounted, with the pod's variables in it; empty for other volumes."""
    of_node = (volume.get("hostPath") or {}).get("path")
    if not of_node or "$(" in f"{of_node}{mount.subPath or ''}":
        return ""  # of these the kubelet replaces variables in `subPathExpr` alone
    return posixpath.normpath(f"{of_node}/{mount.subPath or mount.subPathExpr or ''}")


def _variable(container: Container, name: str) -> EnvVar:
    """The entry in force of a container's variables, which is the last of its name; empty if it has none."""
    return next((one for one in reversed(container.env or ()) if one.name == name), EnvVar())


def _value(container: Container, name: str) -> str | None:
    return _variable(container, name).value


def _field(container: Container, name: str) -> str | None:
    """The field of the pod that the kubelet gives a variable; None for a variable from elsewhere."""
    given = _variable(container, name).valueFrom
    if given is msgspec.UNSET:
        return None
    found: str | None = ((msgspec.json.decode(given) or {}).get("fieldRef") or {}).get("fieldPath")
    return found
