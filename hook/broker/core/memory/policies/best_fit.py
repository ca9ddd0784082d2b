"""Best fit: whoever fills what is free best."""

from collections.abc import Sequence

from hook.broker.core.memory.policies.policy import Waiting


class BestFit:
    """The container whose insufficient memory comes closest to what is free without exceeding it (ConVGPU III.D).

    If there is none, the one that lacks least. Those who can go on now come before all others, as "free" must
    be safe to take here. A large one may starve; the paper says the same of its own.
    """

    def choose(self, waiting: Sequence[Waiting], free_bytes: int) -> Waiting:
        """See `WaitPolicy`."""
        able = [one for one in waiting if one.can_go_on] or waiting
        fitting = [one for one in able if one.missing_bytes <= free_bytes]
        if fitting:
            return min(fitting, key=lambda one: (-one.missing_bytes, one.asked))
        return min(able, key=lambda one: (one.missing_bytes, one.asked))
