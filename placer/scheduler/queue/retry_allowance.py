"""The time that retries and the probes of parked pods may take while fresh pods wait.

What always holds: while fresh pods wait, retries and probes take `RETRIES_SHARE` of the time in the long run. So a
new pod never waits for pods that fit nowhere, and these are not forgotten either. Pure.
"""

from typing import Final

RETRIES_SHARE: Final = 0.2
"""The share of the time that retries and probes get while fresh pods wait."""
LARGEST_DEBT_S: Final = 1.0
"""A retry or a probe that took longer, because the process stood still, counts as this."""
ALLOWANCE_S: Final = 0.05
"""The time that retries and probes may take in one piece while a fresh pod waits."""


class RetryAllowance:
    """The allowance of one queue. `charge` it before each work is taken, and `begin` the work that was taken."""

    def __init__(self) -> None:
        self._left_s = ALLOWANCE_S
        self._was_fresh: bool | None = None  # the lane of the work under way
        self._since_s = 0.0

    @property
    def is_left(self) -> bool:
        """Whether a retry or a probe may go before fresh pods now."""
        return self._left_s > 0

    def refill(self) -> None:
        """Note that no fresh pod waits, so that retries and probes take no time from any."""
        self._left_s = ALLOWANCE_S

    def begin(self, *, is_fresh: bool) -> None:
        """Note which work begins: the try of a fresh pod, or a retry or probe."""
        self._was_fresh = is_fresh

    def charge(self, now_s: float) -> None:
        """Settle the time of the work that was taken last."""
        spent_s = now_s - self._since_s
        if self._was_fresh:
            self._left_s = min(ALLOWANCE_S, self._left_s + spent_s * RETRIES_SHARE / (1 - RETRIES_SHARE))
        elif self._was_fresh is not None:
            self._left_s = max(-LARGEST_DEBT_S, self._left_s - spent_s)
        self._was_fresh, self._since_s = None, now_s
