"""A heap gives what is up to date, in order, and does not grow with what was."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.scheduler.queue.heap import SPARE, Heap
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import PodUid
from tests.placer.scheduler.queue.queues import refuse, tried, waiting_pod

POD = PodUid("stays")


@given(st.lists(st.tuples(st.sampled_from(["push", "drop", "pop"]), st.integers(0, 200)), max_size=600))
def test_a_heap_is_a_sorted_set_of_what_is_up_to_date(steps: list[tuple[str, int]]) -> None:
    """Whatever comes and goes out of date, the rest comes out in order, and old items are bounded."""
    current: set[int] = set()
    heap, most = Heap(current.__contains__), 0
    for step, item in steps:
        match step:
            case "push":
                current.add(item)
                heap.push(item)
            case "drop":
                current.discard(item)
            case _ if current:
                assert heap.head() == min(current)
                current.discard(heap.pop())
        most = max(most, len(current))
        assert list(heap.in_order()) == sorted(current)
        assert len(heap) <= 2 * most + SPARE


@pytest.mark.parametrize("life", ["follower", "changed", "refused", "backoff"])
def test_a_queue_does_not_grow_with_the_pods_that_were(life: str) -> None:
    """Pods come and go, and what is kept of them is bounded: where nobody takes, and behind one that stays."""
    queue = Queue()
    queue.update(waiting_pod(POD, -1), 0.0)
    if life == "refused":
        refuse(queue, POD, signature="k")
    for number in range(3000):
        uid, now_s = PodUid(f"p{number}"), number / 1000
        queue.update(waiting_pod(uid), now_s)
        match life:
            case "follower":
                queue.update(waiting_pod(uid), now_s, is_changed=False, was_tried=True)
            case "changed":
                queue.update(waiting_pod(POD, -1 - number % 2), now_s)
            case "refused":
                assert tried(queue, now_s) == uid
                queue.add_unschedulable(uid, "k", None, now_s)
            case _:
                assert tried(queue, now_s) == uid
                queue.requeue(uid, now_s, 1000.0)
        queue.delete(uid, now_s)
    of_signatures = sum(len(one.pods) for one in queue.unschedulable)
    active = len(queue.active.never_tried) + len(queue.active.tried)
    assert len(queue) == 1
    assert active + len(queue._backoff) + of_signatures <= 4 * (SPARE + 2)
    assert queue.upcoming(8) == [POD]
