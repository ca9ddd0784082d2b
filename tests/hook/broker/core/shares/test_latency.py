"""Light containers wait no longer than without Plimsoll and do all their work, also beside training."""

from collections.abc import Callable

import pytest

from tests.hook.broker.core.shares.model import Container, Program, Simulation
from tests.hook.broker.core.shares.programs import greedy, light, sync
from tests.slow import quick_and_slow


def _check(make: Callable[[], list[Container]], slower_most: float = 1.3) -> None:
    """Compare with an ungated run: nearly as much work, and a 99th percentile that is at most this much longer."""
    work, p99 = [], []
    for gated in (False, True):
        containers = make()
        Simulation(containers, gated=gated)
        latencies = sorted(each for one in containers for each in one.latencies)
        work.append(sum(one.work for one in containers))
        p99.append(latencies[int(0.99 * len(latencies))])
    assert work[1] / work[0] >= 0.97
    assert p99[1] <= slower_most * p99[0]


@pytest.mark.parametrize("at_random", [False, True])
@pytest.mark.parametrize("demand", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("count", quick_and_slow([3], [9, 27]))
def test_light_ones_within_their_requests_are_not_held(count: int, demand: float, *, at_random: bool) -> None:
    """Light containers that together want most of the GPU, each within its request, are not held."""
    request = max(demand / count, 0.01)

    def make() -> list[Container]:
        program = light(1, count / demand, at_random=at_random)
        return [Container(str(i), request, 1, [program]) for i in range(count)]

    _check(make)


@pytest.mark.parametrize("at_random", [False, True])
def test_light_ones_that_want_more_than_their_request_are_hardly_held(*, at_random: bool) -> None:
    """Nine light containers are hardly held though some want twice their request.

    There is room for all, though not at every moment.
    """
    periods = [20, 20, 20, 20, 8, 8, 8, 8, 6.67]

    def make() -> list[Container]:
        return [Container(str(i), 0.11, 1, [light(1, p, at_random=at_random)]) for i, p in enumerate(periods)]

    _check(make, slower_most=1.4)


@pytest.mark.parametrize("at_random", [False, True])
@pytest.mark.parametrize("trainer", quick_and_slow([greedy(20), sync(1)], [greedy(1), greedy(200)]))
def test_serving_beside_training_waits_no_longer(trainer: Program, *, at_random: bool) -> None:
    """A server with 2 ms of work every 20 ms waits no longer beside kernels of any length."""

    def make() -> list[Container]:
        serving = Container("s", 0.2, 1, [light(2, 20, at_random=at_random)])
        return [serving, Container("t", 0.8, 1, [trainer])]

    _check(make)
