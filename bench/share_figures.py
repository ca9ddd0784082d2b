"""What a run of tenants comes to: shares of elapsed time, their errors and their ripple.

* *Share*: time with unfinished work over elapsed time.
* *Target*: min(limit, demand), the demand measured alone and without the library in the same benchmark; of greedy
  tenants beside each other, their requests, which come to 100.
* *Error*, or bias: share over the whole run, from the moment at which all begin, less the target. Nothing is left
  out as warming up.
* *Ripple*: the largest distance of any one second's share from the target.
* *Bound*: what is asked for; the length of one launch, a kernel or a graph, where that is more, as it cannot be cut.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Track:
    """Cumulative times of one process, each as of one moment; moments ascend."""

    times_ns: Sequence[int]
    unfinished_ns: Sequence[int]
    busy_ns: Sequence[int]

    def share_pct(self, begin_ns: int, end_ns: int) -> float:
        """Share between the samples nearest to two moments."""
        return self._pct(self.unfinished_ns, begin_ns, end_ns)

    def work_pct(self, begin_ns: int, end_ns: int) -> float:
        """Work done between these samples, in percent of what the GPU can do."""
        return self._pct(self.busy_ns, begin_ns, end_ns)

    def shares_pct(self, begin_ns: int, end_ns: int, each_ns: int = 1_000_000_000) -> list[float]:
        """Share of each whole second, or other stretch."""
        edges = range(begin_ns, end_ns + 1, each_ns)
        return [self.share_pct(*edge) for edge in pairwise(edges)]

    def _pct(self, values: Sequence[int], begin_ns: int, end_ns: int) -> float:
        first, last = self._nearest(begin_ns), self._nearest(end_ns)
        elapsed_ns = self.times_ns[last] - self.times_ns[first]
        return 100.0 * (values[last] - values[first]) / elapsed_ns if elapsed_ns else 0.0

    def _nearest(self, moment_ns: int) -> int:
        after = bisect_left(self.times_ns, moment_ns)
        around = [at for at in (after - 1, after) if 0 <= at < len(self.times_ns)]
        return min(around, key=lambda at: abs(self.times_ns[at] - moment_ns))


@dataclass(frozen=True, slots=True)
class Judged:
    """One tenant's share against its target, in percent of the GPU."""

    target_pct: float
    share_pct: float
    work_pct: float
    seconds_pct: tuple[float, ...]

    @property
    def error_pts(self) -> float:
        """Positive for too much."""
        return self.share_pct - self.target_pct

    @property
    def ripple_pts(self) -> float:
        """Of the worst second."""
        return max((abs(share - self.target_pct) for share in self.seconds_pct), default=0.0)


def judge(track: Track, target_pct: float, begin_ns: int, end_ns: int) -> Judged:
    """A whole run of one tenant."""
    return Judged(
        target_pct,
        track.share_pct(begin_ns, end_ns),
        track.work_pct(begin_ns, end_ns),
        tuple(track.shares_pct(begin_ns, end_ns)),
    )


def bound_pts(asked_pts: float, launch_ns: int, elapsed_s: float) -> float:
    """What is asked for, or one launch's length."""
    return max(asked_pts, launch_ns / elapsed_s / 1e7)


def percentile(values: Sequence[float], pct: float) -> float:
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * pct / 100))]


def worst(errors: Iterable[float]) -> float:
    """The one farthest from zero, with its sign."""
    return max(errors, key=abs)
