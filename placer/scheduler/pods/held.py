"""The policy for pods whose containers nothing would hold to their lines: refused by name, or placed knowingly.

The webhook puts pages and library into each container that asks for a GPU. A pod that the webhook never saw lacks
them: its namespace is left out, the webhook was away, or the pod is older than the webhook. Such a pod would get its
GPU and use all of it. Its author may also bring the mounts, as docs/webhook.md shows. What always holds: nothing but
the pod's own spec is read, so the answer is the same for every node.
"""

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any, Final

from plimsoll.broker.pages import CONTAINER_LIMITS_DIR
from plimsoll.broker.volume import (
    CONTAINER_DIR,
    CONTAINER_LIBRARY,
    PRELOAD,
    PRELOADS_FILE,
    container_of,
    is_ours,
    preloads,
)
from plimsoll.kube.models import Container, Pod, VolumeMount
from plimsoll.part.errors import InputError

_LIBRARY: Final = posixpath.basename(CONTAINER_LIBRARY)
_REMEDY: Final = (
    "create the pod anew where the webhook sees it, or write the mounts and variables of docs/webhook.md, "
    '"Pods without the webhook"'
)


def refuse_unheld(pod: Pod, asking: Iterable[str]) -> None:
    """Refuse a pod with a container that asks for a GPU and lacks its pages or the library.

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


def _check(where: str, container: Container, volumes: Mapping[Any, Mapping[str, Any]]) -> None:
    mounts = {
        _normal(one.mountPath): (one, volumes.get(one.name, {})) for one in container.volumeMounts or ()
    }
    if not any(_has_pages(container.name, path, *given) for path, given in mounts.items()):
        problem = "have no volume with its pages, so nothing would hold the container to what it declares"
        raise InputError(f"{where}.volumeMounts", sorted(mounts), problem, _REMEDY)
    for path, (_, volume) in mounts.items():
        if path.startswith(CONTAINER_DIR + "/") and not _is_served(volume):
            problem = "lies over Plimsoll's place in the container"
            raise InputError(f"{where}.volumeMounts", path, problem, "remove the mount")
    _, preloading = mounts.get(PRELOADS_FILE, (None, {}))
    value = next((one.value for one in reversed(container.env or ()) if one.name == PRELOAD), None)
    named = {posixpath.basename(one) for one in preloads(value or "")}
    if _LIBRARY not in named and not _is_served(preloading):
        problem = f"names no {_LIBRARY}, and nothing of Plimsoll's is mounted at {PRELOADS_FILE}"
        raise InputError(f"{where}.env[{PRELOAD}]", value, problem, _REMEDY)


def _has_pages(container: str, path: str, mount: VolumeMount, volume: Mapping[str, Any]) -> bool:
    """Whether a mount brings a container's own pages to the place where the library reads them."""
    if not is_ours(volume):
        # The author's own mounts are from the node's directory, and only their place is known.
        return path == CONTAINER_LIMITS_DIR and "hostPath" in volume
    place = path, posixpath.normpath(mount.subPath or mount.subPathExpr or ".")
    return container_of(volume) == container and place in (
        (CONTAINER_DIR, "."),
        (CONTAINER_LIMITS_DIR, "limits"),
    )


def _is_served(volume: Mapping[str, Any]) -> bool:
    return is_ours(volume) or "hostPath" in volume


def _normal(path: str) -> str:
    """The path in most images: `/var/run` is a link to `/run`."""
    normal = "/" + posixpath.normpath(path).lstrip("/")
    return normal.removeprefix("/var") if normal.startswith("/var/run/") else normal
