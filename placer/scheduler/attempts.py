"""Tries pods, one at a time: takes the next from the queue, and decides, or probes a changed node for those
that fit nowhere.

What always holds: a decision and its booking are one step on the event loop, so no two pods get the same room. A
malformed pod gets an event that says so, and delays no other pod.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from placer.core.ledger import NotBookedError
from placer.core.plan import Plan
from placer.metrics import Metrics
from placer.resize.quotas import NamespaceRules
from placer.scheduler.binding.committer import Placed
from placer.scheduler.choice import NodeChoice
from placer.scheduler.clock import loop_now_s
from placer.scheduler.event_handlers.cluster_events import ClusterEvents
from placer.scheduler.failures.handler import PUT_OFF, FailureHandler
from placer.scheduler.plugins.default_preemption.preempting import Preempting
from placer.scheduler.plugins.volumes.waiting import PodClaims
from placer.scheduler.profile import PodReader
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import QueuedPodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, causes_of
from placer.scheduler.queue.unschedulable import Probe
from placer.scheduler.reporting.condition import SCHEDULER_ERROR, UNSCHEDULABLE
from placer.scheduler.reporting.results import Results
from plimsoll.ids import PodUid
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

UNBROKEN_S: Final = 0.002
"""The longest time that probes may take in one piece, so that watches and binds go on."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """Tries the pods of the queue.

    Attributes:
        queue: the pods that wait.
        choice: decides, and judges nodes.
        reader: reads pods.
        claims: reserves the volumes of a pod that has a place.
        preempting: knows what an unschedulable pod could gain by preemption, and holds the rooms of nominated pods.
        failures: explains refusals.
        results: reports each result to people, and on the bus.
        cluster_events: passes changes on to the queue.
        rules: holds pods to quotas after raises.
        metrics: measures waits, and counts probes.
    """

    queue: Queue
    choice: NodeChoice
    reader: PodReader
    claims: PodClaims
    preempting: Preempting
    failures: FailureHandler
    results: Results
    cluster_events: ClusterEvents
    rules: NamespaceRules
    metrics: Metrics

    async def next(self) -> QueuedPodInfo:
        """Wait for the next pod to try; meanwhile probe unschedulable pods on nodes that changed."""
        paused_s = loop_now_s()
        while True:
            heed_cancellation()
            self.queue.work.clear()
            self.cluster_events.catch_up()
            now_s = loop_now_s()
            match self.queue.pop(now_s):
                case QueuedPodInfo() as pod:
                    self.metrics.queue.wait_seconds.observe(max(0.0, now_s - pod.ready_s))
                    return pod
                case Probe() as probe:
                    await self.probe(probe)
                    if now_s - paused_s > UNBROKEN_S:
                        await asyncio.sleep(0)
                        paused_s = loop_now_s()
                case None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(self.queue.due_s()):
                            await self.queue.work.wait()

    async def probe(self, probe: Probe) -> None:
        """Find out whether a changed node could take an unschedulable pod now."""
        info = probe.pod.info
        assert info is not None, "an unschedulable pod was read"
        cause_of = self.choice.profile.framework.cause
        obstacles, left = self.choice.obstacles(info, probe.node), None
        if obstacles and self.preempting.may_preempt(info, probe.node):
            left = await self.preempting.left_by_victims(info, probe.node)
            obstacles = self.choice.obstacles(info, probe.node)  # the node may have changed meanwhile
        self.metrics.queue.probes.labels("unfit" if obstacles else "fit").inc()
        causes = causes_of(obstacles, info.request.demand, cause_of) if obstacles else NOTHING
        is_news = not probe.alike.diagnosis.reasons.issuperset(obstacles)
        if left is not None and obstacles:
            is_news |= not left  # it could preempt there
            causes |= causes_of(left, info.request.demand, cause_of) if left else NOTHING
        self.queue.probed(probe, causes, loop_now_s(), is_news=is_news)

    def again(self, uid: PodUid) -> None:
        """Try a pod again now, if it still waits."""
        self.queue.activate(uid, loop_now_s())

    def attempt(self, queued: QueuedPodInfo) -> Placed | None:
        """Try one pod. Returns its plan, booked and assumed; or None if the pod is refused."""
        uid, pod, cache = queued.uid, queued.pod, self.choice.cache
        try:
            info = queued.info = queued.info or self.reader.understood(pod)
        except InputError as error:
            self.queue.reject(uid, loop_now_s())
            self.results.refused(pod, f"Pod cannot be scheduled: {error}.")
            return None
        if (problem := self.rules.problem(pod)) is not None:
            self.queue.requeue(uid, loop_now_s())
            if problem:
                self.results.refused(pod, problem, UNSCHEDULABLE)
            return None
        if self.failures.shares_diagnosis(queued, info):
            return None
        try:
            result = self.choice.decide(info)
        except NotBookedError as error:
            name = pod.full_name
            get_logger().warning("decision put off", pod=name, error=str(error))
            self.queue.requeue(uid, loop_now_s())
            self.results.refused(pod, PUT_OFF, SCHEDULER_ERROR)
            return None
        if isinstance(result, Plan):
            volumes = self.claims.reserve(pod, info.needs.mounts, result.booking.node)
            cache.assume(result.booking, info.needs, info.pod)
            self.preempting.nominating.placed(uid, result.booking.node)
            self.queue.assumed(uid, loop_now_s())
            return Placed(info, result, queued.seen_s, volumes)
        self.failures.add(info, is_final=result.is_final)
        return None
