"""The GPUs that decisions may use: all of a node, or those in the pool (KubeShare, HPDC 2020, §4.4).

What always holds: while the pool is off, each node is seen as it reported. While it is on, a node's GPUs are unseen
until the node's part of the pool is known, so no GPU is used that NVIDIA's device plugin might hand to somebody else.
Pure.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from placer.core.view import NodeView
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
    """

    def __init__(self) -> None:
        self.is_on = False
        self._parts: dict[NodeName, PoolPart] = {}
        self._seen: dict[NodeName, tuple[NodeView, NodeView]] = {}  # as reported, as seen
        self._listeners: list[Callable[[NodeName], None]] = []

    def on_change(self, listener: Callable[[NodeName], None]) -> None:
        """Call `listener` with each node whose part changed; it must not block, raise, or change the pool."""
        self._listeners.append(listener)

    def part(self, node: NodeName) -> PoolPart:
        """A node's part of the pool."""
        return self._parts.get(node, UNKNOWN)

    def put(self, node: NodeName, part: PoolPart) -> bool:
        """Take a node's part; returns whether it differs from the one before."""
        if self.part(node) == part:
            return False
        self._parts[node] = part
        self._seen.pop(node, None)
        for listener in self._listeners:
            listener(node)
        return True

    def forget(self, node: NodeName) -> None:
        """Forget a node that left the cluster."""
        self.put(node, UNKNOWN)
        self._parts.pop(node, None)

    def seen(self, reported: NodeView | None) -> NodeView | None:
        """A node as decisions see it: the same object until its report, or its part of the pool, changes."""
        if reported is None or not self.is_on:
            return reported
        known = self._seen.get(reported.node)
        if known is None or known[0] is not reported:
            known = self._seen[reported.node] = reported, self.split(reported)
        return known[1]

    def split(self, reported: NodeView) -> NodeView:
        """A report as decisions would see it now."""
        part = self.part(reported.node)
        inside = part.gpus
        if not self.is_on or inside is None:
            return reported
        return replace(
            reported,
            gpus=tuple(gpu for gpu in reported.gpus if gpu.uuid in inside),
            outside=tuple(gpu for gpu in reported.gpus if gpu.uuid not in inside),
            acquirable=part.acquirable,
        )
