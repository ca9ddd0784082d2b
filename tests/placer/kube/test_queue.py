"""The rules of the queue, on a clock that the tests advance."""

from hypothesis import given
from hypothesis import strategies as st

from placer.kube.queue import LONGEST_BACKOFF_S, PARKED_AT_MOST_S, Queue
from plimsoll.ids import PodUid

A, B, C = PodUid("a"), PodUid("b"), PodUid("c")


def queue_of(*uids: PodUid) -> Queue:
    """A queue of these pods; the first is the oldest."""
    queue = Queue()
    for age, uid in enumerate(uids):
        queue.put(uid, 0, f"2026-01-01T00:00:{age:02}Z")
    return queue


def test_higher_priority_goes_first_then_the_older() -> None:
    """Priority outranks age, and age decides among equals."""
    queue = queue_of(A, B)
    queue.put(C, 10, "2026-06-01T00:00:00Z")
    assert [queue.take(0) for _ in range(4)] == [C, A, B, None]


def test_backoff_doubles_from_one_second_to_ten() -> None:
    """A pod that fails again and again waits 1, 2, 4, 8, 10, 10 … seconds."""
    queue, now_s, waits = queue_of(A), 0.0, []
    for _ in range(6):
        assert queue.take(now_s) == A
        queue.again(A, now_s)
        assert queue.take(now_s) is None
        due_s = queue.due_s()
        assert due_s is not None
        assert queue.take(due_s - 0.001) is None
        waits.append(due_s - now_s)
        now_s = due_s
    assert waits == [1, 2, 4, 8, 10, 10]


def test_failing_pod_does_not_starve_a_younger_one() -> None:
    """After the older pod failed, the younger one is tried before it."""
    queue = queue_of(A, B)
    assert queue.take(0) == A
    queue.again(A, 0)
    assert queue.take(0) == B


def test_parked_pod_waits_for_a_wake_and_then_for_its_backoff() -> None:
    """A change in the cluster brings a parked pod back, but not before its backoff ends."""
    queue = queue_of(A)
    assert queue.take(0) == A
    queue.park(A, 0)
    assert queue.take(100) is None
    queue.wake(100)
    assert queue.take(100) == A
    queue.park(A, 100)
    queue.wake(100.5)
    assert queue.take(101.9) is None
    assert queue.take(102) == A


def test_parked_pod_is_tried_again_after_five_minutes() -> None:
    """A parked pod is tried again after five minutes without any change, in case a change was missed."""
    queue = queue_of(A)
    queue.take(0)
    queue.park(A, 0)
    assert queue.due_s() == PARKED_AT_MOST_S
    assert queue.take(PARKED_AT_MOST_S - 1) is None
    assert queue.take(PARKED_AT_MOST_S) == A


def test_change_during_an_attempt_is_not_lost() -> None:
    """A wake while the pod is being decided on sends it to backoff instead of parking it."""
    queue = queue_of(A)
    queue.take(0)
    queue.wake(0.1)
    queue.park(A, 0.2)
    assert queue.due_s() == 1.2


def test_hopeless_pod_comes_back_only_when_it_is_changed() -> None:
    """Only a change of the pod itself brings a hopeless pod back, and at once. Time and wakes do not."""
    queue = queue_of(A)
    queue.take(0)
    queue.give_up(A)
    queue.wake(1)
    assert queue.take(10_000) is None
    assert queue.due_s() is None
    queue.put(A, 0, "")
    assert queue.take(10_000) == A


def test_pod_changed_while_it_was_refused_is_tried_again_at_once() -> None:
    """A malformed pod that is mended during the attempt that refused it is tried again."""
    queue = queue_of(A)
    queue.take(0)
    queue.put(A, 0, "")
    assert queue.take(0) is None
    queue.give_up(A)
    assert queue.take(0) == A


def test_discarded_pod_never_comes_back() -> None:
    """A pod that was bound or deleted is never tried again, whatever is called for it afterwards."""
    queue = queue_of(A, B)
    assert queue.take(0) == A
    queue.discard(A)
    queue.again(A, 0)
    queue.park(A, 0)
    queue.give_up(A)
    queue.wake(0)
    queue.discard(B)
    assert queue.take(1000) is None
    assert (len(queue), queue.due_s()) == (0, None)


ACTS = st.sampled_from(["put", "discard", "take", "again", "park", "give_up", "wake"])


@given(st.lists(st.tuples(ACTS, st.sampled_from([A, B, C]), st.floats(0, 20))))
def test_no_pod_is_lost_or_tried_twice_at_once(acts: list[tuple[str, PodUid, float]]) -> None:
    """After any history, each pod is under way, hopeless, or comes out of the queue exactly once."""
    queue, now_s = Queue(), 0.0
    taken: set[PodUid] = set()
    for act, uid, wait_s in acts:
        now_s += wait_s
        match act:
            case "put":
                queue.put(uid, 0, "")
            case "discard":
                queue.discard(uid)
                taken.discard(uid)
            case "take":
                got = queue.take(now_s)
                assert got not in taken
                taken |= {got} if got else set()
            case "wake":
                queue.wake(now_s)
            case _ if uid in taken:
                taken.remove(uid)
                if act == "give_up":
                    queue.give_up(uid)
                else:
                    (queue.again if act == "again" else queue.park)(uid, now_s)
    late_s = now_s + PARKED_AT_MOST_S + LONGEST_BACKOFF_S
    out = []
    while (got := queue.take(late_s)) is not None:
        out.append(got)
    assert len(out) == len(set(out))
    left = {uid for uid in (A, B, C) if uid in queue}
    given_up = left - set(out) - taken
    assert not set(out) & taken
    assert all(queue._entries[uid].place.name == "HOPELESS" for uid in given_up)
