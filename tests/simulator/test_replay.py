"""The engine conserves memory under every workload and policy, and every replay is the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.core.agenda import Agenda
from simulator.core.replay import Container, replay
from tests.simulator.workloads import (
    FIFTY_EXAMPLES,
    GIVERS,
    POLICIES,
    USABLE_BYTES,
    containers,
    most_held_bytes,
    started,
    workloads,
)


def test_events_happen_by_time_then_rank_then_order_of_adding() -> None:
    """Two events at the same time and of the same rank happen in the order in which they were added."""
    agenda = Agenda[str]()
    for time_s, rank, event in ((2.0, 0, "d"), (1.0, 1, "b"), (1.0, 1, "c"), (1.0, 0, "a")):
        agenda.add(time_s, rank, event)
    happened = []
    while (found := agenda.next()) is not None:
        happened.append(found)
    assert happened == [(1.0, "a"), (1.0, "b"), (1.0, "c"), (2.0, "d")]


@pytest.mark.parametrize("rule", GIVERS)
@pytest.mark.parametrize("policy", POLICIES)
@FIFTY_EXAMPLES
@given(workload=workloads)
def test_running_containers_never_hold_more_than_the_card_has(
    rule: str, policy: str, workload: list[Container]
) -> None:
    """At every moment the running containers' lines sum to at most the card's memory."""
    assert most_held_bytes(replay(workload, GIVERS[rule](policy))) <= USABLE_BYTES


@pytest.mark.parametrize("rule", GIVERS)
@pytest.mark.parametrize("policy", POLICIES)
@FIFTY_EXAMPLES
@given(workload=workloads)
def test_nobody_runs_before_it_came_and_everybody_runs_its_time(
    rule: str, policy: str, workload: list[Container]
) -> None:
    """A container starts at its arrival or later, and ends exactly its running time after that."""
    for stay in replay(workload, GIVERS[rule](policy)).stays:
        if stay.started_s is not None:
            assert stay.started_s >= stay.container.arrives_s
            assert stay.ended_s == stay.started_s + stay.container.runs_s


@pytest.mark.parametrize("rule", GIVERS)
@FIFTY_EXAMPLES
@given(workload=workloads, policy=st.sampled_from(POLICIES))
def test_the_same_replay_ends_the_same_way(rule: str, workload: list[Container], policy: str) -> None:
    """Two replays of one workload under one policy give the same times."""
    assert replay(workload, GIVERS[rule](policy)) == replay(workload, GIVERS[rule](policy))


def test_who_ends_gives_back_before_who_arrives_at_that_moment_asks() -> None:
    """Memory freed at 5 s goes to a waiting container, though the policy prefers one that arrives at 5 s."""
    workload = containers(("old", 0, 10, 5), ("waiting", 1, 10, 5), ("new", 5, 10, 5))
    expected = {"old": 0, "waiting": 5, "new": 10}
    assert started(replay(workload, GIVERS["at-creation"]("recent-use"))) == expected


def test_finished_is_the_last_end_and_suspended_the_mean_wait() -> None:
    """Two of three containers wait, 9 s and 8 s, and all have ended after 20 s."""
    workload = containers(("a", 0, 6, 10), ("b", 1, 6, 10), ("c", 2, 4, 10))
    outcome = replay(workload, GIVERS["at-creation"]("fifo"))
    assert (outcome.finished_s, outcome.suspended_s) == (20.0, 17 / 3)
    assert outcome.stuck == ()
