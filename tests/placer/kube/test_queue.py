"""The rules of the queue, on a clock that the tests advance."""

from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.kube.hints import EVERYTHING, NOTHING, Cause, Gain
from placer.kube.parking import PROBES_AT_MOST, Refusal
from placer.kube.queue import (
    CREDIT_S,
    LONGEST_BACKOFF_S,
    PARKED_AT_MOST_S,
    RETRIES_SHARE,
    Place,
    Probe,
    Queue,
    Try,
)
from plimsoll.ids import NodeName, PodUid

A, B, C, D = PodUid("a"), PodUid("b"), PodUid("c"), PodUid("d")
N1, N2 = NodeName("n1"), NodeName("n2")
ANY = Gain(EVERYTHING, 2**40)
"""A gain that may help every pod."""


def queue_of(*uids: PodUid) -> Queue:
    """A queue of fresh pods, in the order of their entry; nothing is spread at random."""
    queue = Queue(spread=lambda: 1.0)
    for uid in uids:
        queue.put(uid, 0, 0)
    return queue


def tried(queue: Queue, now_s: float) -> PodUid | None:
    """The pod to try now; None if there is no work."""
    work = queue.take(now_s)
    assert not isinstance(work, Probe), work
    return work.uid if work is not None else None


def park(
    queue: Queue, uid: PodUid, now_s: float = 0.0, kind: Hashable = None, refusal: Refusal | None = None
) -> None:
    """Try the pod, which is next, and park it."""
    assert tried(queue, now_s) == uid
    queue.park(uid, uid if kind is None else kind, refusal or Refusal(), now_s)


def probed(queue: Queue, now_s: float, causes: Cause = NOTHING) -> tuple[PodUid, NodeName]:
    """Do the next work, a probe, with this result."""
    work = queue.take(now_s)
    assert isinstance(work, Probe), work
    queue.probed(work, causes, now_s)
    return work.uid, work.node


def test_higher_priority_goes_first_then_the_pod_that_entered_first() -> None:
    """Priority outranks the order of entry, and the order of entry decides among equals."""
    queue = queue_of(B, A)
    queue.put(C, 10, 0)
    assert [tried(queue, 0) for _ in range(4)] == [C, B, A, None]


def test_backoff_doubles_from_one_second_to_ten() -> None:
    """A pod that fails again and again waits 1, 2, 4, 8, 10, 10 … seconds."""
    queue, now_s, waits = queue_of(A), 0.0, []
    for _ in range(6):
        assert tried(queue, now_s) == A
        queue.again(A, now_s)
        assert tried(queue, now_s) is None
        due_s = queue.due_s()
        assert due_s is not None
        assert tried(queue, due_s - 0.001) is None
        waits.append(due_s - now_s)
        now_s = due_s
    assert waits == [1, 2, 4, 8, 10, 10]


def test_failing_pod_does_not_starve_a_younger_one() -> None:
    """After the older pod failed, the younger one is tried before it."""
    queue = queue_of(A, B)
    assert tried(queue, 0) == A
    queue.again(A, 0)
    assert tried(queue, 0) == B


def test_pod_that_comes_back_stands_behind_those_that_came_before() -> None:
    """Retries are tried in the order in which they came back, whichever pod is the oldest."""
    queue = queue_of(A, B)
    assert [tried(queue, 0), tried(queue, 0)] == [A, B]
    queue.again(B, 0)
    queue.again(A, 0.5)
    assert [tried(queue, 5), tried(queue, 5)] == [B, A]


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
    assert queue.counts[Place.PARKED] == 1
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
    assert queue.counts[Place.PARKED] == 1
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
    park(queue, A, refusal=Refusal("", causes, ask))
    queue.gained(N1, gain, 5)
    assert isinstance(queue.take(5), Probe) is is_probed


