"""The steps of the pool's controller: each is one write of one reservation pod.

What always holds: a step names the version of the pod that it was planned for, and fails over any other. So a step
that comes late, or from a second controller, changes nothing that it did not see.
"""

from dataclasses import dataclass

from plimsoll.ids import GpuUuid, NodeName
from plimsoll.pool import Reservation


@dataclass(frozen=True, slots=True)
class Reserve:
    """Make a reservation under this name: a GPU of the node is to join the pool."""

    node: NodeName
    name: str


@dataclass(frozen=True, slots=True)
class Learn:
    """Write the GPU's UUID on its reservation: the GPU joins, in place of another one that the pod named before."""

    reservation: Reservation
    gpu: GpuUuid


@dataclass(frozen=True, slots=True)
class Give:
    """Ask the placer to stop using an idle GPU."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Keep:
    """Take a request for release back: the GPU is needed."""

    reservation: Reservation


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete a reservation.

    Attributes:
        why: why it is of no use; empty for a release.
        released: its GPU goes back to the device plugin, as the placer granted.
    """

    reservation: Reservation
    why: str
    released: bool = False


Step = Reserve | Learn | Give | Keep | Drop
