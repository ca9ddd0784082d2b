"""Takes in what the watch shows of pods: those that wait, those that have a node, and those that are gone.

What always holds: a pod that has a node counts in the cluster until it has ended or is gone, whichever scheduler
placed it. A pod that waits for this scheduler is in the queue. A pod that is being bound is at most once in each.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from placer.scheduler.binding.volumes import VolumeBinding
from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.pods.pod_info import same_pod
from placer.scheduler.preemption.nominated_pods import NominatedPods
from placer.scheduler.queue.queue import Queue
from placer.scheduler.reporting.condition import SCHEDULER_ERROR, UNSCHEDULABLE, scheduled_condition
from plimsoll.contract import DECISION, SCHEDULER_NAME
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Synced
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger


class PodListener(Protocol):
    """Learns of all pods."""

    def put(self, pod: Pod) -> None:
        """Take a pod that is new or changed."""

    def remove(self, pod: Pod) -> None:
        """Take a pod that is gone; it may be unknown."""


@dataclass(frozen=True, slots=True)
class PodEventHandler:
    """Passes the changes of pods on.

    Attributes:
        listeners: learn of all pods, in this order.
        queue: the pods without a node that this scheduler could place.
        cache: the nodes with their pods.
        claims: learns which pods wait for claims, and which have ended.
        nominated: learns of nominated pods and of victims.
        on_waiting: called with each pod that waits for this scheduler, before it is queued.
        on_rival: called with a pod that waited for this scheduler, and that somebody else gave GPUs.
        synced: set once all pods were read.
    """

    listeners: tuple[PodListener, ...]
    queue: Queue
    cache: Cache
    claims: VolumeBinding
    nominated: NominatedPods
    on_waiting: Callable[[Pod], None]
    on_rival: Callable[[Pod], None]
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, change: Change[Pod]) -> None:
        """Take in a change of the watch."""
        match change:
            case Synced():
                self.synced.set()
            case Deleted(pod):
                self._drop(PodUid(pod.metadata.uid))
                for listener in self.listeners:
                    listener.remove(pod)
            case Added(pod) | Modified(pod):
                for listener in self.listeners:
                    listener.put(pod)
                self._put(pod, change.old if isinstance(change, Modified) else None)

    def forget_waiting(self, uid: PodUid) -> None:
        """Take a pod out of those that wait; an unknown pod is no error."""
        self.claims.forget_waiting(uid)
        self.queue.delete(uid, loop_now_s())

    def _put(self, pod: Pod, known: Pod | None) -> None:
        uid = PodUid(pod.metadata.uid)
        if pod.status.phase in TERMINAL_PHASES:
            self._drop(uid)
        elif pod.spec.nodeName:
            self._confirm(pod)
        elif _is_ours(pod):
            self.nominated.observe(pod)
            self.on_waiting(pod)
            self._await_node(pod, is_changed=known is None or not same_pod(pod, known))
        elif not self.cache.is_assumed(uid):
            self.forget_waiting(uid)
            self.nominated.observe(pod)

    def _drop(self, uid: PodUid) -> None:
        """Free the room of a pod that is gone or ended, for waiting pods."""
        ended = self.cache.assigned.find(uid)
        self.forget_waiting(uid)
        self.nominated.forget(uid)
        self.cache.forget(uid)
        self.claims.binder.note_pod(uid)
        if ended is not None:
            self.nominated.pod_ends(ended.node)

    def _confirm(self, pod: Pod) -> None:
        uid = PodUid(pod.metadata.uid)
        if (
            uid in self.queue
            and not self.cache.is_assumed(uid)
            and DECISION in (pod.metadata.annotations or {})
        ):
            self.on_rival(pod)
        self.forget_waiting(uid)
        self.nominated.forget(uid)
        try:
            self.cache.confirm(pod)
        except InputError as error:
            name = pod.full_name
            get_logger().error("bound pod counts in part", pod=name, error=str(error))
        self.claims.binder.note_pod(uid)
        if pod.metadata.deletionTimestamp:
            self.nominated.pod_ends(NodeName(pod.spec.nodeName or ""))

    def _await_node(self, pod: Pod, *, is_changed: bool) -> None:
        uid = PodUid(pod.metadata.uid)
        if self.cache.is_assumed(uid) and uid not in self.queue:
            return  # bound, which the watch shows later
        self.claims.note_waiting(pod)
        self.queue.update(pod, loop_now_s(), is_changed=is_changed, was_tried=_was_refused(pod))


def _is_ours(pod: Pod) -> bool:
    """Whether the pod waits for this scheduler: not one with scheduling gates, or one that is being deleted."""
    waits = not pod.metadata.deletionTimestamp and not pod.spec.schedulingGates
    return pod.spec.schedulerName == SCHEDULER_NAME and waits


def _was_refused(pod: Pod) -> bool:
    """Whether a placer has tried the pod: its condition says so."""
    condition = scheduled_condition(pod)
    return condition is not None and condition.reason in (UNSCHEDULABLE, SCHEDULER_ERROR)
