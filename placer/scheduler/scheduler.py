"""The scheduling cycle, as kube-scheduler has it: pop, filter, score, reserve, and bind; or post-filter, and wait.

One pod is decided on at a time, and many are bound at once. What always holds: a scheduling cycle awaits nothing, and
its booking is its last step. So no two pods get the same room. A malformed pod gets an event that says so, and delays
no other pod.

| step | where |
| --- | --- |
| Pop | `queue`: active pods by priority and age; `probe` while a node changed for unschedulable ones |
| PreFilter | `profile.PodReader`: the pod as its plugins read it; quotas after raises (`placer.scheduler.quotas`) |
| Filter, Score | `schedule_pod`: nodes by the GPU ranking, filtered by `framework` and planned by `placer.decide` |
| Reserve | `cache.assume`, and volumes (`plugins.volumes`) |
| PreBind, Bind, PostBind | `binding.cycle`, in a task of its own |
| PostFilter | `failures`: why no node will do, and `preemption`; then the pod waits in the queue |
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Final

from placer.core.ledger import NotBookedError
from placer.core.plan import Plan
from placer.core.refusal import Refusal
from placer.metrics import Metrics
from placer.scheduler.binding.cycle import Assumed, BindingCycle
from placer.scheduler.clock import loop_now_s
from placer.scheduler.event_handlers.cluster_events import ClusterEvents
from placer.scheduler.failures.handler import PUT_OFF, FailureHandler
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import PodReader
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import QueuedPodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, causes_of
from placer.scheduler.queue.unschedulable import Probe
from placer.scheduler.quotas import NamespaceRules
from placer.scheduler.reporting.condition import SCHEDULER_ERROR, UNSCHEDULABLE
from placer.scheduler.schedule_pod import PodScheduling
from plimsoll.ids import PodUid
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

UNBROKEN_S: Final = 0.002
"""The longest time that probes may take in one piece, so that watches and binds go on."""


@dataclass(slots=True)
class Scheduler:
    """Places the pods of the queue.

    Attributes:
        queue: the pods that wait.
        reader: reads pods.
        quotas: holds pods to quotas after raises.
        scheduling: filters and scores nodes.
        failures: finds out why no node will do, and preempts.
        binding: carries out plans.
        cluster_events: passes changes on to the queue.
        metrics: measures waits, and counts probes.
        finishes: no further pod is decided on.
    """

    queue: Queue
    reader: PodReader
    quotas: NamespaceRules
    scheduling: PodScheduling
    failures: FailureHandler
    binding: BindingCycle
    cluster_events: ClusterEvents
    metrics: Metrics
    finishes: bool = field(default=False, init=False)

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Place one pod after another until cancelled, or until `finishes` is set; pods are bound in the group."""
        while True:
            pod = await self.pop()
            if self.finishes:
                return
            assumed = None if self.binding.puts_off(pod) else self.schedule(pod)
            heed_cancellation()  # a group that is ending takes no task
            if assumed is not None:
                permit = await self.binding.permit(assumed)
                group.create_task(self.binding.run(assumed, permit), name=f"kube: bind {pod.uid}")
            await asyncio.sleep(0)  # a cycle awaits nothing, and a long queue must not block the loop

    def schedule(self, pod: QueuedPodInfo) -> Assumed | None:
        """One scheduling cycle. Returns the pod's place, booked and assumed; or None if the pod has to wait."""
        info = self._pre_filter(pod)
        if info is None or self.failures.shares_diagnosis(pod, info):
            return None
        result = self._filter_and_score(info)
        if isinstance(result, Plan):
            return self._reserve(pod, info, result)
        if result is not None:
            self.failures.add(info, is_final=result.is_final)
        return None

    def activate(self, uid: PodUid) -> None:
        """Try a pod again now, if it still waits."""
        self.queue.activate(uid, loop_now_s())

    async def pop(self) -> QueuedPodInfo:
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
        """Find out whether a changed node could take an unschedulable pod now, if need be by preemption."""
        info, preemption = probe.pod.info, self.failures.preemption
        assert info is not None, "an unschedulable pod was read"
        cause_of = self.scheduling.profile.framework.cause
        obstacles, left = self.scheduling.obstacles(info, probe.node), None
        if obstacles and preemption.may_preempt(info, probe.node):
            left = await preemption.left_by_victims(info, probe.node)
            obstacles = self.scheduling.obstacles(info, probe.node)  # the node may have changed meanwhile
        self.metrics.queue.probes.labels("unfit" if obstacles else "fit").inc()
        causes = causes_of(obstacles, info.request.demand, cause_of) if obstacles else NOTHING
        is_news = not probe.alike.diagnosis.reasons.issuperset(obstacles)
        if left is not None and obstacles:
            is_news |= not left  # it could preempt there
            causes |= causes_of(left, info.request.demand, cause_of) if left else NOTHING
        self.queue.probed(probe, causes, loop_now_s(), is_news=is_news)

    def _pre_filter(self, pod: QueuedPodInfo) -> PodInfo | None:
        """The pod as its plugins read it; None if the pod alone is the reason that it has to wait."""
        try:
            info = pod.info = pod.info or self.reader.understood(pod.pod)
        except InputError as error:
            self.queue.reject(pod.uid, loop_now_s())
            self.failures.report(pod.pod, f"Pod cannot be scheduled: {error}.", UNSCHEDULABLE)
            return None
        if (problem := self.quotas.problem(pod.pod)) is not None:
            self.queue.requeue(pod.uid, loop_now_s())
            if problem:
                self.failures.report(pod.pod, problem, UNSCHEDULABLE)
            return None
        return info

    def _filter_and_score(self, info: PodInfo) -> Plan | Refusal | None:
        """The best place, which is booked; or the refusal. None if the pod is booked already, and tried later."""
        try:
            return self.scheduling.decide(info)
        except NotBookedError as error:
            get_logger().warning("decision put off", pod=info.pod.full_name, error=str(error))
            self.queue.requeue(info.request.pod, loop_now_s())
            self.failures.report(info.pod, PUT_OFF, SCHEDULER_ERROR)
            return None

    def _reserve(self, pod: QueuedPodInfo, info: PodInfo, plan: Plan) -> Assumed:
        """Count the pod on its node before the API server knows."""
        node = plan.booking.node
        volumes = self.binding.claims.reserve(pod.pod, info.needs.mounts, node)
        self.scheduling.cache.assume(plan.booking, info.needs, info.pod)
        self.failures.preemption.nominated.placed(pod.uid, node)
        self.queue.assumed(pod.uid, loop_now_s())
        return Assumed(info, plan, pod.seen_s, volumes)
