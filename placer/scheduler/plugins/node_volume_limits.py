"""NodeVolumeLimits: the drivers of a node, and the number of volumes that each can attach there.

A volume that a node has attached and no pod there uses counts beside the same volume of a new pod, as in
kube-scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from placer.core.mounts import Mounts
from placer.scheduler.plugins.volumes.objects import CsiVolume
from placer.scheduler.plugins.volumes.store import NodeVolumes, PodChanges, VolumeStore
from plimsoll.broker.volume import DRIVER
from plimsoll.ids import NodeName

TOO_MANY: Final = "node(s) exceed max volume count"
NO_DRIVER: Final = f"{DRIVER} CSI driver is not installed on the node"
REASONS: Final = frozenset({TOO_MANY, NO_DRIVER})


def filter_node(
    store: VolumeStore, mounts: Mounts, node: NodeName, changes: PodChanges | None = None
) -> str | None:
    """The reason why a node is unfit for a pod with these mounts, or None."""
    limits = store.limits.get(node)
    if not limits or not mounts.claims:
        return None
    wanted = store.csi_volumes(use.claim for use in mounts.claims)
    if any(one.driver in limits for one in wanted) and exceeds(
        wanted, store.node_volumes(node, changes), limits
    ):
        return TOO_MANY
    return None


def exceeds(wanted: Iterable[CsiVolume], there: NodeVolumes, limits: Mapping[str, int]) -> bool:
    """Whether a pod with these volumes is too much for a node."""
    new = Counter(one.driver for one in frozenset(wanted) - there.used)
    return any(
        driver in limits and there.counts.get(driver, 0) + count > limits[driver]
        for driver, count in new.items()
    )


def lacks_driver(store: VolumeStore, node: NodeName) -> tuple[str, ...]:
    """The reason why a node is unfit for a pod with our inline volume; empty where the broker serves it."""
    return () if node in store.serving else (NO_DRIVER,)
