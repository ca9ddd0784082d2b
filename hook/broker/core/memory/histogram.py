"""How long finished waits for memory took, as a histogram per container."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

WAIT_BUCKETS_S: Final = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0)
"""Upper bounds in seconds: from "a user noticed the wait" over "a job ended" to "a night"."""


@dataclass(slots=True)
class WaitTimes:
    """The durations of one container's finished waits.

    Attributes:
        sum_s: all durations together, in seconds.
        counts: finished waits per bucket of `WAIT_BUCKETS_S`. The last entry counts the longer ones.
    """

    sum_s: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS_S) + 1))

    def add(self, waited_s: float) -> None:
        """Count one more finished wait of `waited_s` seconds."""
        self.sum_s += waited_s
        self.counts[bisect_left(WAIT_BUCKETS_S, waited_s)] += 1
