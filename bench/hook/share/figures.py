"""The figures of a run of tenants: shares of elapsed time, errors and ripple, progress, arrival, latency.

* *Share*: the time in which the GPU executes a container's work, over elapsed time.
* *Target*: min(limit, demand), the demand measured alone and without the library in the same benchmark; for greedy
  tenants beside each other, their requests, which sum to 100.
* *Error*, or bias: share over the whole run, from the moment at which all begin, less the target. No time is left
  out for warming up.
* *Ripple*: the largest distance of any one second's share from the target.
* *Bound*: the accepted error, or the length of one launch (a kernel or a graph) if that is more, as it cannot be cut.
* *Progress*: a program's work ÷ (its work alone × min(1, due share ÷ its share alone)).
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

S: Final = 1_000_000_000
WINDOW_NS: Final = S // 10
"""Shares at an arrival are taken over this time. Over less they follow single slices of the hardware."""
STEADY_NS: Final = S
"""An arrived tenant must keep its share for this time, so that no lucky window counts."""


@dataclass(frozen=True, slots=True)
class Track:
    """Cumulative time in which a GPU executed one process's work, at ascending moments."""

    times_ns: Sequence[int]
    busy_ns: Sequence[int]

    def share_pct(self, begin_ns: int, end_ns: int) -> float:
        """Share between the samples nearest to two moments."""
        first, last = self._nearest(begin_ns), self._nearest(end_ns)
        elapsed_ns = self.times_ns[last] - self.times_ns[first]
        return 100.0 * (self.busy_ns[last] - self.busy_ns[first]) / elapsed_ns if elapsed_ns else 0.0

    def shares_pct(self, begin_ns: int, end_ns: int, each_ns: int = S) -> list[float]:
        """The share in each whole second, or in stretches of another length."""
        edges = range(begin_ns, end_ns + 1, each_ns)
        return [self.share_pct(*edge) for edge in pairwise(edges)]

    def _nearest(self, moment_ns: int) -> int:
        after = bisect_left(self.times_ns, moment_ns)
        around = [at for at in (after - 1, after) if 0 <= at < len(self.times_ns)]
        return min(around, key=lambda at: abs(self.times_ns[at] - moment_ns))


@dataclass(frozen=True, slots=True)
class JudgedShare:
    """One tenant's share against its target, in percent of the GPU."""

    target_pct: float
    share_pct: float
    seconds_pct: tuple[float, ...]

    @property
    def error_pts(self) -> float:
        """The error, positive for too much."""
        return self.share_pct - self.target_pct

    @property
    def ripple_pts(self) -> float:
        """The error of the worst second."""
        return max((abs(share - self.target_pct) for share in self.seconds_pct), default=0.0)


def judge(track: Track, target_pct: float, begin_ns: int, end_ns: int) -> JudgedShare:
    """Judge a whole run of one tenant."""
    return JudgedShare(
        target_pct, track.share_pct(begin_ns, end_ns), tuple(track.shares_pct(begin_ns, end_ns))
    )


def bound_pts(asked_pts: float, launch_ns: int, elapsed_s: float) -> float:
    """The accepted error, or one launch's length if that is more."""
    return max(asked_pts, launch_ns / elapsed_s / 1e7)


def progress_ratio(steps_per_s: float, alone_steps_per_s: float, alone_pct: float, due_pct: float) -> float:
    """The program's steps ÷ those of a program alone that runs for its due share."""
    return steps_per_s / (alone_steps_per_s * min(1.0, due_pct / alone_pct))


def met_ratio(share_pct: float, due_pct: float, demand_pct: float) -> float:
    """The program's share ÷ the smaller of its due and its demand."""
    return share_pct / min(due_pct, demand_pct)


def arrival_s(track: Track, begin_ns: int, end_ns: int, least_pct: float) -> float | None:
    """Seconds from `begin_ns` to the end of the first window of `least_pct` or more that a second like it follows.

    None if there is none.
    """
    for at_ns in track.times_ns:
        if begin_ns <= at_ns <= end_ns - STEADY_NS:
            spans = (WINDOW_NS, STEADY_NS)
            if all(track.share_pct(at_ns, at_ns + span_ns) >= least_pct for span_ns in spans):
                return (at_ns + WINDOW_NS - begin_ns) / S
    return None


def worst(errors: Iterable[float]) -> float:
    """The value farthest from zero, with its sign."""
    return max(errors, key=abs)


def parts_of(total: int, count: int) -> list[int]:
    """Whole numbers that sum to a total and differ by one at most."""
    return [total // count + (number < total % count) for number in range(count)]
