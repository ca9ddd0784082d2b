"""The things that a relocation consists of: evictable pods, spots, moves, and the plan that joins them."""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from placer.core.booking import Booking
from plimsoll.ids import GpuUuid, NodeName, PodUid

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Work in steps, with a result. It takes one step, at most one trial, whenever it is asked for the next."""


class Spot(NamedTuple):
    """A node for a trial, and the only GPU that the pod may have there; None: any GPUs of the node."""

    node: NodeName
    gpu: GpuUuid | None


@dataclass(frozen=True, slots=True)
class EvictablePod:
    """A pod that may be moved: evicted, so that its controller makes it anew.

    Attributes:
        pod: its uid.
        node: the node where it runs.
        gpus: the GPUs that it has there.
        cost: stated by its owner; 0 or more.
        name: its namespace and name, for people; empty where nobody reads it.
    """

    pod: PodUid
    node: NodeName
    gpus: frozenset[GpuUuid]
    cost: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """A pod that is evicted, and the place that is kept for its replacement."""

    evicted: EvictablePod
    to: Booking


@dataclass(frozen=True, slots=True)
class Relocation:
    """A plan after which the waiting pod and all moved pods have a place.

    Attributes:
        place: the place of the waiting pod.
        moves: at most as many as were asked for; none if the pod has a place without any.
        traffic_pct: the measure of memory bandwidth, see `placer.core.relocation.search`; the lower, the better.
    """

    place: Booking
    moves: tuple[Move, ...]
    traffic_pct: float = 0.0

    @property
    def cost(self) -> float:
        """The costs of all moved pods together."""
        return sum(one.evicted.cost for one in self.moves)


class Snapshot(Protocol):
    """The pods and nodes that a search reads, of which some pods are supposed to be gone, and others to be there.

    It must not change during a search.
    """

    def spots(self, pod: PodUid) -> Sequence[Spot]:
        """The spots where this pod may fit as it is now, each once; of equals, the first is taken."""

    def hosts(self, pod: PodUid) -> Sequence[Spot]:
        """The spots where this pod may fit once pods leave, likewise."""

    def evictable(self, pod: PodUid, spot: Spot) -> Sequence[EvictablePod]:
        """The pods that may be moved, and whose leaving may help this pod at this spot; those of low cost first."""

    def place(
        self, pod: PodUid, spot: Spot, gone: Collection[PodUid], there: Collection[Booking]
    ) -> Booking | None:
        """The pod's place at a spot, or None if it does not fit there.

        Args:
            pod: the waiting pod, or a pod that moves.
            spot: the spot.
            gone: pods of this node that have left.
            there: places on this node that were given to others.
        """

    def traffic_pct(self, node: NodeName, gpu: GpuUuid) -> float:
        """The memory bandwidth that a GPU's pods use, 0 to 100; 0 where none is measured."""
