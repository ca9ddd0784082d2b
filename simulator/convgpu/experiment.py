"""The whole experiment: every count and policy over many draws, compared with the paper's figures."""

import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, cast

from hook.broker.core.memory.arbiter import MemoryArbiter
from hook.broker.core.memory.policies import WaitPolicyName, wait_policy
from plimsoll.quantity import MIB
from simulator.convgpu import paper
from simulator.convgpu.workload import DURATIONS, MEMORY_MIB, USABLE_BYTES, draw
from simulator.core.at_creation import AtCreation, choices
from simulator.core.on_demand import OnDemand
from simulator.core.replay import Giver, WorkloadReplay, replay

HEAVY: Final = 18
"""The number of containers from which on the policies differ, by the paper (§IV.C)."""

LARGEST_BYTES: Final = max(MEMORY_MIB.values()) * MIB

GiverFor = Callable[[str, int, int], Giver]
"""Makes a fresh giver for a policy, the card's usable bytes, and a seed for random choices."""


def at_creation(policy: str, usable_bytes: int, seed: int) -> Giver:
    """A giver by ConVGPU's own rule."""
    return AtCreation(usable_bytes, choices(random.Random(seed).randrange)[policy])


def on_demand(policy: str, usable_bytes: int, seed: int) -> Giver:
    """A giver by Plimsoll's rule: the broker's own core."""
    chosen = wait_policy(cast("WaitPolicyName", policy), str(seed).encode())
    return OnDemand(usable_bytes, MemoryArbiter(chosen))


RULES: Final[Mapping[str, GiverFor]] = MappingProxyType({"plimsoll": on_demand, "convgpu": at_creation})


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The replays to make.

    Attributes:
        counts: numbers of containers.
        policies: the policies, by our names.
        seeds: each seed is a draw per count, the same under every policy and rule.
        durations: a key of `workload.DURATIONS`.
        usable_bytes: the card's memory.
        context_bytes: bytes that each program asks for first and separately; 0 for none.
    """

    counts: tuple[int, ...] = paper.COUNTS
    policies: tuple[str, ...] = paper.POLICIES
    seeds: tuple[int, ...] = tuple(range(100))
    durations: str = "by-type"
    usable_bytes: int = USABLE_BYTES
    context_bytes: int = 0

    def cells(self) -> list[tuple[str, int]]:
        """Every pair of policy and count."""
        return [(policy, count) for count in self.counts for policy in self.policies]


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of a count under a policy.

    Attributes:
        finished_s, suspended_s: a figure per draw, in seconds. Empty if a container never ran in any draw, because
            the other draws would be the easier ones.
        stuck_ratio: the part of draws in which a container never ran, 0 to 1.
    """

    policy: str
    count: int
    finished_s: tuple[float, ...]
    suspended_s: tuple[float, ...]
    stuck_ratio: float

    @property
    def paper_finished_s(self) -> float | None:
        """The figure of Table IV; None for a count that the paper lacks."""
        return paper.FINISHED_S[self.policy].get(self.count)

    @property
    def paper_suspended_s(self) -> float | None:
        """The figure of Table V; None for a count that the paper lacks."""
        return paper.SUSPENDED_S[self.policy].get(self.count)


def run_cell(rule: GiverFor, plan: ReplayPlan, policy: str, count: int) -> Cell:
    """Replay every draw of a count under a policy."""
    replays = tuple(run_draw(rule, policy, count, seed, plan) for seed in plan.seeds)
    stuck_count = sum(bool(each.stuck or each.refused) for each in replays)
    counted = () if stuck_count else replays
    return Cell(
        policy,
        count,
        tuple(each.finished_s for each in counted),
        tuple(each.suspended_s for each in counted),
        stuck_count / len(replays),
    )


def run_draw(rule: GiverFor, policy: str, count: int, seed: int, plan: ReplayPlan) -> WorkloadReplay:
    """Replay a draw under a policy."""
    containers = draw(count, seed, DURATIONS[plan.durations], plan.context_bytes)
    return replay(containers, rule(policy, plan.usable_bytes, seed))


