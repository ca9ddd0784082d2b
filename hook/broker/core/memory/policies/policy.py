"""The interface of wait policies: the waits that a policy sees, and the choice that it makes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from hook.broker.core.ids import ContainerKey
from plimsoll.ids import GpuUuid

WaitTicket = NewType("WaitTicket", int)
"""The number of one wait of one thread. The caller chooses it and uses no number twice."""


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A request that waits for memory of one GPU.

    Attributes:
        requested_bytes: the size of the request.
        missing_bytes: the container's line less what it holds (ConVGPU's "insufficient memory").
        enrolled: the container's place in the order in which containers were registered; lower is older.
        asked: the request's place in the order in which waits began; lower is older.
        can_go_on: there is memory for the request, and granting it is safe.
    """

    ticket: WaitTicket
    container: ContainerKey
    gpu: GpuUuid
    requested_bytes: int
    missing_bytes: int
    enrolled: int
    asked: int
    can_go_on: bool


class WaitPolicy(Protocol):
    """Chooses the next request when memory is free: ConVGPU (Kang et al., CLUSTER 2017), section III.D.

    All policies deviate from ConVGPU in one point. ConVGPU assigns free memory to the chosen container even where
    that is too little to go on, and guarantees it for good. Two containers that each got a part may then wait for
    each other for ever. Here the chosen request is next, and memory that is given back is kept for it. Only requests
    of containers that hold memory already may pass it, because the chosen request waits for their end. It goes on
    with all that it asked for, once that is safe.
    """

    def choose(self, waiting: Sequence[WaitingRequest], free_bytes: int) -> WaitingRequest:
        """The next request; the same one again for the same arguments.

        Args:
            waiting: the requests on one GPU, at least one, in the order in which the waits began.
            free_bytes: memory of that GPU that no container holds.
        """
        ...
