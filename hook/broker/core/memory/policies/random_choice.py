"""Random: by lot."""

from collections.abc import Sequence
from hashlib import blake2b

from hook.broker.core.memory.policies.policy import Ticket, Waiting


class RandomChoice:
    """A random one among those paused (ConVGPU III.D).

    Each wait draws one lot for its whole length, and the lowest is next. ConVGPU draws anew whenever memory is
    given back; but here the core looks more often than that, and with a new draw at each look, whoever
    happens to fit would always be drawn in the end.

    Attributes:
        seed: other seeds give other lots; the same seed and tickets give the same ones.
    """

    def __init__(self, seed: bytes) -> None:
        """Args: seed: at most 64 bytes."""
        self.seed = seed

    def choose(self, waiting: Sequence[Waiting], free_bytes: int) -> Waiting:  # noqa: ARG002 - a policy
        """See `WaitPolicy`."""
        return min(waiting, key=lambda one: self._lot(one.ticket))

    def _lot(self, ticket: Ticket) -> bytes:
        return blake2b(str(ticket).encode(), digest_size=8, key=self.seed).digest()
