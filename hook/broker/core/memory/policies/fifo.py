"""First in, first out: the oldest container."""

from collections.abc import Sequence

from hook.broker.core.memory.policies.policy import WaitingRequest


class Fifo:
    """The oldest container among those that wait (ConVGPU III.D), and its oldest request.

    No container starves: younger containers that hold nothing yet do not pass older ones.
    """

    def choose(self, waiting: Sequence[WaitingRequest], free_bytes: int) -> WaitingRequest:  # noqa: ARG002 - a policy
        """See `WaitPolicy`."""
        return min(waiting, key=lambda one: (one.enrolled, one.asked))