def test_failed_probe_adds_its_causes() -> None:
    """After a lifted taint a probe found too little CPU, so a gain of CPU leads to another probe."""
    queue = queue_of(A)
    park(queue, A, refusal=Refusal("", Cause.NODE))
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
    queue.park(A, A, Refusal(), 0.2)
    assert queue.due_s() == 0.2 + PARKED_AT_MOST_S
    assert tried(queue, LONGEST_BACKOFF_S) is None
    queue.gained(N1, ANY, LONGEST_BACKOFF_S)
    assert probed(queue, LONGEST_BACKOFF_S) == (A, N1)


def test_pods_of_a_kind_share_a_refusal_and_wait_for_the_try_of_one() -> None:
    """The second pod of a kind is refused without a decision, and one pod is tried for both."""
    queue = queue_of(A, B)
    park(queue, A, kind="k", refusal=Refusal("full"))
    assert tried(queue, 0) == B
    shared = queue.refusal("k")
    assert shared is not None
    assert shared.note == "full"
    queue.join(B, "k", 0)
    assert queue.counts[Place.PARKED] == 2
    queue.gained(N1, ANY, 5)
    assert probed(queue, 5) == (A, N1)
    assert tried(queue, 5) == A
    assert tried(queue, 5) is None
    queue.park(A, "k", Refusal(), 5)
    assert queue.counts[Place.PARKED] == 2
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
    queue.park(C, "k", Refusal(), 5)
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
    assert tried(queue, 5 + 2 * CREDIT_S) == C
    queue.park(C, "k", Refusal("new"), 5 + 2 * CREDIT_S)
    shared = queue.refusal("k")
    assert shared is not None
    assert shared.note == "new"


def test_hopeless_pod_comes_back_only_when_it_is_changed() -> None:
    """Only a change of the pod itself brings a hopeless pod back, and at once. Time and gains do not."""
    queue = queue_of(A)
    assert tried(queue, 0) == A
    queue.give_up(A, 0)
    queue.gained(N1, ANY, 1)
    queue.wake(EVERYTHING, 1)
    assert tried(queue, 10_000) is None
    assert queue.due_s() is None
    queue.put(A, 0, 10_000)
    assert tried(queue, 10_000) == A


def test_pod_changed_while_it_was_refused_is_tried_again_at_once() -> None:
    """A malformed pod that is mended during the attempt that refused it is tried again."""
    queue = queue_of(A)
    assert tried(queue, 0) == A
    queue.put(A, 0, 0)
    assert tried(queue, 0) is None
    queue.give_up(A, 0)
    assert tried(queue, 0) == A


def test_discarded_pod_never_comes_back() -> None:
    """A pod that was bound or deleted is never tried again, whatever is called for it afterwards."""
    queue = queue_of(A, B)
    assert tried(queue, 0) == A
    queue.discard(A, 0)
    queue.again(A, 0)
    queue.park(A, "k", Refusal(), 0)
    queue.join(A, "k", 0)
    queue.placed(A, 0)
    queue.give_up(A, 0)
    queue.wake(EVERYTHING, 0)
    queue.discard(B, 0)
    assert tried(queue, 1000) is None
    assert (len(queue), queue.due_s()) == (0, None)
    assert set(queue.counts.values()) == {0}


def test_pod_that_another_placer_tried_is_not_fresh() -> None:
    """After a restart, pods that were refused before stand behind those that were never tried."""
    queue = queue_of()
    queue.put(A, 0, 0, tried=True)
    queue.put(B, 1, 0)
    assert [tried(queue, 0), tried(queue, 0)] == [B, A]


def test_retries_go_first_only_while_they_have_not_used_up_their_share() -> None:
    """Retries and fresh pods both go on. Retries get about their share of the time, and fresh pods the rest."""
    queue, now_s, tries = Queue(spread=lambda: 1.0), 0.0, {"old": 0, "new": 0}
    for index in range(4000):
        queue.put(PodUid(f"old{index}"), 0, 0, tried=True)
        queue.put(PodUid(f"new{index}"), 0, 0)
    for _ in range(2000):
        uid = tried(queue, now_s)
        assert uid is not None
        tries[uid[:3]] += 1
        now_s += 0.003  # each attempt takes as long
        queue.give_up(uid, now_s)
    assert abs(tries["old"] / 2000 - RETRIES_SHARE) < 0.02


