"""The GPUs that decisions may use: all of a node, or those in the pool (KubeShare, HPDC 2020, §4.4).

What always holds: a cordoned GPU is seen as one with a fault. While the pool is off, all others are seen as reported.
While it is on, a node's GPUs are unseen
until the node's part of the pool is known, so no GPU is used that NVIDIA's device plugin might hand to somebody else.
Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from placer.core.schedulability import OPEN, Schedulability
from placer.core.view import Fault, NodeView
from plimsoll.ids import GpuUuid, NodeName


@dataclass(frozen=True, slots=True)
class PoolPart:
    """A node's part of the pool.

    Attributes:
        gpus: its GPUs in the pool; None for a dedicated node, whose GPUs are all in the pool.
        acquirable: the number of its other GPUs that may join: those that the device plugin has to give, and those
            that are on their way.
    """

    gpus: frozenset[GpuUuid] | None = frozenset()
    acquirable: int = 0


UNKNOWN = PoolPart()


class Pool:
    """The parts of all nodes. Not thread-safe: one event loop owns it.

    Attributes:
        is_on: GPUs outside of the pool are not used. Set it before the first node is seen.
        absent: the schedulability of nodes without an object; that of open nodes where nodes have no objects.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.absent = OPEN
        self._schedulability: dict[NodeName, Schedulability] = {}
        self._parts: dict[NodeName, PoolPart] = {}
        self._seen: dict[NodeName, tuple[NodeView, NodeView]] = {}  # as reported, as seen
        self._listeners: list[Callable[[NodeName], None]] = []

    def on_change(self, listener: Callable[[NodeName], None]) -> None:
        """Call `listener` with each node that changed here; it must not block, raise, or change nodes."""
        self._listeners.append(listener)

    def part(self, node: NodeName) -> PoolPart:
        """A node's part of the pool."""
        return self._parts.get(node, UNKNOWN)

    def put(self, node: NodeName, part: PoolPart) -> bool:
        """Take a node's part; returns whether it differs from the one before."""
        if self.part(node) == part:
            return False
        self._parts[node] = part
        self._changed(node)
        return True

    def schedulability(self, node: NodeName) -> Schedulability:
        """Whether and why new pods are kept off a node."""
        return self._schedulability.get(node, self.absent)

    def put_schedulability(self, node: NodeName, schedulability: Schedulability | None) -> None:
        """Take the schedulability of a node; None for a node whose object is gone."""
        before = self.schedulability(node)
        if schedulability is None:
            self._schedulability.pop(node, None)
        else:
            self._schedulability[node] = schedulability
        if self.schedulability(node) != before:
            self._changed(node)

    def _changed(self, node: NodeName) -> None:
        self._seen.pop(node, None)
        for listener in self._listeners:
            listener(node)

    def forget(self, node: NodeName) -> None:
        """Forget a node that left the cluster."""
        self.put(node, UNKNOWN)
        self._parts.pop(node, None)

    def seen(self, reported: NodeView | None) -> NodeView | None:
        """A node as decisions see it: the same object until its report, part, or schedulability changes."""
        if reported is None or not (self.is_on or self.schedulability(reported.node).cordoned):
            return reported
        known = self._seen.get(reported.node)
        if known is None or known[0] is not reported:
            known = self._seen[reported.node] = reported, self.split(reported)
        return known[1]

    def split(self, reported: NodeView) -> NodeView:
        """A report as decisions would see it now."""
        view = _without_cordoned(reported, self.schedulability(reported.node))
        part = self.part(view.node)
        inside = part.gpus
        if not self.is_on or inside is None:
            return view
        return replace(
            view,
            gpus=tuple(gpu for gpu in view.gpus if gpu.uuid in inside),
            outside=tuple(gpu for gpu in view.gpus if gpu.uuid not in inside),
            # The device plugin's free GPUs may all be cordoned, and nobody says which are free.
            acquirable=min(part.acquirable, sum(gpu.uuid not in inside for gpu in view.gpus)),
        )


def _without_cordoned(view: NodeView, schedulability: Schedulability) -> NodeView:
    shut = [gpu for gpu in view.gpus if schedulability.has_cordoned(gpu.uuid, gpu.mig_parent)]
    if not shut:
        return view
    return replace(
        view,
        gpus=tuple(gpu for gpu in view.gpus if gpu not in shut),
        faults=(*view.faults, *(Fault(gpu.uuid, gpu.model) for gpu in shut)),
        faulty=(*view.faulty, *shut),
    )
