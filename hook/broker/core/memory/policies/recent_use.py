"""Recent use: the request that began to wait last."""

from collections.abc import Sequence

from hook.broker.core.memory.policies.policy import WaitingRequest


class RecentUse:
    """The most recently suspended (ConVGPU III.D). Old requests starve while new ones keep coming."""

    def choose(self, waiting: Sequence[WaitingRequest], free_bytes: int) -> WaitingRequest:  # noqa: ARG002 - a policy
        """See `WaitPolicy`."""
        return max(waiting, key=lambda one: one.asked)
