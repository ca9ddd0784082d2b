"""Programs whose launches depend on each other, on locks and on host functions progress as fast as shares allow."""

import pytest

from tests.hook.broker.core.shares.model import Container, Program, Simulation
from tests.hook.broker.core.shares.programs import collective, greedy, light, locked, persistent, two_streams
from tests.slow import quick_and_slow

PROGRAMS: dict[str, tuple[Program | list[Program], int]] = {
    "a lock, one thread": (locked(1), 1),
    "a lock, two threads": (locked(2), 1),
    "two streams": (two_streams, 1),
    "a collective on two GPUs": (collective, 2),
    "a persistent kernel, 8 launches later": (persistent(8), 1),
    "a persistent kernel, 30 launches later": (persistent(30), 1),
    "a persistent kernel, never idle": (persistent(8, is_synced=False), 1),
}
QUICK = ("a lock, two threads", "two streams")
ALONE = dict.fromkeys(PROGRAMS, 0.95) | {
    "a persistent kernel, 30 launches later": 0.85,
    "a persistent kernel, never idle": 0.08,
}
"""The least part of the ideal under a limit of 60.

No gate can end a kernel sooner that ends only after 30 ms of launches. A kernel that is never idle is held for
all the time in which its container is ahead.
"""

BESIDE = dict.fromkeys(PROGRAMS, 0.95) | {"a lock, one thread": 0.92}


def _steps(name: str, *, limit: float, beside: bool, gated: bool = True) -> tuple[int, float]:
    """The program's finished rounds, and the GPU's work for them."""
    program, gpus = PROGRAMS[name]
    one = Container("a", 0.6, limit, [program])
    others = [Container("g", 0.4, 1, [greedy(1)])] * beside
    Simulation([one, *others], gpus, gated=gated)
    return one.steps, one.work / gpus


@pytest.mark.parametrize("name", quick_and_slow(QUICK, (name for name in PROGRAMS if name not in QUICK)))
def test_a_coupled_program_gets_on(name: str) -> None:
    """A coupled program progresses alone under a limit of 60, and with a request of 60 beside a greedy one."""
    steps, work = _steps(name, limit=1, beside=False, gated=False)
    ideal = steps * min(1, 6000 / work)
    assert _steps(name, limit=0.6, beside=False)[0] / ideal >= ALONE[name]
    assert _steps(name, limit=1, beside=True)[0] / ideal >= BESIDE[name]


@pytest.mark.slow
def test_a_neighbours_short_kernels_cost_little() -> None:
    """A kernel of 20 µs in each 50 ms has run by the next tick, so no launch need stand for it."""
    steps = []
    for gated in (False, True):
        one = Container("a", 0.6, 1, [locked(1)])
        Simulation([one, Container("b", 0.4, 1, [light(0.02, 50)])], gated=gated)
        steps.append(one.steps)
    assert steps[1] >= 0.97 * steps[0]
