"""Nodes with two monitors are named, and others are not."""

from placer.core.lateness import LONG_S, Lateness
from plimsoll.ids import NodeName

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
