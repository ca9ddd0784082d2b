"""ConVGPU's rule, in cases small enough to work out by hand."""

from hypothesis import given

from simulator.core.replay import Container, replay
from tests.simulator.workloads import FIFTY_EXAMPLES, at_creation, containers, started, workloads


def test_what_is_left_lies_with_one_who_cannot_use_it() -> None:
    """B gets the four free bytes and waits for two more. C, which would fit in them, waits as well."""
    workload = containers(("a", 0, 6, 10), ("b", 1, 6, 10), ("c", 2, 4, 10))
    assert started(replay(workload, at_creation("fifo"))) == {"a": 0, "b": 10, "c": 10}


def test_fifo_fills_the_oldest_first() -> None:
    """When 8 bytes come free, B takes the 7 that it lacks. The rest is too little for C until B ends."""
    workload = containers(("a", 0, 8, 10), ("b", 1, 9, 10), ("c", 2, 4, 5), ("d", 3, 3, 5))
    assert started(replay(workload, at_creation("fifo"))) == {"a": 0, "b": 10, "c": 20, "d": 20}


def test_best_fit_takes_the_largest_need_that_fits() -> None:
    """When 7 bytes come free, D gets the 6 that it needs, as the largest need that fits."""
    workload = containers(("a", 0, 7, 10), ("x", 0, 3, 20), ("b", 1, 9, 10), ("c", 2, 4, 5), ("d", 3, 6, 5))
    assert started(replay(workload, at_creation("best-fit"))) == {"a": 0, "x": 0, "d": 10, "c": 15, "b": 20}


def test_best_fit_gives_to_who_lacks_least_where_nobody_fits() -> None:
    """When 7 bytes come free, C gets all, as it lacks 8 and B lacks 9. Three more bytes start C."""
    workload = containers(("a", 0, 7, 10), ("x", 0, 3, 20), ("b", 1, 9, 10), ("c", 2, 8, 5))
    assert started(replay(workload, at_creation("best-fit"))) == {"a": 0, "x": 0, "c": 20, "b": 25}


def test_recent_use_takes_who_was_suspended_last() -> None:
    """The last container to be suspended goes first, and the first goes last."""
    workload = containers(("a", 0, 10, 10), ("b", 1, 9, 5), ("c", 2, 8, 5))
    assert started(replay(workload, at_creation("recent-use"))) == {"a": 0, "c": 10, "b": 15}


def test_random_takes_whom_the_lot_falls_on() -> None:
    """If the lot chooses the second waiting container, that one goes first."""
    workload = containers(("a", 0, 10, 10), ("b", 1, 10, 5), ("c", 2, 10, 5), ("d", 3, 10, 5))
    lot = at_creation("random", lambda count: min(1, count - 1))
    assert started(replay(workload, lot)) == {"a": 0, "c": 10, "d": 15, "b": 20}


def test_parts_held_by_two_who_wait_are_a_deadlock_under_recent_use() -> None:
    """B holds 4 of its 8 bytes and C gets 6 of its 7. No memory is left, and neither container runs."""
    workload = containers(("a", 0, 6, 10), ("b", 1, 8, 10), ("c", 2, 7, 10))
    assert replay(workload, at_creation("recent-use")).stuck == ("b", "c")
    assert replay(workload, at_creation("fifo")).stuck == ()


@FIFTY_EXAMPLES
@given(workload=workloads)
def test_fifo_never_leaves_anybody_waiting(workload: list[Container]) -> None:
    """Every container ends, as all freed memory goes to the oldest until it runs."""
    assert replay(workload, at_creation("fifo")).stuck == ()
