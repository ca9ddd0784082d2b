"""Plimsoll's rule in the broker's own core, in cases small enough to work out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.core.replay import Container, replay
from tests.simulator.workloads import (
    FIFTY_EXAMPLES,
    POLICIES,
    asking_twice,
    containers,
    on_demand,
    started,
    workloads,
)


def test_fifo_lets_nobody_pass_the_oldest_who_waits() -> None:
    """C would fit in the four free bytes, but B came first and waits for more, so C waits."""
    workload = containers(("a", 0, 6, 10), ("b", 1, 6, 10), ("c", 2, 4, 10))
    assert started(replay(workload, on_demand("fifo"))) == {"a": 0, "b": 10, "c": 10}


def test_best_fit_takes_the_largest_need_that_fits() -> None:
    """C starts at once, as nothing is reserved for B.

    When eight bytes come free later, B's seven are the best fit.
    """
    workload = containers(("a", 0, 6, 10), ("b", 1, 7, 10), ("c", 2, 2, 20), ("d", 3, 3, 10))
    assert started(replay(workload, on_demand("best-fit"))) == {"a": 0, "c": 2, "b": 10, "d": 20}


def test_best_fit_gives_no_part_to_who_cannot_run_on_it() -> None:
    """Seven freed bytes meet no need and stay free until three more come; then B's nine fit best.

    ConVGPU's own rule gives the seven to C, which then goes first.
    """
    workload = containers(("a", 0, 7, 10), ("x", 0, 3, 20), ("b", 1, 9, 10), ("c", 2, 8, 5))
    assert started(replay(workload, on_demand("best-fit"))) == {"a": 0, "x": 0, "b": 20, "c": 30}


def test_recent_use_takes_who_was_suspended_last_and_never_gets_stuck() -> None:
    """In the case in which ConVGPU's rule deadlocks, C starts when A ends, and B when C ends."""
    workload = containers(("a", 0, 6, 10), ("b", 1, 8, 10), ("c", 2, 7, 10))
    assert started(replay(workload, on_demand("recent-use"))) == {"a": 0, "c": 10, "b": 20}


def test_random_takes_another_order_by_another_seed() -> None:
    """Over some seeds each of three waiting containers goes first at least once.

    The same seed gives the same order.
    """
    workload = containers(("a", 0, 10, 10), ("b", 1, 10, 5), ("c", 2, 10, 5), ("d", 3, 10, 5))

    def first(seed: int) -> str:
        times = started(replay(workload, on_demand("random", str(seed).encode())))
        return next(name for name, time_s in times.items() if time_s == 10)

    assert {first(seed) for seed in range(20)} == {"b", "c", "d"}
    assert first(7) == first(7)


def test_who_asks_for_more_than_the_card_has_is_refused() -> None:
    """A container that requests more than the card has is refused, and delays no other one."""
    outcome = replay(containers(("huge", 0, 11, 5), ("small", 1, 10, 5)), on_demand("fifo"))
    assert outcome.refused == ("huge",)
    assert outcome.stuck == ()
    assert started(outcome) == {"huge": None, "small": 1}


@pytest.mark.parametrize("policy", POLICIES)
@FIFTY_EXAMPLES
@given(workload=st.one_of(workloads, asking_twice))
def test_everybody_that_arrives_ends(policy: str, workload: list[Container]) -> None:
    """No container is stuck or refused, also if containers hold one part and wait for another."""
    outcome = replay(workload, on_demand(policy))
    assert outcome.stuck == ()
    assert outcome.refused == ()
