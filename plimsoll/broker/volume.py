"""The inline CSI volume by which a container in a cluster gets its pages and the preload library.

The webhook gives each container with GPUs a volume of its own and mounts it as a whole, because the kubelet binds
each `subPath` by two programs. One file of the volume is mounted by `subPath` all the same: `/etc/ld.so.preload`, by
which programs keep the library when they start with a cleared environment or other rights. The broker serves the
volume on the node, so that no pod starts before its lines are laid out. The placer keeps such pods off nodes without
the driver. What always holds: a container mounts its own pages and no other container's, the library and `limits` are
read-only, and no host path is named: Pod Security's `restricted` forbids these.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from plimsoll.broker.pages import PRELOADS_NAME
from plimsoll.contract import assigned_annotation
from plimsoll.ids import ContainerName

DRIVER: Final = "plimsoll.dev"
"""The CSI driver's name."""

VOLUME_NAME: Final = "plimsoll"
"""The name of the first volume in a pod; those of further containers have a number behind it."""

CONTAINER_DIR: Final = "/run/plimsoll"
"""The directory in a container that belongs to Plimsoll."""
CONTAINER_LIBRARY: Final = "/run/plimsoll/lib/libplimsoll.so"
"""The preload library, as the container sees it."""

PRELOAD: Final = "LD_PRELOAD"
"""The variable that names the libraries which glibc's loader preloads."""
PRELOADS_FILE: Final = "/etc/ld.so.preload"
"""glibc's loader preloads what this file names, whatever the environment, for setuid programs as well."""

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
"""The variable by which NVIDIA's runtime knows a container's GPUs."""

PRELOADS_SUBPATH: Final = f"limits/{PRELOADS_NAME}"
"""The file of a volume that is mounted at `PRELOADS_FILE`."""

CONTAINER_ATTRIBUTE: Final = "container"
"""The attribute of a volume that names its container."""

_PRELOADED: Final = re.compile(r"(?:\$\([^)]*\)|[^ :])+")


def preloads(value: str) -> list[str]:
    """The libraries that a value of `PRELOAD` names, as glibc's loader reads them.

    Colons and blanks alone separate them: a line's end or a comma belongs to a name. A variable in `$(…)`, which the
    kubelet may replace, belongs to one name with all that touches it.
    """
    return _PRELOADED.findall(value)


def normal_path(path: str) -> str:
    """A `mountPath` from the root, without `.`, `..`, and needless slashes."""
    return "/" + posixpath.normpath("/" + path).lstrip("/")


def in_most_images(path: str) -> str:
    """The normal path of the place at a `mountPath` in most images: `/var/run` is a link to `/run` there."""
    normal = normal_path(path)
    return normal.removeprefix("/var") if f"{normal}/".startswith("/var/run/") else normal


def can_hide(path: str) -> bool:
    """Whether a mount at this normal path may hide `CONTAINER_DIR` or a part of it.

    Runtimes mount paths of fewer parts first, and those of as many in an order of their own. So a mount at `/run` is
    beneath ours, and one at `/var/run` may hide it, wherever the pod has it.
    """
    place = in_most_images(path).rstrip("/") + "/"
    is_near = place.startswith(f"{CONTAINER_DIR}/") or f"{CONTAINER_DIR}/".startswith(place)
    return is_near and path.count("/") >= CONTAINER_DIR.count("/")


def remedy_for_hiding(path: str) -> str:
    """The remedy for the author of a mount that may hide `CONTAINER_DIR`."""
    if normal_path(path) == "/var/run":
        return "mount it at /run, to which /var/run is a link in most images"
    return "remove the mount"


def is_ours(volume: Mapping[str, Any]) -> bool:
    """Whether an entry of `spec.volumes` is an inline volume of Plimsoll's."""
    return (volume.get("csi") or {}).get("driver") == DRIVER


def container_of(volume: Mapping[str, Any]) -> str | None:
    """The container to which a volume of ours belongs; None if its author named none."""
    found: str | None = (volume["csi"].get("volumeAttributes") or {}).get(CONTAINER_ATTRIBUTE)
    return found


def uses_volume(volumes: Iterable[Mapping[str, Any]] | None) -> bool:
    """Whether one of a pod's `spec.volumes` is ours."""
    return any(map(is_ours, volumes or ()))


def csi_volume(name: str, container: str) -> dict[str, Any]:
    """The entry of `spec.volumes` for a container with GPUs.

    The volume is `readOnly`, because the runtime of a node with SELinux would relabel any other one with all that is
    mounted in it, and the read-only parts refuse that. The mount of `counts` in it stays writable, because nested
    mounts become read-only only where a pod asks for that (`recursiveReadOnly`).
    """
    attributes = {CONTAINER_ATTRIBUTE: container}
    return {"name": name, "csi": {"driver": DRIVER, "readOnly": True, "volumeAttributes": attributes}}


def visible_field(container: ContainerName) -> str:
    """The field of the pod from which the kubelet takes a container's value of `VISIBLE`: the placer writes it."""
    return f"metadata.annotations['{assigned_annotation(container)}']"


def volume_mounts(volume: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The mounts of a container's volume, as entries of its `volumeMounts`: the whole, and the loader's file."""
    file = {"mountPath": PRELOADS_FILE, "subPath": PRELOADS_SUBPATH, "readOnly": True}
    return {"name": volume, "mountPath": CONTAINER_DIR}, {"name": volume, **file}
