"""Replays of one trace: several policies, several seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Final

from placer.core.policies import POLICIES, Policy, policy_named
from simulator.trace.baselines import BestFit, RandomPlace
from simulator.trace.lists import Trace
from simulator.trace.replay import TraceReplay, replay

BASELINES: Final[dict[str, Callable[[int], Policy]]] = {
    "random": RandomPlace,
    "bestfit": lambda _: BestFit(),
}
"""The policies that only replays have, by seed."""

OFFERED: Final = (*sorted(BASELINES), *sorted(POLICIES), "fragmentation", "plimsoll")
"""The policies that the help names; those of other packages may be named too."""


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """The replays of one policy, one for each seed."""

    policy: str
    replays: tuple[TraceReplay, ...]

    def unallocated_pct(self, pct: int) -> float:
        """The mean part of all GPUs without a pod when this many percent were asked for; NaN if none reached that."""
        found = self._at(pct)
        return fmean(found) if found else float("nan")

    def spread_pct(self, pct: int) -> float:
        """The standard deviation over the seeds."""
        found = self._at(pct)
        return pstdev(found) if found else float("nan")

    def _at(self, pct: int) -> list[float]:
        """The percentages of GPUs without a pod, for each replay that went this far.

        A pod that is large for the cluster leaps over percentages: there the state before that pod counts, and before
        the first pod all GPUs are without one.
        """
        found = []
        for one in self.replays:
            if pct <= max(one.points, default=0):
                last = max((reached for reached in one.points if reached <= pct), default=None)
                found.append(100.0 if last is None else one.points[last].unallocated_pct)
        return found

    @property
    def failed(self) -> float:
        """The mean number of pods without a place at the end."""
        return fmean(one.failed for one in self.replays)

    @property
    def moves(self) -> float:
        """The mean number of moves."""
        return fmean(one.moves for one in self.replays)

    @property
    def decision_ms(self) -> float:
        """The mean time of a decision."""
        return fmean(one.decision_ms for one in self.replays)


def policy_for(name: str, seed: int) -> Policy:
    """The policy of that name.

    Raises:
        InputError: there is none.
    """
    made = BASELINES.get(name)
    return made(seed) if made is not None else policy_named(name, "--policy")


def replay_all(
    trace: Trace,
    policies: Sequence[str],
    seeds: Sequence[int],
    arrived: float,
    note: Callable[[str, int, int], None] = lambda *_: None,
    most_moves: int = 0,
) -> list[PolicySummary]:
    """Replay a trace by each policy with each seed.

    Args:
        trace: the nodes and pods.
        policies: their names.
        seeds: the seeds of the draws.
        arrived: the GPU that all pods ask for, in relation to the cluster's.
        note: is given policy, seed and percentage of arrival, each time that this rises.
        most_moves: see `replay`.

    Raises:
        InputError: there is no such policy.
    """
    for name in policies:
        policy_for(name, 0)  # all names are checked before the first replay
    summaries = []
    for name in policies:
        replays = [
            replay(trace, policy_for(name, seed), seed, arrived, _noting(note, name, seed), most_moves)
            for seed in seeds
        ]
        summaries.append(PolicySummary(replays[0].policy if most_moves else name, tuple(replays)))
    return summaries


def _noting(note: Callable[[str, int, int], None], name: str, seed: int) -> Callable[[int], None]:
    return lambda pct: note(name, seed, pct)
