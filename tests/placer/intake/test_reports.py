"""The view of the latest reports."""

import random

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from placer.intake.reports import ReportView
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from tests.placer.arrivals import report

states = st.builds(report, st.sampled_from(["n1", "n2", "n3"]), st.integers(1, 9), epoch=st.integers(1, 3))


@given(st.lists(states, max_size=30), st.randoms(use_true_random=False))
def test_view_ends_with_the_newest_whatever_the_order(
    arrived: list[NodeState], chance: random.Random
) -> None:
    """For shuffled and repeated reports each node ends at its newest, and listeners get only newer ones."""
    view, heard = ReportView(), list[NodeState]()
    view.on_report(heard.append)
    doubled = arrived * 2
    chance.shuffle(doubled)
    kept = [state for state in doubled if view.apply(state)]
    assert heard == kept
    assert dict(view) == {state.node: state for state in sorted(arrived, key=lambda state: state.order)}
    for node in {state.node for state in kept}:
        orders = [state.order for state in kept if state.node == node]
        assert orders == sorted(set(orders))


def test_an_event_without_a_state_changes_nothing() -> None:
    """The last of many events at once has the state. The others, also the first ones, are no news of the node."""
    view, heard = ReportView(), list[NodeState]()
    view.on_report(heard.append)
    omitted = replace(report("n1", 4), gpus=(), omitted=True)
    assert not view.apply(omitted)
    assert view.apply(report("n1", 4))
    assert not view.apply(omitted)
    assert view.apply(report("n1", 5))
    assert [state.seq for state in heard] == [4, 5]


def test_view_of_a_node_follows_its_report() -> None:
    """The view of a node is made anew from each newer report, and goes with the node."""
    view = ReportView()
    assert view.view(NodeName("n1")) is None
    for seq in (1, 2):
        view.apply(report("n1", seq))
        read = view.view(NodeName("n1"))
        assert read is not None
        assert read.order == (1, seq)
    view.forget(NodeName("n1"))
    assert view.view(NodeName("n1")) is None
    assert len(view) == 0


def test_ended_listener_hears_nothing() -> None:
    """A listener that ended is not called again; the others are."""
    view, heard = ReportView(), list[str]()
    stop = view.on_report(lambda _: heard.append("first"))
    view.on_report(lambda _: heard.append("second"))
    stop()
    view.apply(report("n1"))
    assert heard == ["second"]


def test_node_is_silent_until_a_newer_report() -> None:
    """A node that fell silent is marked in its view. Only a newer report ends that, before its listeners see it."""
    view, told = ReportView(), list[tuple[str, bool]]()
    n1 = NodeName("n1")
    view.apply(report(n1, 2))
    view.on_change(lambda node: told.append((node, node in view.silent)))
    view.set_silent(n1)
    view.set_silent(NodeName("unknown"))
    seen = view.view(n1)
    assert seen is not None
    assert seen.is_silent
    view.apply(report(n1, 1))
    assert view.silent == {n1}
    view.on_report(lambda state: told.append((state.node, state.node in view.silent)))
    view.apply(report(n1, 3))
    assert told == [(n1, True), (n1, False), (n1, False)]
    seen = view.view(n1)
    assert seen is not None
    assert not seen.is_silent
