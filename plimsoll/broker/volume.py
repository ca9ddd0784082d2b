"""The inline CSI volume by which a pod in a cluster gets its pages and the preload library.

The webhook puts the volume and its mounts into the pod. The broker serves the volume on the node, so that no pod
starts before its lines are laid out. The placer keeps such pods off nodes without the driver. What always holds: a
container mounts its own pages and no other container's, the library and `limits` are read-only, and no host path is
named: Pod Security's `restricted` forbids these.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from plimsoll.broker.pages import CONTAINER_COUNTS_DIR, CONTAINER_LIMITS_DIR

DRIVER: Final = "plimsoll.dev"
"""The CSI driver's name."""

VOLUME_NAME: Final = "plimsoll"
"""The volume's name in a pod that has no such volume under another name."""

CONTAINER_DIR: Final = "/run/plimsoll"
"""The directory in a container that belongs to Plimsoll."""
CONTAINER_LIBRARY_DIR: Final = "/run/plimsoll/lib"
CONTAINER_LIBRARY: Final = "/run/plimsoll/lib/libplimsoll.so"
"""The preload library, as the container sees it."""


def uses_volume(volumes: Iterable[Mapping[str, Any]] | None) -> bool:
    """Whether one of a pod's `spec.volumes` is ours."""
    return any((volume.get("csi") or {}).get("driver") == DRIVER for volume in volumes or ())


def csi_volume(name: str) -> dict[str, Any]:
    """The entry of `spec.volumes`."""
    return {"name": name, "csi": {"driver": DRIVER}}


def volume_mounts(volume: str, container: str) -> tuple[dict[str, Any], ...]:
    """The mounts of a container with GPUs, as entries of its `volumeMounts`."""
    return (
        _read_only(volume, CONTAINER_LIMITS_DIR, f"limits/{container}"),
        {"name": volume, "mountPath": CONTAINER_COUNTS_DIR, "subPath": f"counts/{container}"},
        _read_only(volume, CONTAINER_LIBRARY_DIR, "lib"),
    )


def _read_only(volume: str, path: str, subpath: str) -> dict[str, Any]:
    return {"name": volume, "mountPath": path, "subPath": subpath, "readOnly": True}
