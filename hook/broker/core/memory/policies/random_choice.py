"""Random: the container that draws the lowest lot."""

from collections.abc import Sequence
from hashlib import blake2b

from hook.broker.core.memory.policies.policy import WaitingRequest, WaitTicket


class RandomChoice:
    """A random request among those that wait (ConVGPU III.D).

    Each wait draws a single lot, and the lowest lot is next. ConVGPU draws anew whenever memory is given back. The
    broker chooses more often than that: with a new draw at each choice, a request that happens to fit would always
    be drawn in the end.

    Attributes:
        seed: the same seed and tickets give the same lots; other seeds give others.
    """

    def __init__(self, seed: bytes) -> None:
        """Args: seed: at most 64 bytes."""
        self.seed = seed

    def choose(self, waiting: Sequence[WaitingRequest], free_bytes: int) -> WaitingRequest:  # noqa: ARG002 - a policy
        """See `WaitPolicy`."""
        return min(waiting, key=lambda one: self._lot(one.ticket))

    def _lot(self, ticket: WaitTicket) -> bytes:
        return blake2b(str(ticket).encode(), digest_size=8, key=self.seed).digest()