def test_retry_of_lower_priority_never_goes_before_a_fresh_pod() -> None:
    """The share of retries is no way around priorities."""
    queue = queue_of()
    queue.put(A, 0, 0, tried=True)
    queue.put(B, 1, 0)
    assert tried(queue, 0) == B


def test_new_pod_waits_for_one_piece_of_hopeless_retries_at_most() -> None:
    """With 2000 kinds that keep coming back, a new pod is tried once their credit is used up."""
    queue, now_s = Queue(spread=lambda: 1.0), 0.0
    for index in range(2000):
        queue.put(PodUid(f"old{index}"), 0, 0, tried=True)
    waits = []
    for round_number in range(50):
        for _ in range(30):  # so many retries go on before the next new pod comes
            uid = tried(queue, now_s)
            now_s += 0.005
            if uid is not None:
                queue.park(uid, uid, Refusal(), now_s)
                queue.wake(EVERYTHING, now_s)
        new, since_s = PodUid(f"new{round_number}"), now_s
        queue.put(new, 0, now_s)
        while (uid := tried(queue, now_s)) != new:
            now_s += 0.005
            assert uid is not None
            queue.park(uid, uid, Refusal(), now_s)
        queue.placed(new, now_s)
        queue.discard(new, now_s)
        waits.append(now_s - since_s)
    assert max(waits) <= CREDIT_S + 0.01


def test_nodes_that_change_all_the_time_do_not_keep_retries_waiting() -> None:
    """Between the probes of two nodes a retry is tried."""
    queue = queue_of()
    for uid in (A, B):
        queue.put(uid, 0, 0)
        park(queue, uid)
    queue.put(C, 0, 0, tried=True)
    for index in range(5):
        queue.gained(NodeName(f"n{index}"), ANY, 5)
    works = []
    for _ in range(3):
        work = queue.take(5)
        works.append(type(work))
        if isinstance(work, Probe):
            queue.probed(work, Cause.NODE, 5)
    assert works == [Probe, Probe, Try]


UIDS = [A, B, C, D]
KINDS = st.sampled_from(["k", "l"])
ACTS = st.sampled_from(
    ["put", "discard", "take", "take", "again", "park", "placed", "give_up", "wake", "gained"]
)


@given(st.lists(st.tuples(ACTS, st.sampled_from(UIDS), KINDS, st.floats(0, 20)), max_size=60))
def test_no_pod_is_lost_or_tried_twice_at_once(acts: list[tuple[str, PodUid, str, float]]) -> None:
    """After any history, each pod is under way, given up, or comes out of the queue exactly once."""
    queue, now_s = Queue(), 0.0
    taken: set[PodUid] = set()
    given_up: set[PodUid] = set()
    for act, uid, kind, wait_s in acts:
        now_s += wait_s
        match act:
            case "put":
                queue.put(uid, 0, now_s)
                given_up.discard(uid)
            case "discard":
                queue.discard(uid, now_s)
                taken.discard(uid)
                given_up.discard(uid)
            case "take":
                _take(queue, now_s, taken)
            case "wake":
                queue.wake(EVERYTHING, now_s)
            case "gained":
                queue.gained(N1, ANY, now_s)
            case _ if uid in taken:
                _end_attempt(queue, act, uid, kind, now_s)
                taken -= {uid} if act != "placed" else set()
                given_up |= {uid} if act == "give_up" else set()
        assert sum(queue.counts.values()) == len(queue)
    _check_all_come_out(queue, now_s, taken, given_up)


def _end_attempt(queue: Queue, act: str, uid: PodUid, kind: str, now_s: float) -> None:
    match act:
        case "park" if queue.refusal(kind) is not None:
            queue.join(uid, kind, now_s)
        case "park":
            queue.park(uid, kind, Refusal(), now_s)
        case "give_up":
            queue.give_up(uid, now_s)
        case "again":
            queue.again(uid, now_s)
        case "placed":
            queue.placed(uid, now_s)


