"""The rules of the queue, on a clock that the tests advance: as transcripts, and for any history."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.scheduler.queue.active import ALLOWANCE_S, RETRIES_SHARE
from placer.scheduler.queue.queue import UNSCHEDULABLE_AT_MOST_S, Queue
from placer.scheduler.queue.queued_pod import LONGEST_BACKOFF_S, Diagnosis
from placer.scheduler.queue.queueing_hints import EVERYTHING, NOTHING, Cause, ClusterEvent
from placer.scheduler.queue.states import NEXT, QueueEvent, QueueState
from placer.scheduler.queue.unschedulable import Probe
from plimsoll.ids import PodUid
from tests.placer.scheduler.queue.queues import (
    ANY,
    N1,
    A,
    B,
    C,
    D,
    Transcript,
    queue_of,
    refuse,
    transcripts,
    tried,
    waiting_pod,
)

TRANSCRIPTS = dict(transcripts())
ANYWHERE = ClusterEvent(EVERYTHING)


@pytest.mark.parametrize("heading", TRANSCRIPTS)
def test_transcript(heading: str) -> None:
    """Each command has the result that the transcript says."""
    told = Transcript()
    for line in TRANSCRIPTS[heading]:
        command, _, result = (part.strip() for part in line.partition("|"))
        assert (line, told.do(command)) == (line, result)


def test_every_state_is_entered_and_left_and_every_event_matters() -> None:
    """A state that no event leads to, or out of, would be a mistake in the table."""
    assert {after for row in NEXT.values() for after in row.values()} == set(QueueState)
    assert {event for row in NEXT.values() for event in row} == set(QueueEvent)
    assert all(set(row.values()) - {state} for state, row in NEXT.items())


def test_signatures_that_were_refused_together_do_not_come_back_together() -> None:
    """The first half of the longest wait is certain, and the rest is spread."""
    early = Queue(spread=lambda: 0.0)
    early.update(waiting_pod(A), 0)
    refuse(early, A)
    assert early.due_s() == UNSCHEDULABLE_AT_MOST_S / 2


@pytest.mark.parametrize(
    ("causes", "request_", "event", "is_probed"),
    [
        (Cause.MEMORY, 10, (Cause.MEMORY, 10, 9, 10), True),
        (Cause.MEMORY, 10, (Cause.MEMORY, 9, 5, 9), False),  # it requests more than the node can give
        (Cause.MEMORY, 10, (Cause.MEMORY, 20, 10, 20), False),  # memory was no obstacle there
        (Cause.MEMORY, 10, (Cause.MEMORY, 20, 5, 9), False),  # another GPU grew than the best
        (Cause.MEMORY, 10, (Cause.SHARE, 20), False),
        (Cause.MEMORY | Cause.SHARE, 10, (Cause.SHARE, 20), True),
        (Cause.MEMORY | Cause.SHARE, 10, (Cause.SHARE, 9), False),
        (Cause.MEMORIES, 10, (Cause.MEMORY | Cause.MEMORIES, 20, 15, 20), True),
        (Cause.PERCENTAGE, 40, (Cause.PERCENTAGE, 2**34, 9, 10, 39, 40), True),
        (Cause.PERCENTAGE, 40, (Cause.PERCENTAGE, 2**34, 9, 10, 40, 90), False),  # it fitted before
        (Cause.PERCENTAGE, 40, (Cause.PERCENTAGE, 2**34, 9, 10, 10, 39), False),  # and still does not
        (Cause.PERCENTAGE, 40, (EVERYTHING, 0), False),  # a node without a GPU
        (Cause.PERCENTAGE, 40, (EVERYTHING, 2**34), True),
        (Cause.PERCENTAGE | Cause.SHARE, 40, (Cause.SHARE, 2**34), True),
        (Cause.RESOURCES, 0, (Cause.RESOURCES | Cause.NODE,), True),
        (Cause.NODE, 0, (Cause.MEMORY | Cause.MEMORIES, 20), False),
    ],
)
def test_only_events_that_share_a_cause_and_have_the_bytes_lead_to_a_probe(
    causes: Cause,
    request_: int,
    event: tuple[Cause, *tuple[int, ...]],
    is_probed: bool,  # noqa: FBT001
) -> None:
    """An event leads to a probe only for the pods that it concerns."""
    queue = queue_of(A)
    refuse(queue, A, Diagnosis("", causes, request_))
    lifted, *amounts = event
    names = ("best_bytes", "above_bytes", "up_to_bytes", "above_pct", "up_to_pct")
    queue.move_on(ClusterEvent(lifted, N1, **dict(zip(names, amounts, strict=False))), 5)  # type: ignore[arg-type]
    assert isinstance(queue.pop(5), Probe) is is_probed


def test_pods_that_the_leader_refused_do_not_delay_a_new_one() -> None:
    """After a takeover a new pod waits for few of the pods that were refused while this placer followed."""
    queue, now_s, tries = queue_of(), 0.0, 1
    for number in range(100):
        queue.update(waiting_pod(f"refused{number}"), now_s)
        queue.update(waiting_pod(f"refused{number}"), now_s, is_changed=False, was_tried=True)
    queue.update(waiting_pod(A), now_s)
    while (old := tried(queue, now_s)) != A:
        assert old is not None
        queue.reject(old, now_s)
        now_s, tries = now_s + 0.005, tries + 1
    assert tries < 20


def test_retries_go_first_only_while_they_have_not_used_up_their_share() -> None:
    """Retries and new pods both go on. Retries get about their share of the time, and new pods the rest."""
    queue, now_s, tries = queue_of(), 0.0, {"old": 0, "new": 0}
    for index in range(4000):
        queue.update(waiting_pod(f"old{index}"), 0, was_tried=True)
        queue.update(waiting_pod(f"new{index}"), 0)
    for _ in range(2000):
        uid = tried(queue, now_s)
        assert uid is not None
        tries[uid[:3]] += 1
        now_s += 0.003  # each attempt takes as long
        queue.reject(uid, now_s)
    assert abs(tries["old"] / 2000 - RETRIES_SHARE) < 0.02


def test_new_pod_waits_for_one_piece_of_hopeless_retries_at_most() -> None:
    """With 2000 signatures that keep coming back, a new pod is tried once their allowance is used up."""
    queue, now_s = queue_of(), 0.0
    for index in range(2000):
        queue.update(waiting_pod(f"old{index}"), 0, was_tried=True)
    waits = []
    for round_number in range(50):
        for _ in range(30):  # this many retries go on before the next new pod comes
            uid = tried(queue, now_s)
            now_s += 0.005
            if uid is not None:
                queue.add_unschedulable(uid, uid, Diagnosis(), now_s)
                queue.move_on(ANYWHERE, now_s)
        new, since_s = PodUid(f"new{round_number}"), now_s
        queue.update(waiting_pod(new), now_s)
        while (uid := tried(queue, now_s)) != new:
            now_s += 0.005
            assert uid is not None
            queue.add_unschedulable(uid, uid, Diagnosis(), now_s)
        queue.assumed(new, now_s)
        queue.delete(new, now_s)
        waits.append(now_s - since_s)
    assert max(waits) <= ALLOWANCE_S + 0.01


UIDS = [A, B, C, D]
SIGNATURES = st.sampled_from(["k", "l"])
ACTS = st.sampled_from(
    [
        *("update", "activate", "claim", "delete", "pop", "pop", "failed", "overtaken", "refused"),
        *("assumed", "rejected", "anywhere", "node"),
    ]
)


@given(st.lists(st.tuples(ACTS, st.sampled_from(UIDS), SIGNATURES, st.floats(0, 20)), max_size=60))
def test_no_pod_is_lost_or_tried_twice_at_once(acts: list[tuple[str, PodUid, str, float]]) -> None:
    """After any history, each pod is under way, rejected, or comes out of the queue exactly once."""
    queue, now_s = Queue(), 0.0
    popped: set[PodUid] = set()
    rejected: set[PodUid] = set()
    for act, uid, signature, wait_s in acts:
        now_s += wait_s
        match act:
            case "update":
                queue.update(waiting_pod(uid), now_s)
                rejected.discard(uid)
            case "activate":
                queue.activate(uid, now_s)
                rejected.discard(uid)
            case "claim":
                queue.claim_changed(uid, now_s)
            case "delete":
                queue.delete(uid, now_s)
                popped.discard(uid)
                rejected.discard(uid)
            case "pop":
                _pop(queue, now_s, popped)
            case "anywhere":
                queue.move_on(ANYWHERE, now_s)
            case "node":
                queue.move_on(ANY, now_s)
            case _ if uid in popped:
                _end_attempt(queue, act, uid, signature, now_s)
                popped -= {uid} if act != "assumed" else set()
                rejected |= {uid} if act == "rejected" else set()
        assert sum(queue.counts.values()) == len(queue)
    _check_all_come_out(queue, now_s, popped, rejected)


def _end_attempt(queue: Queue, act: str, uid: PodUid, signature: str, now_s: float) -> None:
    found = queue.unschedulable.find(signature)
    is_shared = found is not None and found.shared is not None
    pod = queue.get(uid)
    assert pod is not None
    is_bound = pod.state is QueueState.BINDING
    match act:
        case "refused" if not is_bound:
            queue.add_unschedulable(uid, signature, None if is_shared else Diagnosis(), now_s)
        case "rejected" if not is_bound:
            queue.reject(uid, now_s)
        case "assumed":
            queue.assumed(uid, now_s)
        case _:
            queue.requeue(uid, now_s, 0.0 if act == "overtaken" else None)


def _pop(queue: Queue, now_s: float, popped: set[PodUid]) -> PodUid | None:
    """Do the next work; a probe for one of the pods fails."""
    work = queue.pop(now_s)
    if isinstance(work, Probe):
        assert work.pod.uid not in popped
        queue.probed(work, Cause.NODE if work.pod.uid == A else NOTHING, now_s)
        return _pop(queue, now_s, popped)
    if work is None:
        return None
    assert work.uid not in popped
    popped.add(work.uid)
    return work.uid


def _check_all_come_out(queue: Queue, now_s: float, popped: set[PodUid], rejected: set[PodUid]) -> None:
    """Each pod that is neither under way nor rejected comes out once, if each pod that comes out is placed."""
    late_s = now_s + UNSCHEDULABLE_AT_MOST_S + LONGEST_BACKOFF_S
    out: list[PodUid] = []
    while (uid := _pop(queue, late_s, popped)) is not None:
        out.append(uid)
        queue.assumed(uid, late_s)
    assert len(out) == len(set(out))
    left = {uid for uid in UIDS if uid in queue} - popped
    assert left <= rejected
    assert queue.counts[QueueState.REJECTED] == len(left)


@given(
    st.lists(st.tuples(st.booleans(), st.floats(0.0001, 0.02)), min_size=1, max_size=200),
    st.integers(1, 50),
)
def test_new_pods_never_wait_for_retries_for_ever(attempts: list[tuple[bool, float]], olds: int) -> None:
    """Whatever the attempts take, new pods get all time but the allowance and the share of retries."""
    queue, now_s, of_retries_s, of_new_s = Queue(), 0.0, 0.0, 0.0
    for index in range(olds):
        queue.update(waiting_pod(f"old{index}"), 0, was_tried=True)
    for index in range(len(attempts)):
        queue.update(waiting_pod(f"new{index}"), 0)
    for comes_back, spent_s in attempts:
        uid = tried(queue, now_s)
        assert uid is not None
        now_s += spent_s
        if uid.startswith("old"):
            of_retries_s += spent_s
            if comes_back:
                queue.activate(uid, now_s)
            queue.reject(uid, now_s)
        else:
            of_new_s += spent_s
            queue.assumed(uid, now_s)
    longest_s = max(spent_s for _, spent_s in attempts)
    assert of_retries_s <= ALLOWANCE_S + longest_s + of_new_s * RETRIES_SHARE / (1 - RETRIES_SHARE) + 1e-9
