"""What a wait policy sees of those who wait, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NewType, Protocol

from hook.broker.core.ids import ContainerKey
from plimsoll.ids import GpuUuid

Ticket = NewType("Ticket", int)
"""One wait of one thread; the caller's own number, never used twice."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One that waits for memory of one GPU.

    Attributes:
        requested_bytes: what it asks for.
        missing_bytes: what its container lacks of its line (ConVGPU's "insufficient memory").
        enrolled: the container's place in the order in which containers came; lower is older.
        asked: its own place in the order in which waits began; lower is older.
        can_go_on: there is memory for its request, and granting it is safe.
    """

    ticket: Ticket
    container: ContainerKey
    gpu: GpuUuid
    requested_bytes: int
    missing_bytes: int
    enrolled: int
    asked: int
    can_go_on: bool


class WaitPolicy(Protocol):
    """Who is next when memory is there: ConVGPU (Kang et al., CLUSTER 2017), section III.D.

    What all of them deviate in: ConVGPU assigns what is free to the one chosen even where that is too little for it
    to go on, and guarantees it for good; two containers that each got a part may then wait for each other for ever.
    Here the one chosen is next, what is given back is kept for it, and only those pass it who hold
    memory already, as it is they whom it waits for. It goes on with what it asked for, once that is safe.
    """

    def choose(self, waiting: Sequence[Waiting], free_bytes: int) -> Waiting:
        """The next one; the same one again for the same arguments.

        Args:
            waiting: on one GPU, at least one, in the order in which they began to wait.
            free_bytes: what nobody holds of that GPU.
        """
        ...