def run(rule: GiverFor, plan: ReplayPlan) -> list[Cell]:
    """Replay all pairs of policy and count under a rule."""
    return [run_cell(rule, plan, policy, count) for policy, count in plan.cells()]


@dataclass(frozen=True, slots=True)
class DrawFigures:
    """Figures over draws, in seconds; `paper_pct` is the percentage of draws at or below the paper's figure."""

    mean: float
    deviation: float
    paper: float | None
    paper_pct: float | None

    @property
    def ratio(self) -> float | None:
        """Our mean ÷ the paper's figure."""
        return self.mean / self.paper if self.paper else None

    @property
    def has_paper_inside(self) -> bool:
        """Whether the paper's figure lies within the middle 90 % of our draws."""
        return self.paper_pct is not None and 5 <= self.paper_pct <= 95

    def as_json(self) -> dict[str, Any]:
        """The figures for the line of JSON."""
        found = {"mean": self.mean, "sd": self.deviation, "paper": self.paper, "ratio": self.ratio}
        return {name: None if value is None else round(value, 2) for name, value in found.items()} | {
            "paper_pct": None if self.paper_pct is None else round(self.paper_pct)
        }


def draw_figures(figures: Sequence[float], papers: float | None) -> DrawFigures | None:
    """The mean and standard deviation; None where there is no figure."""
    if not figures:
        return None
    below = sum(figure <= papers for figure in figures) if papers is not None else None
    return DrawFigures(
        statistics.fmean(figures),
        statistics.pstdev(figures),
        papers,
        None if below is None else 100 * below / len(figures),
    )


def level(cells: Iterable[Cell], policy: str) -> tuple[float, float] | None:
    """Finished and suspended time ÷ the paper's, each summed over the counts; None if a count has no figure."""
    own = [cell for cell in cells if cell.policy == policy and cell.paper_finished_s]
    if not own or not all(cell.finished_s for cell in own):
        return None
    finished = sum(statistics.fmean(cell.finished_s) for cell in own)
    suspended = sum(statistics.fmean(cell.suspended_s) for cell in own)
    return (
        round(finished / sum(cell.paper_finished_s or 0.0 for cell in own), 3),
        round(suspended / sum(cell.paper_suspended_s or 0.0 for cell in own), 3),
    )


def against_fifo(cells: Sequence[Cell], policy: str) -> dict[str, float] | None:
    """The difference of a policy from fifo on the same draws, over counts of `HEAVY` and more.

    Returns:
        `finished_s`, the mean difference in seconds (below 0: done earlier), and `suspended_ratio`, 1 for no
        difference; None where a cell has no figure.
    """
    own, other = _heavy(cells, policy), _heavy(cells, "fifo")
    if not all(cell.finished_s for cell in (*own, *other)):
        return None
    return _against(
        [statistics.fmean(cell.finished_s) for cell in own],
        [statistics.fmean(cell.finished_s) for cell in other],
        [statistics.fmean(cell.suspended_s) for cell in own],
        [statistics.fmean(cell.suspended_s) for cell in other],
    )


def paper_against_fifo(policy: str) -> dict[str, float]:
    """The same difference in the paper's tables."""
    counts = [count for count in paper.COUNTS if count >= HEAVY]
    finished, suspended = paper.FINISHED_S, paper.SUSPENDED_S
    return _against(
        [finished[policy][count] for count in counts],
        [finished["fifo"][count] for count in counts],
        [suspended[policy][count] for count in counts],
        [suspended["fifo"][count] for count in counts],
    )


def _heavy(cells: Sequence[Cell], policy: str) -> list[Cell]:
    return [cell for cell in cells if cell.policy == policy and cell.count >= HEAVY]


def _against(
    finished: list[float], fifo_finished: list[float], suspended: list[float], fifo_suspended: list[float]
) -> dict[str, float]:
    return {
        "finished_s": round(statistics.fmean(finished) - statistics.fmean(fifo_finished), 1),
        "suspended_ratio": round(sum(suspended) / sum(fifo_suspended), 2),
    }
