"""Pods that fit nowhere are parked by kind, and tried again when a changed node could take one of them."""

import pytest

from placer.scheduler.queue.hints import EVERYTHING, Cause, Gain
from placer.scheduler.queue.lanes import LONGEST_BACKOFF_S, QueuePlace
from placer.scheduler.queue.parking import PROBES_AT_MOST, KindRefusal
from placer.scheduler.queue.queue import PARKED_AT_MOST_S, Queue
from placer.scheduler.queue.retry_allowance import ALLOWANCE_S
from placer.scheduler.queue.tries import Probe
from plimsoll.ids import NodeName
from tests.placer.scheduler.queue.queues import ANY, N1, A, B, C, park, probed, queue_of, tried


def test_parked_pod_is_tried_as_soon_as_a_node_could_take_it() -> None:
    """A node that could take a parked pod now brings the pod back at once, however often it was refused before."""
    queue = queue_of(A)
    park(queue, A)
    for now_s in (0.1, 0.2, 0.3, 0.4):
        assert tried(queue, now_s) is None
        queue.gained(N1, ANY, now_s)
        assert probed(queue, now_s) == (A, N1)
        park(queue, A, now_s)


def test_pod_that_fits_is_tried_before_the_next_is_probed() -> None:
    """The first takes the room, and the next is probed in what it left: nobody is refused for having been slower."""
    queue = queue_of(A, B, C)
    for one in (A, B, C):
        park(queue, one)
    queue.gained(N1, ANY, 5)
    assert probed(queue, 5)[0] == A
    assert tried(queue, 5) == A
    queue.placed(A, 5)
    queue.discard(A, 5)
    assert probed(queue, 5, Cause.MEMORY)[0] == B
    assert probed(queue, 5)[0] == C
    assert tried(queue, 5) == C
    assert queue.counts[QueuePlace.PARKED] == 1
    assert tried(queue, 20) is None


def test_freed_room_is_offered_by_priority() -> None:
    """The pod with the highest priority is probed first, whenever it was parked."""
    queue = queue_of(A)
    queue.put(B, 5, 0)
    queue.put(C, 1, 0)
    for one in (B, C, A):
        park(queue, one)
    queue.gained(N1, ANY, 5)
    assert probed(queue, 5, Cause.MEMORY)[0] == B
    assert probed(queue, 5, Cause.MEMORY)[0] == C
    assert probed(queue, 5, Cause.MEMORY)[0] == A


def test_woken_pod_that_backs_off_is_tried_as_soon_as_a_node_could_take_it() -> None:
    """A pod whose refusal may have been lifted anywhere waits for its backoff, but not beside room that was freed."""
    queue = queue_of(A)
    park(queue, A)
    queue.wake(EVERYTHING, 0.1)
    assert tried(queue, 0.2) is None
    queue.gained(N1, ANY, 0.3)
    assert probed(queue, 0.3) == (A, N1)
    park(queue, A, 0.3)
    queue.wake(EVERYTHING, 0.4)
    assert tried(queue, 2.2) is None
    assert tried(queue, 2.4) == A


def test_node_that_cannot_take_a_parked_pod_leaves_it_alone() -> None:
    """A failed probe leaves the pod parked, and the next gain of the same node leads to another probe."""
    queue = queue_of(A)
    park(queue, A)
    queue.gained(N1, ANY, 1)
    assert probed(queue, 1, Cause.MEMORY) == (A, N1)
    assert tried(queue, 20) is None
    assert queue.counts[QueuePlace.PARKED] == 1
    queue.gained(N1, ANY, 20)
    assert probed(queue, 20) == (A, N1)
    assert tried(queue, 20) == A


