"""Made-up tracks."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from bench.hook.share.figures import Track

MS: Final = 1_000_000
S: Final = 1000 * MS


def track_of(seconds_pct: Sequence[float]) -> Track:
    """A track with a reading at each whole second from 0, and these shares between the readings."""
    times = tuple(second * S for second in range(len(seconds_pct) + 1))
    busy = tuple(int(ns) for ns in accumulate((pct * S / 100 for pct in seconds_pct), initial=0))
    return Track(times, busy)
