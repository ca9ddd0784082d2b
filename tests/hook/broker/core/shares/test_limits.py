"""Limits of a container alone, also for programs that try to pass them.

Figures are in percent of the GPU's time.
"""

import pytest

from tests.hook.broker.core.shares.model import Container, Program, Simulation
from tests.hook.broker.core.shares.programs import endless, greedy, hoarding, light, share, sync
from tests.slow import quick_and_slow

KINDS = {
    "greedy 0.02": greedy(0.02),
    "greedy 1": greedy(1),
    "greedy 20": greedy(20),
    "greedy 200": greedy(200),
    "sync 0.1": sync(0.1),
    "sync 1": sync(1),
    "graph 50": sync(50),
    "10 of 20": light(10, 20),
}
LONG = {"greedy 200", "graph 50"}
"""For long kernels the use in one second says little."""


@pytest.mark.parametrize("limit", quick_and_slow([50], [30, 60]))
@pytest.mark.parametrize("kind", KINDS)
def test_a_limit_is_kept_to_a_point_and_every_second_to_three(kind: str, limit: int) -> None:
    """A limit holds to a point, and in each second to three.

    It also holds for a program that would never use more than half of the GPU.
    """
    one = Container("a", limit / 100, limit / 100, [KINDS[kind]])
    simulation = Simulation([one])
    target = min(limit, 50) if kind == "10 of 20" else limit
    assert share(simulation, one) == pytest.approx(target, abs=1)
    if kind not in LONG:
        assert [second / 10 for second in one.seconds[1:-1]] == pytest.approx([target] * 9, abs=3)


@pytest.mark.parametrize("processes", [2, 3])
@pytest.mark.parametrize("kernel", quick_and_slow([1], [0.02, 20]))
def test_several_processes_have_the_limit_together(processes: int, kernel: float) -> None:
    """Processes of one container, whose bursts begin and end together with its gate, use the limit to a point."""
    for limit in (30, 60):
        one = Container("a", limit / 100, limit / 100, [greedy(kernel)] * processes)
        assert share(Simulation([one]), one) == pytest.approx(limit, abs=1)


@pytest.mark.parametrize(("program", "worst"), [(endless("wait", 1), 33), (hoarding, 55)])
def test_what_executes_nothing_gains_nothing(program: Program, worst: float) -> None:
    """A stream that waits for ever, or work hoarded behind a host function, does not pass a limit."""
    one = Container("a", 0.3, 0.3, [program])
    simulation = Simulation([one])
    assert share(simulation, one) <= 31
    assert max(one.seconds) / 10 <= worst


def test_a_kernel_that_never_ends_is_seen_though_no_gate_can_stop_it() -> None:
    """A kernel that never ends is charged as all of the GPU, for an operator to see, as no gate can stop it."""
    one = Container("a", 0.3, 0.3, [endless("spin", 5)])
    simulation = Simulation([one])
    use = simulation.uses(one)
    assert use.used_pct > 95
    assert use.waited_s < 10


@pytest.mark.parametrize("kernel", quick_and_slow([20], [1, 200]))
@pytest.mark.parametrize("estimate", [0.1, 0.5])
def test_wrong_guesses_of_queues_cost_no_share(kernel: float, estimate: float) -> None:
    """A library that first takes its queues for two or ten times shorter learns their length and loses no share."""
    one = Container("a", 0.3, 0.3, [greedy(kernel)])
    assert share(Simulation([one], estimate=estimate), one) == pytest.approx(30, abs=2)
    beside = Container("a", 0.3, 1, [greedy(kernel)])
    pair = Simulation([beside, Container("b", 0.7, 1, [greedy(1)])], estimate=estimate)
    assert share(pair, beside) == pytest.approx(30, abs=2)