@pytest.mark.parametrize(
    ("causes", "ask", "gain", "is_probed"),
    [
        (Cause.MEMORY, 10, Gain(Cause.MEMORY, 10, 9, 10), True),
        (Cause.MEMORY, 10, Gain(Cause.MEMORY, 9, 5, 9), False),  # it asks for more than the node can give
        (Cause.MEMORY, 10, Gain(Cause.MEMORY, 20, 10, 20), False),  # memory was no obstacle there
        (Cause.MEMORY, 10, Gain(Cause.MEMORY, 20, 5, 9), False),  # another GPU grew than the best
        (Cause.MEMORY, 10, Gain(Cause.SHARE, 20), False),
        (Cause.MEMORY | Cause.SHARE, 10, Gain(Cause.SHARE, 20), True),
        (Cause.MEMORY | Cause.SHARE, 10, Gain(Cause.SHARE, 9), False),
        (Cause.MEMORIES, 10, Gain(Cause.MEMORY | Cause.MEMORIES, 20, 15, 20), True),
        (Cause.PERCENTAGE, 40, Gain(Cause.PERCENTAGE, 2**34, 9, 10, 39, 40), True),
        (Cause.PERCENTAGE, 40, Gain(Cause.PERCENTAGE, 2**34, 9, 10, 40, 90), False),  # it fitted there before
        (
            Cause.PERCENTAGE,
            40,
            Gain(Cause.PERCENTAGE, 2**34, 9, 10, 10, 39),
            False,
        ),  # and still does not here
        (Cause.PERCENTAGE, 40, Gain(EVERYTHING, 0), False),  # a node without a GPU
        (Cause.PERCENTAGE, 40, Gain(EVERYTHING, 2**34), True),
        (Cause.PERCENTAGE | Cause.SHARE, 40, Gain(Cause.SHARE, 2**34), True),
        (Cause.RESOURCES, 0, Gain(Cause.RESOURCES | Cause.NODE), True),
        (Cause.NODE, 0, Gain(Cause.MEMORY | Cause.MEMORIES, 20), False),
    ],
)
def test_only_gains_that_share_a_cause_and_have_the_bytes_lead_to_a_probe(
    causes: Cause,
    ask: int,
    gain: Gain,
    is_probed: bool,  # noqa: FBT001
) -> None:
    """A gain leads to a probe only for kinds that it concerns."""
    queue = queue_of(A)
    park(queue, A, refusal=KindRefusal("", causes, ask))
    queue.gained(N1, gain, 5)
    assert isinstance(queue.take(5), Probe) is is_probed


def test_failed_probe_adds_its_causes() -> None:
    """After a lifted taint a probe found too little CPU, so a gain of CPU leads to another probe."""
    queue = queue_of(A)
    park(queue, A, refusal=KindRefusal("", Cause.NODE))
    queue.gained(N1, Gain(Cause.RESOURCES), 5)
    assert tried(queue, 5) is None
    queue.gained(N1, Gain(Cause.NODE), 5)
    probed(queue, 5, Cause.RESOURCES)
    queue.gained(N1, Gain(Cause.RESOURCES), 6)
    assert probed(queue, 6) == (A, N1)


def test_kind_with_too_many_probes_is_tried_instead() -> None:
    """After many nodes changed, one decision costs less than all probes."""
    queue = queue_of(A)
    park(queue, A)
    for index in range(PROBES_AT_MOST + 1):
        queue.gained(NodeName(f"n{index}"), ANY, 5)
    assert tried(queue, 5) == A


def test_parked_pod_is_tried_again_after_five_minutes_at_most() -> None:
    """A parked pod is tried again without any change, in case a change was missed; not all pods at once."""
    queue = queue_of(A)
    park(queue, A)
    assert queue.due_s() == PARKED_AT_MOST_S
    assert tried(queue, PARKED_AT_MOST_S - 1) is None
    assert tried(queue, PARKED_AT_MOST_S) == A
    early = Queue(spread=lambda: 0.0)
    early.put(A, 0, 0)
    park(early, A)
    assert early.due_s() == PARKED_AT_MOST_S / 2


def test_refusal_knows_the_gains_before_it_and_no_later_one() -> None:
    """A gain during the attempt leads to no probe, because the refusal holds when it is parked. A later gain does."""
    queue = queue_of(A)
    assert tried(queue, 0) == A
    queue.gained(N1, ANY, 0.1)
    queue.park(A, A, KindRefusal(), 0.2)
    assert queue.due_s() == 0.2 + PARKED_AT_MOST_S
    assert tried(queue, LONGEST_BACKOFF_S) is None
    queue.gained(N1, ANY, LONGEST_BACKOFF_S)
    assert probed(queue, LONGEST_BACKOFF_S) == (A, N1)


def test_pods_of_a_kind_share_a_refusal_and_wait_for_the_try_of_one() -> None:
    """The second pod of a kind is refused without a decision, and one pod is tried for both."""
    queue = queue_of(A, B)
    park(queue, A, kind="k", refusal=KindRefusal("full"))
    assert tried(queue, 0) == B
    shared = queue.refusal("k")
    assert shared is not None
    assert shared.note == "full"
    queue.join(B, "k", 0)
    assert queue.counts[QueuePlace.PARKED] == 2
    queue.gained(N1, ANY, 5)
    assert probed(queue, 5) == (A, N1)
    assert tried(queue, 5) == A
    assert tried(queue, 5) is None
    queue.park(A, "k", KindRefusal(), 5)
    assert queue.counts[QueuePlace.PARKED] == 2
    queue.gained(N1, ANY, 20)
    probed(queue, 20)
    assert tried(queue, 20) == B  # A came back later


