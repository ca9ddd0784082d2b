"""The rules of the queue, on a clock that the tests advance."""

from hypothesis import given
from hypothesis import strategies as st

from placer.scheduler.queue.hints import EVERYTHING, NOTHING, Cause
from placer.scheduler.queue.lanes import LONGEST_BACKOFF_S, QueuePlace
from placer.scheduler.queue.parking import KindRefusal
from placer.scheduler.queue.queue import PARKED_AT_MOST_S, Queue
from placer.scheduler.queue.retry_allowance import ALLOWANCE_S, RETRIES_SHARE
from placer.scheduler.queue.tries import Probe, Try
from plimsoll.ids import NodeName, PodUid
from tests.placer.scheduler.queue.queues import ANY, N1, A, B, C, D, park, queue_of, tried


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


def test_nudge_brings_back_a_parked_pod_alone() -> None:
    """A parked pod whose claims changed is tried at once, beside its kind. A pod that backs off keeps its pause."""
    queue = queue_of(A, B, C)
    park(queue, A, kind="kind")
    park(queue, B, kind="kind")
    assert tried(queue, 0) == C
    queue.again(C, 0)
    for uid in (B, C, D):
        queue.nudge(uid, 0.5)
    assert [tried(queue, 0.5), tried(queue, 0.5)] == [B, None]
    assert tried(queue, 1) == C


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
    queue.park(A, "k", KindRefusal(), 0)
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


def test_pods_that_the_leader_refused_are_not_fresh_for_its_follower() -> None:
    """After a takeover a new pod waits for few of the pods that were refused while this placer followed."""
    queue, now_s, tries = queue_of(), 0.0, 1
    refused = [PodUid(f"refused{number}") for number in range(100)]
    for uid in refused:
        queue.put(uid, 0, now_s)
    for uid in (*refused, PodUid("unknown")):
        queue.note_tried(uid, now_s)
    queue.put(A, 0, now_s)
    while (old := tried(queue, now_s)) != A:
        assert old is not None
        queue.note_tried(old, now_s)  # its attempt goes on
        queue.give_up(old, now_s)
        now_s, tries = now_s + 0.005, tries + 1
    assert tries < 20


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
        for _ in range(30):  # this many retries go on before the next new pod comes
            uid = tried(queue, now_s)
            now_s += 0.005
            if uid is not None:
                queue.park(uid, uid, KindRefusal(), now_s)
                queue.wake(EVERYTHING, now_s)
        new, since_s = PodUid(f"new{round_number}"), now_s
        queue.put(new, 0, now_s)
        while (uid := tried(queue, now_s)) != new:
            now_s += 0.005
            assert uid is not None
            queue.park(uid, uid, KindRefusal(), now_s)
        queue.placed(new, now_s)
        queue.discard(new, now_s)
        waits.append(now_s - since_s)
    assert max(waits) <= ALLOWANCE_S + 0.01


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
            queue.park(uid, kind, KindRefusal(), now_s)
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
    assert queue.counts[QueuePlace.GIVEN_UP] == len(left)


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
    assert of_retries_s <= ALLOWANCE_S + longest_s + of_fresh_s * RETRIES_SHARE / (1 - RETRIES_SHARE) + 1e-9


def test_upcoming_pods_are_those_of_the_highest_rank_and_one_of_each_parked_kind() -> None:
    """However many pods wait, this many are named at most, and each that is tried next is among them."""
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
