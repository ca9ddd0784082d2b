"""Silence is found at its time, once, and by the work of the silent alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.silence import HEARTBEATS, LONG_S, Lateness, Silence
from plimsoll.ids import NodeName

A, B = NodeName("a"), NodeName("b")


def test_node_is_silent_after_three_of_its_own_heartbeats() -> None:
    """Each node has its own time, and is taken once until it reports again."""
    silence = Silence()
    assert silence.next_s() is None
    silence.reported(A, 100, heartbeat_s=10)
    silence.reported(B, 100, heartbeat_s=1)
    assert silence.next_s() == 103
    assert silence.take(102.9) == ()
    assert silence.take(103) == (B,)
    assert silence.take(129.9) == ()
    assert silence.take(130) == (A,)
    assert silence.take(1000) == ()
    assert silence.next_s() is None
    silence.reported(B, 1000, heartbeat_s=1)
    assert silence.take(1003) == (B,)


def test_node_that_goes_on_reporting_is_never_silent() -> None:
    """A report puts the silence off, and an earlier time comes into force at once."""
    silence = Silence()
    assert silence.reported(A, 0, heartbeat_s=10)
    for now_s in range(100):
        assert not silence.reported(A, now_s, heartbeat_s=10)
        assert silence.take(now_s) == ()
    assert silence.reported(A, 100, heartbeat_s=0.1), "the watch must wake sooner than it meant to"
    assert silence.next_s() == pytest.approx(100.3)
    assert silence.take(101) == (A,)


acts = st.tuples(
    st.sampled_from([NodeName(name) for name in "abc"]), st.integers(0, 9), st.sampled_from([0, 1, 2, 5])
)


@given(st.lists(acts, max_size=60))
def test_silent_are_exactly_those_whose_last_report_is_too_old(made: list[tuple[NodeName, int, int]]) -> None:
    """For any sequence of reports, forgets (heartbeat 0) and checks, the result is that of a check of all nodes."""
    silence, last, silent, now_s = Silence(), dict[NodeName, tuple[int, int]](), set[NodeName](), 0
    for node, passed_s, heartbeat_s in made:
        now_s += passed_s
        if heartbeat_s:
            silence.reported(node, now_s, heartbeat_s)
            last[node] = (now_s, heartbeat_s)
        else:
            silence.forget(node)
            last.pop(node, None)
        silent.discard(node)
        due = {one for one, (at_s, beat_s) in last.items() if at_s + HEARTBEATS * beat_s <= now_s} - silent
        assert set(silence.take(now_s)) == due
        silent |= due
        assert len(silence._heap) <= len(made)


NODE, OTHER = NodeName("node-1"), NodeName("node-2")


def test_a_node_is_named_once_its_reports_have_been_late_for_long() -> None:
    """The node is named after the bound and once; another node's late report does not count for it."""
    lateness = Lateness()
    named = [lateness.was_late(NODE, at_s, 10) for at_s in range(0, int(LONG_S) + 30, 10)]
    assert named == [False] * 6 + [True] + [False] * 2
    assert not lateness.was_late(OTHER, LONG_S, 10)


def test_late_reports_with_long_pauses_name_no_node() -> None:
    """A report that is delivered again now and then begins a new count each time; so does a forgotten node."""
    lateness = Lateness()
    assert not any(lateness.was_late(NODE, at_s, 10) for at_s in range(0, 1000, 31))
    for at_s in range(2000, 2060, 10):
        assert not lateness.was_late(NODE, at_s, 10)
    lateness.forget(NODE)
    assert not lateness.was_late(NODE, 2060, 10)
