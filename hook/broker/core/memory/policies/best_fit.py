"""Best fit: the container that fills the free memory best."""

from collections.abc import Sequence

from hook.broker.core.memory.policies.policy import WaitingRequest


class BestFit:
    """The container whose insufficient memory comes closest to what is free without exceeding it (ConVGPU III.D).

    If there is none, the container that lacks least. Requests that can go on now come before all others, because free
    memory must also be safe to take here. A large container may starve, as the paper says of its own policy.
    """

    def choose(self, waiting: Sequence[WaitingRequest], free_bytes: int) -> WaitingRequest:
        """See `WaitPolicy`."""
        able = [each for each in waiting if each.can_go_on] or waiting
        fitting = [each for each in able if each.missing_bytes <= free_bytes]
        if fitting:
            return min(fitting, key=lambda each: (-each.missing_bytes, each.asked))
        return min(able, key=lambda each: (each.missing_bytes, each.asked))
