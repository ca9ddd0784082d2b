"""The things that a policy reads: the pod to place, a node with the room of its GPUs, and the choices made so far."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, TypeAlias

from placer.core.booking import Grant
from placer.core.ledger import Ledger
from placer.core.room import Room
from placer.core.view import NodeView
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import GpuUuid, NodeName, PodUid

Rooms: TypeAlias = Mapping[GpuUuid, Room]

NO_ROOMS: Final[Rooms] = {}


@dataclass(frozen=True, slots=True)
class Request:
    """A pod to place.

    Attributes:
        pod: its uid.
        demand: the demand of its containers.
        owner: the owner as in `placer.core.booking.Booking`.
        cpu_milli: the CPU that it requests of its node, in thousandths. Policies read it; whether the node has it is
            the front end's check.
    """

    pod: PodUid
    demand: PodDemand
    owner: str | None = None
    cpu_milli: int = 0


@dataclass(frozen=True, slots=True)
class AssignedGpu:
    """A GPU for a container.

    Attributes:
        demand: the container's demand on this GPU, in bytes.
        grant: the part of the GPU that it is given.
        room: the room on the GPU before that.
    """

    demand: ContainerDemand
    grant: Grant
    room: Room


@dataclass(frozen=True, slots=True)
class Context:
    """A node on which a pod may be placed.

    Attributes:
        request: the pod.
        node: the node as last reported.
        rooms: the room on each GPU that the pod may use, before the pod.
        ledger: the bookings of all pods; not changed. It knows the node's spare CPU too.
        chosen: the GPUs that containers of the pod have been given so far.
    """

    request: Request
    node: NodeView
    rooms: Rooms
    ledger: Ledger
    chosen: tuple[AssignedGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may have a place.

    Attributes:
        node: the node as last reported, with a GPU that fits the pod's hardest container.
        rooms: the room of each of its GPUs.
        score_bound: no plan on this node has a higher score.
    """

    node: NodeView
    rooms: Rooms
    score_bound: float

    @classmethod
    def without_report(cls, node: NodeName) -> "Candidate":
        """A node that has not reported, and has no GPU that could be used."""
        return cls(NodeView(node, (0, 0), ()), NO_ROOMS, inf)
