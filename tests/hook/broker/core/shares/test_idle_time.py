"""A gate is shut while the GPU idles only for a container that runs more by that."""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.hook.broker.core.shares.model import Actor, Container, Program, Simulation, Step
from tests.hook.broker.core.shares.programs import greedy, light, sync
from tests.slow import quick_and_slow

SPAN: Final = 20_000.0
WARM: Final = 4
"""The seconds in which the broker finds out what a claim is worth. Only the time after them counts."""


def _beside_greedy(program: Program) -> tuple[Container, Container]:
    """A container with request 45, and a greedy one with the same request beside it."""
    one, other = Container("A", 0.45, 1, [program]), Container("B", 0.45, 1, [greedy(1)])
    Simulation([one, other], span=SPAN)
    return one, other


def _later_share(container: Container) -> float:
    return sum(container.seconds[WARM:-1]) / 10 / (SPAN / 1000 - WARM)


@pytest.mark.parametrize("at_random", [False, True])
@pytest.mark.parametrize("work", quick_and_slow([1, 5], [2]))
def test_a_greedy_container_has_what_a_light_one_leaves(work: float, *, at_random: bool) -> None:
    """Beside a container that requests 45 % and uses 30 in short requests, a greedy one gets nearly the rest.

    Use at random looks like gain now and then, and costs some points more.
    """
    one, other = map(_later_share, _beside_greedy(light(work, work / 0.3, at_random=at_random)))
    assert one >= 28
    assert other >= (0.9 if at_random else 0.96) * (100 - one)


@pytest.mark.parametrize(
    ("ms", "pause", "least"),
    [
        pytest.param(5, 4, 41, id="5 ms and a pause of 4"),
        pytest.param(5, 5.5, 37, id="5 ms and a pause of 5.5"),
        pytest.param(20, 18, 39.5, id="20 ms and a pause of 18"),
        pytest.param(1, 2.3, 23.7, id="1 ms and a pause of 2.3"),
    ],
)
def test_others_are_held_for_a_program_that_waits_for_each_kernel(
    ms: float, pause: float, least: float
) -> None:
    """A program that is slower beside others gets as much of its request as the request of the others leaves.

    Without any hold it gets 33, 33, 39 and 20 %.
    """
    one, other = _beside_greedy(sync(ms, lambda _: pause))
    assert _later_share(one) >= least
    assert other.work / SPAN >= 0.445


def test_a_light_container_that_becomes_greedy_has_its_request_at_once() -> None:
    """A claim that was worth nothing counts again as soon as its owner wants all of each tick."""

    def becoming_greedy(me: Actor) -> Iterator[Step]:
        for step in light(1, 10 / 3)(me):
            if me.now >= 8000:
                break
            yield step
        yield from greedy(1)(me)

    one = Container("A", 0.5, 1, [becoming_greedy])
    Simulation([one, Container("B", 0.3, 1, [greedy(1) for _ in range(3)])], span=9000.0)
    assert one.seconds[8] / 10 >= 45
