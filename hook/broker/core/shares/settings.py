"""Everything about the sharing of compute time that an operator may set."""

from dataclasses import dataclass
from typing import Final

US: Final = 1_000
MS: Final = 1_000_000
S: Final = 1_000_000_000
"""Nanoseconds."""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """How GPUs are handed over between containers.

    Attributes:
        quota_ms: how long a container keeps a token that others wait for, before anything was measured. KubeShare
            found 100 ms good with hand-overs of milliseconds; ours take a few tenths of one.
        quota_least_ms: the quota adapts itself so that handing over costs 1 % of the time; never below this, as a
            token of one kernel's length would empty every pipeline.
        quota_most_ms: never above this, as it is also how long others wait. Equal to the least: it is fixed.
        window_ms: how much of its request a container that idled may still claim, as a time: request × window. Some
            three quotas: what is claimed by one is a pause of the others.
        grace_ms: how long a container may take to end its work after it lost its token; then others go on. Longer
            than most kernels, shorter than people wait.
        relax_s: after so long with nobody else wanting its GPUs a container without a limit is not metered any more.
        run_ahead_us: work that a metered container may have queued, and so most of what a hand-over waits for.
        idle_us: for so long a container must idle before it gives its token to others: longer than the gaps between
            a program's launches, shorter than what a hand-over costs others.
        unmet_s: a container that got less than its request for so long is told of.
    """

    quota_ms: float = 30.0
    quota_least_ms: float = 10.0
    quota_most_ms: float = 160.0
    window_ms: float = 100.0
    grace_ms: float = 1000.0
    relax_s: float = 10.0
    run_ahead_us: int = 2000
    idle_us: int = 500
    unmet_s: float = 10.0
