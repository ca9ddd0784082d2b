"""The experiments: frequencies (Tables I–IV), time of a decision (Figure 10), and training (Figures 11, 12)."""

import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from placer.core.topology.links import LinkMatrix
from simulator.gaia.paper import CASES, EMPTY, LINKS, PaperCase
from simulator.gaia.schedulers import SCHEDULERS
from simulator.gaia.tree import WHOLE_PCT, LevelOrder, level_of

JOBS: Final = 2
"""The training jobs of Figure 11, with two GPUs each."""

BANDWIDTHS: Final[Mapping[str, float]] = MappingProxyType({"PIX": 1.0, "PXB": 0.9, "PHB": 0.8, "SOC": 0.5})
"""The bandwidth between two GPUs by level, in parts of that over one switch. An assumption: the paper has none."""

COMMUNICATION_PCT: Final = (0, 20, 40, 60, 80)
"""The parts of a training step that GPUs exchange data in, where their link is the fastest and theirs alone."""


@dataclass(frozen=True, slots=True)
class Frequencies:
    """How often a scheduler gave each set of GPUs in a case."""

    scheduler: str
    case: PaperCase
    counts: Mapping[tuple[int, ...], int]

    @property
    def is_as_published(self) -> bool:
        """Whether each set is one of the paper's; how often each of several equal ones occurs is chance."""
        return self.counts.keys() <= self.case.frequencies.keys()


def frequencies(scheduler: str, case: PaperCase, seed: int, repetitions: int) -> Frequencies:
    """Repeat a case; always the same for the same seed."""
    prepare = SCHEDULERS[scheduler]
    counts = Counter(
        prepare(LINKS, case.free_pct, case.asked_pct, random.Random(f"{seed}/{case.table}/{repetition}"))()
        for repetition in range(repetitions)
    )
    return Frequencies(scheduler, case, dict(sorted(counts.items())))


def decision_us(scheduler: str, case: PaperCase, repetitions: int) -> float:
    """The median time of a decision in microseconds, on this machine, with the node's state in memory."""
    choose = SCHEDULERS[scheduler](LINKS, case.free_pct, case.asked_pct, random.Random(0))
    spent = []
    for _ in range(repetitions):
        began_ns = time.perf_counter_ns()
        choose()
        spent.append(time.perf_counter_ns() - began_ns)
    return statistics.median(spent) / 1000


@dataclass(frozen=True, slots=True)
class Training:
    """The duration of two jobs, placed one after the other, relative to a job alone on the nearest two GPUs.

    Attributes:
        communication_pct: see `COMMUNICATION_PCT`.
        slowest, mean: of the jobs, over all draws.
    """

    scheduler: str
    communication_pct: int
    mean: float
    slowest: float


def training(scheduler: str, communication_pct: int, seed: int, draws: int) -> Training:
    """Place two jobs of two GPUs on the paper's node, as in Figure 11, and let both train."""
    durations = [
        duration
        for draw in range(draws)
        for duration in _durations(_placed(scheduler, random.Random(f"{seed}/{draw}")), communication_pct)
    ]
    return Training(scheduler, communication_pct, statistics.fmean(durations), max(durations))


def _placed(scheduler: str, chance: random.Random) -> list[tuple[int, ...]]:
    free, sets = list(EMPTY), []
    for _ in range(JOBS):
        given = SCHEDULERS[scheduler](LINKS, free, 2 * WHOLE_PCT, chance)()
        sets.append(given)
        for gpu in given:
            free[gpu] = 0
    return sets


def _durations(sets: Sequence[tuple[int, ...]], communication_pct: int) -> list[float]:
    """A job waits for its data as long as its link is slow. Jobs over the way between the sockets divide it."""
    levels = [_level(LINKS, given) for given in sets]
    part = communication_pct / 100
    return [
        (1 - part) + part / BANDWIDTHS[level] * (levels.count(level) if level == "SOC" else 1)
        for level in levels
    ]


def _level(matrix: LinkMatrix, given: Sequence[int]) -> str:
    one, other = given
    return level_of(matrix[one][other], LevelOrder.PAPER)


def all_frequencies(seed: int, repetitions: int) -> list[Frequencies]:
    """Every case under every scheduler."""
    return [frequencies(name, case, seed, repetitions) for name in SCHEDULERS for case in CASES]


def all_training(seed: int, draws: int) -> list[Training]:
    """Every part of communication under every scheduler."""
    return [training(name, part, seed, draws) for name in SCHEDULERS for part in COMMUNICATION_PCT]
