"""Queueing hints: which pods that fit nowhere a change of the cluster could help. Pure.

A reason against a node has causes, and a cluster event lifts causes. Only pods that share a cause with the event are
probed on the node that changed, or tried again. A plugin names the causes of its own reasons, so there is a mapping
for each subject. What always holds: the cause that a refusal names for a node really kept the pod from that node, and
each rise of a node's room is an event. So the last obstacle to go always leads to a probe.
"""

import enum
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from placer.core.room import WHOLE_TOLERANCE_BYTES, Room
from plimsoll.demand import PodDemand
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.percent import most_pct


class Cause(enum.Flag):
    """Causes that keep a pod from a node, grouped by the changes that can lift them."""

    MEMORY = enum.auto()
    """The bytes that the pod's only container declares are not free on one GPU."""
    MEMORIES = enum.auto()
    """The same for a pod with several containers, or with one that declares no bytes."""
    PERCENTAGE = enum.auto()
    """The percentage that the pod's only container declares is not free on one GPU."""
    SHARE = enum.auto()
    """Compute time of one GPU."""
    OCCUPANCY = enum.auto()
    """The GPU has too many containers, belongs to one alone, or is not empty."""
    LABELS = enum.auto()
    """Locality labels: of the pods on a GPU, or the affinity label that is on another node's GPU."""
    GPUS = enum.auto()
    """The node has no GPU of the model or name, or no report; or the owner's other pods have another model."""
    RESOURCES = enum.auto()
    """CPU, memory, ports and other things of the node that pods take from each other."""
    NODE = enum.auto()
    """Labels, taints, readiness, features."""
    RULES = enum.auto()
    """Rules about other pods: the pod's own, and anti-affinity rules of pods that have a node."""
    POOL = enum.auto()
    """The GPU is outside of the pool: it joins soon, or cannot be acquired."""
    VOLUMES = enum.auto()
    """Volumes of claims: their nodes and zones, attach limits, free space; the driver of our inline volume."""


NOTHING: Final = Cause(0)
EVERYTHING: Final = ~NOTHING
SOME_GPU: Final = Cause.SHARE | Cause.OCCUPANCY | Cause.LABELS
_OF_MEMORY: Final = Cause.MEMORY | Cause.MEMORIES | Cause.PERCENTAGE
OF_GPUS: Final = _OF_MEMORY | SOME_GPU | Cause.GPUS | Cause.POOL


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A change of the cluster that may let pods fit.

    Attributes:
        causes: the causes that the change may have lifted.
        node: the node that changed; None: the causes may be lifted on any node.
        topics: the rules about pods that the change may help; None: all.
        best_bytes: the most bytes that one GPU of the node can give now. Pods that request more still do not fit.
        above_bytes, up_to_bytes: the bytes between which `MEMORY` was lifted. Pods that request no more than the
            first were not kept out by memory before, and pods that request more than the second still are.
        above_pct, up_to_pct: the same for `PERCENTAGE`, in percent of one GPU.
        above_priority: pods of higher priority than this may preempt pods of the node; None: no waiting pod may.
        preempt_bytes: the most bytes of one GPU that they could get by preemption.
    """

    causes: Cause
    node: NodeName | None = None
    topics: Collection[Hashable] | None = None
    best_bytes: int = 0
    above_bytes: int = -1
    up_to_bytes: int = 2**63 - 1
    above_pct: int = -1
    up_to_pct: int = 100
    above_priority: int | None = None
    preempt_bytes: int = 0


def largest_request(demand: PodDemand) -> int:
    """The most bytes that a pod declares for one GPU, or the percentage of its only container; else 0."""
    if _memory_of(demand) is Cause.PERCENTAGE:
        return demand.containers[0].memory_pct or 0
    return max((container.memory_bytes or 0 for container in demand.containers), default=0)


def any_cause(demand: PodDemand) -> Cause:
    """All causes that can keep a pod with this demand from a node."""
    if not demand.containers:
        return EVERYTHING & ~OF_GPUS
    return (EVERYTHING & ~_OF_MEMORY) | _memory_of(demand)


def causes_of(reasons: Collection[str], demand: PodDemand, cause_of: Callable[[str], Cause]) -> Cause:
    """The causes behind reasons, as filters and `plan` give them; `cause_of` is `Framework.cause`.

    An unknown reason may have any cause, and so may a refusal without reasons, which means that there was no node.
    """
    if not reasons:
        return any_cause(demand)
    causes = _memory_of(demand)  # always, because a lifted cause leads to no probe where memory is short too
    if len(demand.containers) > 1:
        # One container may move to another GPU, and leave the memory of its GPU to the next container.
        causes |= SOME_GPU
    for reason in reasons:
        causes |= cause_of(reason)
    return causes & any_cause(demand)


def _memory_of(demand: PodDemand) -> Cause:
    if all(container.whole for container in demand.containers):
        return NOTHING
    first = demand.containers[0]
    if len(demand.containers) > 1 or first.gpus > 1 or first.best_effort:
        return Cause.MEMORIES
    return Cause.MEMORY if first.memory_pct is None else Cause.PERCENTAGE


def best_bytes(rooms: Iterable[Room]) -> int:
    """The most bytes that a container can be promised on one of these GPUs; at least 0, also without a GPU."""
    return max((0, *map(_open_bytes, rooms)))


def event_of_rooms(
    node: NodeName, before: Mapping[GpuUuid, Room], after: Mapping[GpuUuid, Room]
) -> ClusterEvent:
    """The change between two states of a node's GPUs."""
    most_bytes = best_bytes(after.values())
    causes, above_bytes, up_to_bytes, above_pct, up_to_pct = NOTHING, most_bytes, 0, 100, 0
    for uuid, room in after.items():
        old = before.get(uuid)
        if old is None or old.gpu.model != room.gpu.model:
            return ClusterEvent(OF_GPUS, node, best_bytes=most_bytes)
        if _open_bytes(room) > _open_bytes(old) or room.free_bytes > old.free_bytes:
            causes |= Cause.MEMORY | Cause.MEMORIES
            above_bytes = min(above_bytes, _open_bytes(old))
            up_to_bytes = max(up_to_bytes, _open_bytes(room))
        if _open_pct(room) > _open_pct(old):
            causes |= Cause.PERCENTAGE | Cause.MEMORIES
            above_pct, up_to_pct = min(above_pct, _open_pct(old)), max(up_to_pct, _open_pct(room))
        if room.free_share_pct > old.free_share_pct:
            causes |= Cause.SHARE
        if _is_less_occupied(room, old):
            causes |= Cause.OCCUPANCY
        if room.labels.opened_since(old.labels):
            causes |= Cause.LABELS
    return ClusterEvent(
        causes,
        node,
        best_bytes=most_bytes,
        above_bytes=above_bytes,
        up_to_bytes=up_to_bytes,
        above_pct=above_pct,
        up_to_pct=up_to_pct,
    )


def _open_bytes(room: Room) -> int:
    return min(room.promisable_bytes, room.gpu.usable_bytes)


def _open_pct(room: Room) -> int:
    return most_pct(room.gpu.usable_bytes, _open_bytes(room))


def _is_less_occupied(room: Room, old: Room) -> bool:
    emptied = room.unattributed_bytes <= WHOLE_TOLERANCE_BYTES < old.unattributed_bytes
    return emptied or room.sharers < old.sharers or (old.taken_whole and not room.taken_whole)
