"""The order in which a search reads nodes: each policy has an index over all nodes, kept up with every change.

`GpuIndex` serves policies that rank one GPU by itself. A policy whose score depends on the pod or the node brings
its own, or the `placer.core.node_index`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from placer.core.ledger import Ledger
from placer.core.policy_context import Candidate, Request, Rooms
from placer.core.ranking import ReadCount
from plimsoll.ids import GpuUuid, NodeName


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The things that an index may read at any time.

    Attributes:
        ledger: the bookings of all pods.
        nodes: all reported nodes; a silent one has no rooms.
        reads: counts the entries that searches read.
    """

    ledger: Ledger
    nodes: Mapping[NodeName, Candidate]
    reads: ReadCount


class Index(Protocol):
    """All nodes, in an order for each pod. What always holds: a node on which a plan succeeds is found."""

    def move(self, node: NodeName, before: Rooms, after: Rooms, changed: Collection[GpuUuid]) -> None:
        """Take in that the rooms of a node changed.

        A new index is given all nodes so, with `NO_ROOMS` before. A node without rooms has no place.

        Args:
            node: the node.
            before: the rooms that the index knows.
            after: its rooms now.
            changed: the GPUs whose rooms differ; none if the node's spare CPU alone changed.
        """

    def best_first(self, request: Request) -> Iterator[tuple[float, NodeName]]:
        """The nodes that may have a place, each with a bound: no plan on it has a higher score.

        Bounds fall, and a node may come again. Equal bounds come in the falling order of names. Nothing is changed
        while somebody iterates.
        """


@dataclass(frozen=True, slots=True)
class EitherIndex:
    """Two orders of all nodes, for two sorts of pods: an `Index`.

    Attributes:
        is_first: whether this is a search in the first order.
    """

    is_first: Callable[[Request], bool]
    first: Index
    second: Index

    def move(self, node: NodeName, before: Rooms, after: Rooms, changed: Collection[GpuUuid]) -> None:
        """See `Index`."""
        for index in (self.first, self.second):
            index.move(node, before, after, changed)

    def best_first(self, request: Request) -> Iterator[tuple[float, NodeName]]:
        """See `Index`."""
        return (self.first if self.is_first(request) else self.second).best_first(request)