def _take(queue: Queue, now_s: float, taken: set[PodUid]) -> PodUid | None:
    """Do the next work; a probe for one of the pods fails."""
    work = queue.take(now_s)
    if isinstance(work, Probe):
        assert work.uid not in taken
        queue.probed(work, Cause.NODE if work.uid == A else NOTHING, now_s)
        return _take(queue, now_s, taken)
    if work is None:
        return None
    assert work.uid not in taken
    taken.add(work.uid)
    return work.uid


def _check_all_come_out(queue: Queue, now_s: float, taken: set[PodUid], given_up: set[PodUid]) -> None:
    """Each pod that is neither under way nor given up comes out once, if each pod that comes out is placed."""
    late_s = now_s + PARKED_AT_MOST_S + LONGEST_BACKOFF_S
    out: list[PodUid] = []
    while (uid := _take(queue, late_s, taken)) is not None:
        out.append(uid)
        queue.placed(uid, late_s)
    assert len(out) == len(set(out))
    left = {uid for uid in UIDS if uid in queue} - taken
    assert left <= given_up
    assert queue.counts[Place.HOPELESS] == len(left)


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0.0001, 0.02)), min_size=1, max_size=200),
    st.integers(1, 50),
)
def test_fresh_pods_never_wait_for_retries_for_ever(attempts: list[tuple[bool, float]], olds: int) -> None:
    """Whatever the attempts take, fresh pods get all time but the credit and the share of retries."""
    queue, now_s, of_retries_s, of_fresh_s = Queue(), 0.0, 0.0, 0.0
    for index in range(olds):
        queue.put(PodUid(f"old{index}"), 0, 0, tried=True)
    for index in range(len(attempts)):
        queue.put(PodUid(f"new{index}"), 0, 0)
    for comes_back, spent_s in attempts:
        uid = tried(queue, now_s)
        assert uid is not None
        now_s += spent_s
        if uid.startswith("old"):
            of_retries_s += spent_s
            if comes_back:
                queue.put(uid, 0, now_s)
            queue.give_up(uid, now_s)
        else:
            of_fresh_s += spent_s
            queue.placed(uid, now_s)
    longest_s = max(spent_s for _, spent_s in attempts)
    assert of_retries_s <= CREDIT_S + longest_s + of_fresh_s * RETRIES_SHARE / (1 - RETRIES_SHARE) + 1e-9


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
    queue.park(B, "k", Refusal(), LONGEST_BACKOFF_S)
    queue.join(A, "k", LONGEST_BACKOFF_S)
    assert queue.counts[Place.PARKED] == 2
    for uid in (A, B):
        queue.discard(uid, LONGEST_BACKOFF_S)
    queue.gained(N1, ANY, LONGEST_BACKOFF_S)
    assert queue.take(LONGEST_BACKOFF_S) is None


def test_pod_that_changes_during_its_attempt_is_not_parked_by_another_of_its_kind() -> None:
    """The changed pod is tried again, although the refusal of its former kind is in force."""
    queue = two_under_way()
    queue.put(A, 0, LONGEST_BACKOFF_S)
    queue.park(B, "k", Refusal(), LONGEST_BACKOFF_S)
    assert queue.counts[Place.PARKED] == 1
    queue.at_once(A, LONGEST_BACKOFF_S)
    assert tried(queue, LONGEST_BACKOFF_S) == A


def test_upcoming_pods_are_those_of_the_highest_rank_and_one_of_each_parked_kind() -> None:
    """However many pods wait, so many are named at most, and each that is tried next is among them."""
    queue = queue_of(PodUid("parked"), PodUid("joins"))
    park(queue, PodUid("parked"), kind="large")
    assert tried(queue, 0) == "joins"
    queue.join(PodUid("joins"), "large", 0)
    queue.put(PodUid("retry"), 0, 0, tried=True)
    for number in reversed(range(100)):
        queue.put(PodUid(f"fresh-{number:02}"), -number, 0)
    named = queue.upcoming(12)
    assert len(named) == 12
    assert {"parked", "retry", *(f"fresh-{number:02}" for number in range(9))} <= set(named)
    for _ in range(5):
        assert tried(queue, 0) in named
