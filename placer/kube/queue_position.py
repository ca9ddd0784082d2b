"""A waiting pod's place in the queue, for people."""

from typing import Final

from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import QueuedPodInfo
from placer.scheduler.queue.queueing_hints import Cause
from placer.scheduler.queue.states import QueueState
from plimsoll.placer_api.explain import QueuePosition

AHEAD_AT_MOST: Final = 100
"""Active pods that are counted: a longer way is not worth the time that it takes to count."""

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


def queue_position(pod: QueuedPodInfo, queue: Queue, now_s: float) -> QueuePosition:
    """The place of a pod in the queue; `now_s` is the time on the queue's clock."""
    alike = pod.alike if pod.is_unschedulable else None
    return QueuePosition(
        place=pod.state.label,
        since=pod.pod.metadata.creationTimestamp,
        waits_s=max(0.0, now_s - pod.seen_s),
        attempts=pod.attempts,
        priority=pod.priority,
        ahead=_ahead(pod, queue),
        next_try_s=_next_try_s(pod, now_s),
        alike=alike.waiting - 1 if alike is not None else 0,
        wakes_on=_wakes(alike.diagnosis.causes) if alike is not None else (),
    )


def _ahead(pod: QueuedPodInfo, queue: Queue) -> int | None:
    """The active pods of its sort that are tried before a pod; None for too many, or if it is not active."""
    heap = queue.active.heap_of(pod.state)
    first = heap.first(AHEAD_AT_MOST + 1) if heap is not None else []
    return first.index(pod) if pod in first else None


def _next_try_s(pod: QueuedPodInfo, now_s: float) -> float | None:
    """The time in seconds until a pod is tried by itself; None if that is not known."""
    if pod.state is QueueState.BACKOFF:
        return max(0.0, pod.due_s - now_s)
    if pod.is_unschedulable and pod.alike is not None and pod.alike.chosen is None:
        return max(0.0, pod.alike.due_s - now_s)
    return None


def _wakes(causes: Cause) -> tuple[str, ...]:
    return tuple(dict.fromkeys(WAKES[cause] for cause in causes))
