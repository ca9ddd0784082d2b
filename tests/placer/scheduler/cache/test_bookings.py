"""A live booking changes by the placer's own resizes alone."""

from dataclasses import replace

import pytest

from placer.core.booking import Booking, Grant
from placer.core.reasons import Reason
from placer.core.resize.change import ResizeChange
from placer.core.target_workload import PodType
from placer.scheduler.pods.needs import Needs
from plimsoll.kube.models import Pod
from plimsoll.quantity import GIB
from tests.placer.kube.decided import decided, decision_text, whole_text
from tests.placer.kube.one_node import GPUS, MAIN, N1, UID, WHOLE, Node, bound, sized


def with_line(gib: int, share_pct: int = 0, limit_pct: int = 100, version: str = "10") -> Pod:
    """A pod whose decision gives it this much of GPU-1."""
    return bound(decided(decision_text("GPU-1", gib, share_pct, limit_pct)), version=version)


def change(node: Node, gib: int) -> ResizeChange:
    """The change of the pod's line."""
    counted = node.ledger.booking(UID)
    assert counted is not None
    old = node.cluster.bookings.in_force(with_line(4))
    assert old is not None
    grants = tuple(replace(one, memory_bytes=gib * GIB, line_bytes=gib * GIB) for one in old.grants)
    return ResizeChange(MAIN, counted, old, replace(old, grants=grants))


@pytest.mark.parametrize(
    "edit",
    [
        {"plimsoll.dev/best-effort": "true"},
        {"plimsoll.dev/gpu-share-limit": "10"},
        {"plimsoll.dev/gpu-share-limit": "lots"},
        {"plimsoll.dev/decision": "{}"},
        {"plimsoll.dev/decision": decision_text("GPU-1", 1)},
        {"plimsoll.dev/decision": decision_text("GPU-2", 1)},
        {"plimsoll.dev/decision": "", "gpus.plimsoll.dev/main": "GPU-2"},
    ],
)
def test_no_edit_frees_a_whole_gpu(edit: dict[str, str]) -> None:
    """No other pod fits on the GPU of a running whole-GPU pod, whatever annotations its tenant writes."""
    node = Node()
    node.report(*GPUS)
    given = decided(whole_text("GPU-1"))
    asked = {"plimsoll.dev/gpu": "1"}
    node.cluster.confirm(bound(given, asked))
    node.cluster.confirm(bound(given | edit, asked, version="11"))
    for demand in (sized(1), WHOLE):
        assert node.why_not(demand)[GPUS[0]] is Reason.GPU_TAKEN_WHOLE


def test_without_any_annotation_left_a_pod_keeps_its_booking() -> None:
    """A pod whose annotations were all removed counts as before, and the removal is reported once."""
    node = Node()
    node.cluster.confirm(with_line(4, 30, 60))
    for version in ("11", "12"):
        node.cluster.confirm(bound(version=version))
    assert node.counted() == (4, 30, 60)
    [doubted] = node.doubts
    assert doubted.doubt is not None
    assert (doubted.doubt.namespace, doubted.doubt.name, doubted.doubt.foreign) == ("ns", "a", False)
    assert "was changed by somebody else" in doubted.doubt.reason


def test_an_edited_decision_counts_as_the_larger_of_both_until_it_is_as_before() -> None:
    """A decision that somebody else changed never shrinks the booking, and takes the room that it states.

    The broker may act on it. Once the decision is as before, the pod counts as before and is no longer in doubt.
    """
    node = Node()
    node.cluster.confirm(with_line(4, 30, 60))
    for edited, counts in (
        ((9, 10, 20), (9, 30, 60)),
        ((1, 40, 60), (4, 40, 60)),
        ((4, 30, 80), (4, 30, 80)),
    ):
        node.cluster.confirm(with_line(*edited))
        assert node.counted() == counts
    assert len(node.doubts) == 1
    node.cluster.confirm(with_line(4, 30, 60))
    assert node.counted() == (4, 30, 60)
    held = node.ledger.booking(UID)
    assert held is not None
    assert held.doubt is None


def test_an_edit_to_another_gpu_counts_on_both() -> None:
    """A decision that was moved to another GPU counts there too."""
    node = Node()
    node.report(*GPUS)
    node.cluster.confirm(with_line(20))
    node.cluster.confirm(bound(decided(decision_text("GPU-2", 20), "GPU-2")))
    assert node.why_not(sized(8)) == dict.fromkeys(GPUS, Reason.GPU_MEMORY)


def test_a_pod_that_was_placed_here_counts_as_placed() -> None:
    """The first look at a pod that this placer bound does not replace its booking by an edited decision."""
    node = Node()
    grant = Grant(MAIN, GPUS[0], 4 * GIB, 0, 100, whole=False, line_bytes=4 * GIB)
    booking = Booking(UID, N1, (grant,))
    node.ledger.book(booking)
    node.cluster.assume(booking, Needs({}, frozenset()), with_line(4))
    node.cluster.confirm(with_line(1))
    assert node.counted() == (4, 0, 100)
    assert len(node.doubts) == 1


