"""The plan of a run: which fault begins when, for how long. A function of seed and seconds alone."""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Step:
    """A fault in the plan.

    Attributes:
        at_s: its beginning, in seconds from the start of the chaos.
        fault: its name, one of `FAULTS`.
        which: chooses the placer or node, modulo their number.
        for_s: its duration, in seconds.
    """

    at_s: float
    fault: str
    which: int
    for_s: float


FAULTS: Final[dict[str, tuple[float, float]]] = {
    "kill placer": (0.1, 4),
    "terminate placer": (0.1, 3),
    "pause placer": (0.5, 25),
    "kill valkey": (0.1, 6),
    "pause valkey": (0.5, 8),
    "kill nats": (0.1, 6),
    "pause nats": (0.5, 8),
    "kill api server": (0.1, 3),
    "pause api server": (0.5, 8),
    "compact etcd": (0.1, 1),
    "cut watches": (0.1, 0.5),
    "stall watches": (0.5, 12),
    "lag watches": (2, 15),
    "410": (0.5, 4),
    "slow": (2, 10),
    "refuse": (2, 8),
    "forbid binds": (1, 5),
    "lose answers": (2, 10),
    "late writes": (2, 10),
    "cut off": (1, 15),
    "cut off leases": (4, 20),
    "delete node": (0.5, 10),
    "cordon node": (1, 15),
    "label node": (1, 15),
    "taint node": (1, 10),
    "silent monitor": (3, 20),
    "restart monitor": (0.5, 3),
    "late report": (0.1, 0.2),
}
"""The shortest and the longest time, in seconds, that each fault lasts."""

EVERY_S: Final = 2.0
"""The mean time between two faults; several are under way together."""


def draw_plan(seed: int, seconds: float, among: Collection[str] = FAULTS) -> tuple[Step, ...]:
    """The plan of a run: each fault comes once before any comes again, in an order by seed."""
    rng = random.Random(f"{seed}/plan")
    steps: list[Step] = []
    at_s, bag = 1.0, _bag(rng, among)
    # A short run has all faults too: they come faster, and are shorter, so that no more are under way together.
    pace = min(1.0, (seconds - 4) / (len(among) * EVERY_S))
    while at_s < seconds - 1:
        if not bag:
            bag = _bag(rng, among)
        fault = bag.pop()
        least, most = FAULTS[fault]
        for_s = min(rng.uniform(least, max(least, most * pace)), seconds - at_s)
        steps.append(Step(round(at_s, 2), fault, rng.randrange(1000), round(for_s, 2)))
        at_s += rng.uniform(0.5, 1.5) * EVERY_S * pace
    return tuple(steps)


def kinds(steps: Sequence[Step]) -> set[str]:
    """The faults that a plan has."""
    return {step.fault for step in steps}


def _bag(rng: random.Random, among: Collection[str]) -> list[str]:
    bag = sorted(among)
    rng.shuffle(bag)
    return bag