def test_after_a_pod_is_placed_the_next_of_its_kind_is_tried_at_once() -> None:
    """Room for several pods of a kind is filled one after another, without a backoff between them."""
    queue = queue_of(A, B, C)
    park(queue, A, kind="k")
    for uid in (B, C):
        assert tried(queue, 0) == uid
        queue.join(uid, "k", 0)
    queue.gained(N1, ANY, 5)
    probed(queue, 5)
    for uid in (A, B):
        assert tried(queue, 5) == uid
        assert tried(queue, 5) is None
        queue.placed(uid, 5)
    assert tried(queue, 5) == C
    queue.park(C, "k", KindRefusal(), 5)
    assert tried(queue, 5) is None


@pytest.mark.parametrize("leave", ["discard", "put"])
def test_kind_goes_on_when_the_pod_that_is_tried_for_it_leaves(leave: str) -> None:
    """If the pod that is tried for its kind is deleted or changed, the next pod of the kind is tried."""
    queue = queue_of(A, B)
    park(queue, A, kind="k")
    assert tried(queue, 0) == B
    queue.join(B, "k", 0)
    queue.gained(N1, ANY, 5)
    probed(queue, 5)
    assert tried(queue, 5) == A
    if leave == "put":
        queue.again(A, 5)
        queue.put(A, 0, 5)
        assert {tried(queue, 5), tried(queue, 5)} == {A, B}
    else:
        queue.discard(A, 5)
        assert tried(queue, 5) == B


def test_refusal_is_not_shared_once_a_change_may_have_lifted_it() -> None:
    """A fresh pod gets a decision of its own while its kind is not probed yet, and that decision counts for all."""
    queue = queue_of(A)
    park(queue, A, kind="k")
    queue.gained(N1, ANY, 5)
    assert queue.refusal("k") is None
    probe = queue.take(5)
    assert isinstance(probe, Probe)
    queue.put(B, 0, 5)
    queue.probed(probe, Cause.NODE, 5)
    assert queue.refusal("k") is not None
    queue.gained(N1, ANY, 5)
    assert isinstance(queue.take(5), Probe)  # planned, and not done yet when B is tried
    queue.put(C, 1, 5)
    assert tried(queue, 5 + 2 * ALLOWANCE_S) == C
    queue.park(C, "k", KindRefusal("new"), 5 + 2 * ALLOWANCE_S)
    shared = queue.refusal("k")
    assert shared is not None
    assert shared.note == "new"


def two_under_way() -> Queue:
    """A queue in which two pods of one kind, `A` for all and `B` as a fresh one, are being decided on at once."""
    queue = queue_of(A)
    park(queue, A, kind="k")
    queue.wake(EVERYTHING, 0)
    assert tried(queue, LONGEST_BACKOFF_S) == A
    queue.put(B, 0, LONGEST_BACKOFF_S)
    assert tried(queue, LONGEST_BACKOFF_S) == B
    return queue


def test_pods_of_a_kind_that_are_refused_at_once_are_counted_once() -> None:
    """When both have been refused and are gone, a change of a node finds nothing to probe."""
    queue = two_under_way()
    queue.park(B, "k", KindRefusal(), LONGEST_BACKOFF_S)
    queue.join(A, "k", LONGEST_BACKOFF_S)
    assert queue.counts[QueuePlace.PARKED] == 2
    for uid in (A, B):
        queue.discard(uid, LONGEST_BACKOFF_S)
    queue.gained(N1, ANY, LONGEST_BACKOFF_S)
    assert queue.take(LONGEST_BACKOFF_S) is None


def test_pod_that_changes_during_its_attempt_is_not_parked_by_another_of_its_kind() -> None:
    """The changed pod is tried again, although the refusal of its former kind is in force."""
    queue = two_under_way()
    queue.put(A, 0, LONGEST_BACKOFF_S)
    queue.park(B, "k", KindRefusal(), LONGEST_BACKOFF_S)
    assert queue.counts[QueuePlace.PARKED] == 1
    queue.at_once(A, LONGEST_BACKOFF_S)
    assert tried(queue, LONGEST_BACKOFF_S) == A
