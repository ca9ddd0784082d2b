"""Takes in what the watch shows of pods: those that wait, those that have a node, and those that are gone.

What always holds: a pod that has a node counts in the cluster until it has ended or is gone, whichever scheduler
placed it. A pod that waits for this scheduler is in the queue. A pod that is being bound is at most once in each.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from placer.extender.pods import OutsidePods
from placer.kube.pool import PoolWatch
from placer.relocation.kept import KeptRooms
from placer.resize.tickets import Tickets
from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.plugins.default_preemption.preempting import Preempting
from placer.scheduler.plugins.volume_binding.binder import VolumeBinding
from placer.scheduler.pods.index import PodIndex
from placer.scheduler.pods.queued import QueuedPodInfo, same_pod
from placer.scheduler.queue.queue import Queue
from placer.scheduler.reporting.condition import SCHEDULER_ERROR, UNSCHEDULABLE, scheduled_condition
from plimsoll.contract import DECISION, SCHEDULER_NAME
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Synced
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger


@dataclass(frozen=True, slots=True)
class PodEventHandler:
    """Passes the changes of pods on.

    Attributes:
        pods: all pods, for readers.
        waiting: the pods without a node that this scheduler could place.
        queue: the same pods, by rank.
        cache: the nodes with their pods.
        claims: learns which pods wait for claims, and which have ended.
        preempting: learns of nominated pods and of victims.
        pool: learns of the pool's reservation pods.
        tickets: learns of bound pods, which may be resized.
        outside: the pods of kube-scheduler that wait.
        kept: learns of pods that may be replacements of moved ones.
        on_work: called when the queue may have work.
        on_rival: called with a pod that waited for this scheduler, and that somebody else gave GPUs.
        synced: set once all pods were read.
    """

    pods: PodIndex
    waiting: dict[PodUid, QueuedPodInfo]
    queue: Queue
    cache: Cache
    claims: VolumeBinding
    preempting: Preempting
    pool: PoolWatch
    tickets: Tickets
    outside: OutsidePods
    kept: KeptRooms
    on_work: Callable[[], None]
    on_rival: Callable[[Pod], None]
    synced: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, change: Change[Pod]) -> None:
        """Take in a change of the watch."""
        match change:
            case Synced():
                self.synced.set()
            case Deleted(pod):
                self.outside.drop(PodUid(pod.metadata.uid))
                self.pods.remove(pod)
                self._drop(PodUid(pod.metadata.uid))
                self.pool.drop(pod)
            case Added(pod) | Modified(pod):
                self.pods.put(pod)
                self.pool.note(pod)
                self.outside.note(pod)
                self._put(pod, change.old if isinstance(change, Modified) else None)

    def forget_waiting(self, uid: PodUid) -> None:
        """Take a pod out of those that wait; an unknown pod is no error."""
        self.claims.forget_waiting(uid)
        if self.waiting.pop(uid, None) is not None:
            self.queue.discard(uid, loop_now_s())
            self.on_work()  # another pod of its kind may be tried

    def _put(self, pod: Pod, known: Pod | None) -> None:
        uid = PodUid(pod.metadata.uid)
        if pod.status.phase in TERMINAL_PHASES:
            self._drop(uid)
        elif pod.spec.nodeName:
            self._confirm(pod)
            self.tickets.note(pod)
        elif _is_ours(pod):
            self.preempting.nominating.observe(pod)
            self.kept.take(pod)
            self._await_node(pod, changed=known is None or not same_pod(pod, known))
        elif not self.cache.is_assumed(uid):
            self.forget_waiting(uid)
            self.preempting.nominating.observe(pod)

    def _drop(self, uid: PodUid) -> None:
        """Free the room of a pod that is gone or ended, for waiting pods."""
        ended = self.cache.assigned.find(uid)
        self.forget_waiting(uid)
        self.preempting.forget(uid)
        self.cache.forget(uid)
        self.claims.binder.note_pod(uid)
        if ended is not None:
            self.preempting.nominating.pod_ends(ended.node)
        self.tickets.forget(uid)

    def _confirm(self, pod: Pod) -> None:
        uid = PodUid(pod.metadata.uid)
        if (
            uid in self.waiting
            and not self.cache.is_assumed(uid)
            and DECISION in (pod.metadata.annotations or {})
        ):
            self.on_rival(pod)
        self.forget_waiting(uid)
        self.preempting.forget(uid)
        try:
            self.cache.confirm(pod)
        except InputError as error:
            name = pod.full_name
            get_logger().error("bound pod counts in part", pod=name, error=str(error))
        self.claims.binder.note_pod(uid)
        if pod.metadata.deletionTimestamp:
            self.preempting.nominating.pod_ends(NodeName(pod.spec.nodeName or ""))

    def _await_node(self, pod: Pod, *, changed: bool) -> None:
        uid = PodUid(pod.metadata.uid)
        if self.cache.is_assumed(uid):
            assumed = self.waiting.get(uid)
            if assumed is not None:  # for the next attempt, if the bind under way fails
                assumed.pod, assumed.info = pod, None if changed else assumed.info
            return
        now_s = loop_now_s()
        waiting = self.waiting.setdefault(uid, QueuedPodInfo(pod, now_s))
        waiting.pod = pod
        self.claims.note_waiting(pod)
        if changed or uid not in self.queue:
            waiting.info = None
            self.queue.put(uid, pod.spec.priority or 0, now_s, tried=_was_refused(pod))
            self.on_work()
        elif _was_refused(pod):
            self.queue.note_tried(uid, now_s)


def _is_ours(pod: Pod) -> bool:
    """Whether the pod waits for this scheduler: not one with scheduling gates, or one that is being deleted."""
    waits = not pod.metadata.deletionTimestamp and not pod.spec.schedulingGates
    return pod.spec.schedulerName == SCHEDULER_NAME and waits


def _was_refused(pod: Pod) -> bool:
    """Whether a placer has tried the pod: its condition says so."""
    condition = scheduled_condition(pod)
    return condition is not None and condition.reason in (UNSCHEDULABLE, SCHEDULER_ERROR)
