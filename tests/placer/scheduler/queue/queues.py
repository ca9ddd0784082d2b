"""Queues whose clock and work the tests turn by hand."""

from collections.abc import Hashable

from placer.scheduler.queue.hints import EVERYTHING, NOTHING, Cause, Gain
from placer.scheduler.queue.parking import KindRefusal
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.tries import Probe
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
    queue: Queue, uid: PodUid, now_s: float = 0.0, kind: Hashable = None, refusal: KindRefusal | None = None
) -> None:
    """Try the pod, which is next, and park it."""
    assert tried(queue, now_s) == uid
    queue.park(uid, uid if kind is None else kind, refusal or KindRefusal(), now_s)


def probed(queue: Queue, now_s: float, causes: Cause = NOTHING) -> tuple[PodUid, NodeName]:
    """Do the next work, a probe, with this result."""
    work = queue.take(now_s)
    assert isinstance(work, Probe), work
    queue.probed(work, causes, now_s)
    return work.uid, work.node
