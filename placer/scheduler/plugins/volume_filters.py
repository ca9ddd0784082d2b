"""VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone: the node can have the pod's volumes."""

from collections.abc import Iterable
from typing import ClassVar

from placer.scheduler.cache.cache import Cache
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.plugins.volumes.index import Volumes
from placer.scheduler.plugins.volumes.reasons import DISK, IN_USE, LIMIT, NO_DRIVER, OF_VOLUMES
from placer.scheduler.plugins.volumes.users import Moves
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.pods.nominator import Nomination
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.broker.volume import uses_volume
from plimsoll.ids import NodeName
from plimsoll.kube.models import Node


class PlimsollVolume(Plugin[bool]):
    """A pod with our inline volume goes where the node's broker serves it."""

    name: ClassVar = "PlimsollVolume"
    causes: ClassVar = {NO_DRIVER: Cause.VOLUMES}

    def __init__(self, volumes: Volumes) -> None:
        """Filter by these nodes' drivers."""
        self.volumes = volumes

    def pre_filter(self, info: PodInfo) -> bool | None:
        """None for a pod without our volume."""
        return uses_volume(info.pod.spec.volumes) or None

    def filter(self, wanted: bool, node: NodeInfo) -> tuple[str, ...]:  # noqa: ARG002, FBT001 - it is always True
        """The reason against a node without our driver."""
        return self.volumes.lacks_driver(NodeName(node.node.metadata.name))

    def gains(self, node: Node, old: Node) -> Cause:  # noqa: ARG002 - drivers are objects of their own
        """A node's drivers are announced by `Volumes`."""
        return NOTHING


class VolumeFilters(Plugin[PodInfo]):
    """The rules about persistent volumes, over one store of them."""

    name: ClassVar = "VolumeBinding"
    causes: ClassVar = dict.fromkeys(OF_VOLUMES - {NO_DRIVER}, Cause.VOLUMES)
    resolvable: ClassVar = frozenset({DISK, IN_USE, LIMIT})

    def __init__(self, cache: Cache) -> None:
        """Follow the pods of a cache."""
        self.volumes = Volumes(
            cache.changes.note, lambda node: cache.announce(node, Cause.VOLUMES), cache.labels.having
        )
        cache.observers.append(self)

    def pre_filter(self, info: PodInfo) -> PodInfo | None:
        """None for a pod without such volumes."""
        return info if info.needs.mounts else None

    def sign(self, info: PodInfo) -> object:  # noqa: ARG002 - see there
        """Nothing: the answers depend on objects that change, see `Volumes.state`."""
        return None

    def filter(self, wanted: PodInfo, node: NodeInfo) -> tuple[str, ...]:
        """The reasons of the first kind that applies."""
        name = NodeName(node.node.metadata.name)
        moves = _moves(node.removed.values(), node.nominated)
        return self.volumes.misfits(wanted.pod, wanted.needs.mounts, name, node.labels, moves)

    def gains(self, node: Node, old: Node) -> Cause:
        """With other labels, the node may reach a volume."""
        return Cause.VOLUMES if node.metadata.labels != old.metadata.labels else NOTHING

    def pod_changed(self, old: AssignedPod | None, now: AssignedPod | None) -> None:
        """Count the volumes of a pod with a node."""
        if old is not None and now is not None and (old.node, old.needs) == (now.node, now.needs):
            return
        if old is not None:
            self.volumes.unmount(old.node, old.needs.mounts)
        if now is not None:
            self.volumes.mount(now.node, now.needs.mounts)

    def node_changed(self, name: NodeName, old: NodeInfo | None, now: NodeInfo | None) -> None:
        """A node's labels are read when they are asked for."""

    def nomination_changed(self) -> None:
        """Nominated pods are read when they are asked for."""


def _moves(without: Iterable[AssignedPod], held: Iterable[Nomination]) -> Moves | None:
    """The volumes of pods that are left out of a node, or added; None if they have none."""
    less = [one.needs.mounts for one in without if one.needs.mounts]
    more = [one.needs.mounts for one in held if one.needs.mounts]
    return Moves(less, more) if less or more else None
