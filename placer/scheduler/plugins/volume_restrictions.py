"""VolumeRestrictions: a disk that a pod writes is its own, and so is a claim with the mode ReadWriteOncePod."""

from collections.abc import Collection, Iterable
from typing import Final

from placer.core.mounts import ClaimKey, Disk, Mounts
from placer.scheduler.plugins.volumes.store import PodChanges, VolumeStore
from plimsoll.ids import NodeName
from plimsoll.kube.storage_models import Claim

DISK_CONFLICT: Final = "node(s) had no available disk"
IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by "
    "another pod"
)

_READ_WRITE_ONCE_POD: Final = "ReadWriteOncePod"


def filter_node(
    store: VolumeStore,
    mounts: Mounts,
    exclusive: Collection[ClaimKey],
    node: NodeName,
    changes: PodChanges | None = None,
) -> str | None:
    """The reason why a node is unfit for a pod with these mounts, or None; `exclusive` are its exclusive claims."""
    if mounts.disks and disks_conflict(mounts.disks, store.mounts_on(node, changes)):
        return DISK_CONFLICT
    return IN_USE if any(store.has_pod(claim, changes) for claim in exclusive) else None


def disks_conflict(disks: Iterable[Disk], others: Iterable[Mounts]) -> bool:
    """Whether a pod with these disks cannot come to the others: two pods share a disk only if both read."""
    there = [disk for one in others for disk in one.disks]
    return any(
        (one.writes or other.writes) and not one.names.isdisjoint(other.names)
        for one in disks
        for other in there
    )


def is_exclusive(claim: Claim) -> bool:
    """Whether one pod at a time may use a claim."""
    return _READ_WRITE_ONCE_POD in (claim.spec.accessModes or ())
