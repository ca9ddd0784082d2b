"""A booked pod on GPUs of one node."""

from placer.core.booking import Booking, grant_of
from plimsoll.demand import ContainerDemand
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB

N1 = NodeName("n1")


def booking(pod: str, *demands: ContainerDemand, gpus: tuple[str, ...] = ("A",)) -> Booking:
    """A pod on n1 whose containers each have these GPUs."""
    grants = tuple(grant_of(demand, GpuUuid(uuid), 24 * GIB) for demand in demands for uuid in gpus)
    return Booking(PodUid(pod), N1, grants)