def test_a_follower_takes_each_decision_as_it_is_read() -> None:
    """While another placer decides, its resizes count as read, also lowerings; afterwards they are held on to."""
    node = Node()
    node.cluster.bookings.decides = False
    node.cluster.confirm(with_line(9))
    node.cluster.confirm(with_line(4))
    assert node.counted() == (4, 0, 100)
    node.cluster.bookings.decides = True
    node.cluster.confirm(with_line(1))
    assert node.counted() == (4, 0, 100)


def test_what_the_watch_shows_from_before_a_resize_does_not_undo_it() -> None:
    """A watch event from before a resize does not undo it. Afterwards an edit is an edit again."""
    node = Node()
    node.cluster.confirm(with_line(4))
    raised = change(node, 6)
    node.cluster.bookings.begin_resize(raised, "10")
    node.cluster.confirm(with_line(4))
    assert node.counted()[0] == 6
    node.cluster.confirm(with_line(4, version="11"))  # the write is tried again over this version
    assert node.counted()[0] == 6
    node.cluster.bookings.end_resize(raised, written=True)
    node.cluster.confirm(with_line(4))
    assert node.counted()[0] == 6
    node.cluster.confirm(with_line(6, version="11"))
    assert (node.counted()[0], node.doubts) == (6, [])
    node.cluster.confirm(with_line(4, version="12"))
    assert (node.counted()[0], len(node.doubts)) == (6, 1)


def test_a_lowering_frees_its_room_once_it_is_written() -> None:
    """While a lowering is under way the old line counts, and afterwards the new one."""
    node = Node()
    node.cluster.confirm(with_line(4))
    lowered = change(node, 2)
    node.cluster.bookings.begin_resize(lowered, "10")
    assert node.counted()[0] == 4
    node.cluster.bookings.end_resize(lowered, written=True)
    assert node.counted()[0] == 2
    node.cluster.confirm(with_line(2, version="11"))
    assert (node.counted()[0], node.doubts) == (2, [])


def test_a_refused_resize_leaves_everything_as_before() -> None:
    """After a resize that surely was not written, the pod counts as before; an ended pod does not come back."""
    node = Node()
    node.cluster.confirm(with_line(4))
    raised = change(node, 6)
    node.cluster.bookings.begin_resize(raised, "10")
    node.cluster.bookings.end_resize(raised, written=False)
    assert node.counted()[0] == 4
    node.cluster.bookings.begin_resize(raised, "10")
    node.cluster.forget(UID)
    node.cluster.bookings.end_resize(raised, written=True)
    assert node.ledger.booking(UID) is None


@pytest.mark.parametrize(
    ("arrived", "line_gib"), [(with_line(6, version="11"), 6), (with_line(4, version="11"), 4)]
)
def test_a_resize_without_a_clear_answer_takes_its_room_until_the_pod_is_seen_later(
    arrived: Pod, line_gib: int
) -> None:
    """The larger line counts until the pod has a later version: then either the write arrived, or it cannot."""
    node = Node()
    node.cluster.confirm(with_line(4))
    raised = change(node, 6)
    node.cluster.bookings.begin_resize(raised, "10")
    node.cluster.bookings.doubt_resize(raised)
    node.cluster.confirm(with_line(4, version="10"))
    assert node.counted()[0] == 6
    node.cluster.confirm(arrived)
    assert (node.counted()[0], node.doubts) == (line_gib, [])


def test_an_edit_during_a_resize_gives_nothing_back() -> None:
    """An edit that the watch shows while a resize is under way never shrinks the booking, and the write ends it."""
    node = Node()
    node.cluster.confirm(with_line(4))
    raised = change(node, 6)
    node.cluster.bookings.begin_resize(raised, "10")
    node.cluster.confirm(with_line(1, version="11"))
    assert node.counted()[0] == 6
    node.cluster.bookings.end_resize(raised, written=True)
    node.cluster.confirm(with_line(6, version="12"))
    held = node.ledger.booking(UID)
    assert held is not None
    assert (node.counted()[0], held.doubt) == (6, None)


def test_an_edit_right_after_a_resize_does_not_take_it_back() -> None:
    """Before the watch has shown a written resize, an edit of the decision leaves the pod with the resized line."""
    node = Node()
    node.cluster.confirm(with_line(4))
    raised = change(node, 6)
    node.cluster.bookings.begin_resize(raised, "10")
    node.cluster.bookings.end_resize(raised, written=True)
    edited = bound({"plimsoll.dev/decision": "lots"}, version="12")
    assert node.cluster.bookings.in_force(edited) == raised.new


def test_bound_pods_belong_to_the_target_workload() -> None:
    """A placer that starts learns from pods that have a node; those without a GPU of ours do not count."""
    node = Node()
    cpu = {"resources": {"requests": {"cpu": "2"}, "limits": {"plimsoll.dev/gpu": "1"}}}
    node.cluster.confirm(bound(decided(whole_text("GPU-1")), containers=[{"name": "main", **cpu}]))
    for _ in range(2):
        node.cluster.confirm(bound(decided(decision_text("GPU-2", 4), "GPU-2"), uid="b"))
    node.cluster.confirm(bound(limits={}, uid="somebody-elses"))
    node.cluster.confirm(bound({"plimsoll.dev/gpu-model": ","}, uid="unreadable"))
    pod_types = {one.pod_type: one.popularity for one in node.ledger.workload.typical}
    assert pod_types == {PodType(2000, 1, 1000): 0.5, PodType(0, 1, 0, 4 * GIB): 0.5}
