"""NodeVolumeLimits: the drivers of a node, and the number of volumes that each can attach there.

A volume that a node has attached and no pod there uses counts beside the same volume of a new pod, as in
kube-scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from placer.core.mounts import Mounts
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.plugins.volumes.objects import CsiVolume
from placer.scheduler.plugins.volumes.store import NodeVolumes, PodChanges, VolumeStore
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.broker.volume import DRIVER, uses_volume
from plimsoll.ids import NodeName
from plimsoll.kube.models import Node

TOO_MANY: Final = "node(s) exceed max volume count"
NO_DRIVER: Final = f"{DRIVER} CSI driver is not installed on the node"


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


class PlimsollVolume(Plugin[bool]):
    """A pod with our inline volume goes where the node's broker serves it."""

    name: ClassVar = "PlimsollVolume"
    causes: ClassVar = {NO_DRIVER: Cause.VOLUMES}

    def __init__(self, store: VolumeStore) -> None:
        """Filter by these nodes' drivers."""
        self._store = store

    def pre_filter(self, info: PodInfo) -> bool | None:
        """None for a pod without our volume."""
        return uses_volume(info.pod.spec.volumes) or None

    def filter(self, wanted: bool, node: NodeInfo) -> tuple[str, ...]:  # noqa: ARG002, FBT001 - it is always True
        """The reason against a node without our driver."""
        return () if NodeName(node.node.metadata.name) in self._store.serving else (NO_DRIVER,)

    def gains(self, node: Node, old: Node) -> Cause:  # noqa: ARG002 - drivers are objects of their own
        """A node's drivers are announced by the store."""
        return NOTHING
