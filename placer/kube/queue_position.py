"""A waiting pod's place in the queue, for people."""

from typing import Final

from placer.scheduler.pods.queued import QueuedPodInfo
from placer.scheduler.queue.hints import Cause
from placer.scheduler.queue.lanes import QueuedPod, QueuePlace
from placer.scheduler.queue.queue import Queue
from plimsoll.ids import PodUid
from plimsoll.placer_api.explain import Standing

AHEAD_AT_MOST: Final = 100
"""Pods of a lane that are counted: a longer way is not worth the time that it takes to count."""

WAKES: Final = {
    Cause.MEMORY: "GPU memory is freed",
    Cause.MEMORIES: "GPU memory is freed",
    Cause.PERCENTAGE: "GPU memory is freed",
    Cause.SHARE: "compute time of a GPU is freed",
    Cause.OCCUPANCY: "a GPU is freed",
    Cause.LABELS: "a pod with a locality label leaves its GPU",
    Cause.GPUS: "a node reports other GPUs",
    Cause.POOL: "a GPU joins the pool, or can be acquired",
    Cause.RESOURCES: "a pod on a node ends, or a node has more to give",
    Cause.NODE: "a node comes, or changes its labels, taints or readiness",
    Cause.RULES: "pods come or go that its rules are about, or whose rules are about it",
    Cause.VOLUMES: "a volume of its claims changes, or a node gets the CSI driver",
}
"""The changes that lift each cause, for people."""


def standing_of(uid: PodUid, waiting: QueuedPodInfo, queue: Queue, now_s: float) -> Standing | None:
    """The pod's place in the queue; None for a pod that is not in it.

    Args:
        uid: the pod.
        waiting: the same pod.
        queue: the queue.
        now_s: the time, on the clock of the queue.
    """
    entry = queue.entry(uid)
    if entry is None:
        return None
    kind = entry.kind if entry.place is QueuePlace.PARKED else None
    return Standing(
        place=entry.place.value,
        since=waiting.pod.metadata.creationTimestamp,
        waits_s=max(0.0, now_s - waiting.seen_s),
        attempts=entry.attempts,
        priority=entry.priority,
        ahead=_ahead(entry, queue),
        next_try_s=_next_try_s(entry, now_s),
        alike=kind.waiting - 1 if kind is not None else 0,
        wakes_on=_wakes(kind.refusal.causes) if kind is not None else (),
    )


def _ahead(entry: QueuedPod, queue: Queue) -> int | None:
    """The number of pods of its lane that are tried before a pod; None for too many, and outside of the lanes."""
    if entry.place not in (QueuePlace.FRESH, QueuePlace.RETRY):
        return None
    first = queue.first(entry.place, AHEAD_AT_MOST + 1)
    return first.index(entry.uid) if entry.uid in first else None


def _next_try_s(entry: QueuedPod, now_s: float) -> float | None:
    """The time in seconds until a pod is tried by itself; None if that is not known."""
    if entry.place is QueuePlace.BACKOFF:
        return max(0.0, entry.due_s - now_s)
    kind = entry.kind
    if entry.place is QueuePlace.PARKED and kind is not None and kind.front is None:
        return max(0.0, kind.due_s - now_s)
    return None


def _wakes(causes: Cause) -> tuple[str, ...]:
    return tuple(dict.fromkeys(WAKES[cause] for cause in causes))
