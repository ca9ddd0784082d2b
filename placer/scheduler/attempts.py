"""Tries pods, one at a time: takes the next from the queue, and decides, or probes a changed node for parked pods.

What always holds: a decision and its booking are one step on the event loop, so no two pods get the same room. A
malformed pod gets an event that says so, and delays no other pod.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from placer.core.ledger import NotBookedError
from placer.core.plan import Plan
from placer.metrics import Metrics
from placer.resize.quotas import NamespaceRules
from placer.scheduler.binding.committer import Placed
from placer.scheduler.choice import NodeChoice
from placer.scheduler.clock import loop_now_s
from placer.scheduler.event_handlers.wakeups import Wakeups
from placer.scheduler.failures.refusals import PUT_OFF, Refusals
from placer.scheduler.plugins.default_preemption.preempting import Preempting
from placer.scheduler.plugins.volume_binding.binder import VolumeBinding
from placer.scheduler.pods.queued import QueuedPodInfo
from placer.scheduler.profile import PodReader
from placer.scheduler.queue.hints import NOTHING, causes_of
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.tries import Probe, Try
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
        queue: the pods that wait, by rank.
        waiting: the same pods, by uid.
        choice: decides, and judges nodes.
        reader: reads pods.
        claims: reserves the volumes of a pod that has a place.
        preempting: knows what a parked pod could gain by preemption, and holds the rooms of nominated pods.
        refusals: explains refusals.
        results: reports each result to people, and on the bus.
        wakeups: passes changes on to the queue.
        rules: holds pods to quotas after raises.
        metrics: measures waits, and counts probes.
        work: set when the queue may have work.
    """

    queue: Queue
    waiting: Mapping[PodUid, QueuedPodInfo]
    choice: NodeChoice
    reader: PodReader
    claims: VolumeBinding
    preempting: Preempting
    refusals: Refusals
    results: Results
    wakeups: Wakeups
    rules: NamespaceRules
    metrics: Metrics
    work: asyncio.Event

    async def next(self) -> PodUid:
        """Wait for the next pod to try; meanwhile probe parked pods on nodes that changed."""
        paused_s = loop_now_s()
        while True:
            heed_cancellation()
            self.work.clear()
            self.wakeups.catch_up()
            now_s = loop_now_s()
            match self.queue.take(now_s):
                case Try(uid, waited_s):
                    self.metrics.queue.wait_seconds.observe(waited_s)
                    return uid
                case Probe() as probe:
                    await self.probe(probe)
                    if now_s - paused_s > UNBROKEN_S:
                        await asyncio.sleep(0)
                        paused_s = loop_now_s()
                case None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(self.queue.due_s()):
                            await self.work.wait()

    async def probe(self, probe: Probe) -> None:
        """Find out whether a changed node could take a parked pod now."""
        info = self.waiting[probe.uid].info
        assert info is not None, "a parked pod's demand was read"
        cause_of = self.choice.profile.framework.cause
        obstacles, left = self.choice.obstacles(info, probe.node), None
        if obstacles and self.preempting.may_preempt(info, probe.node):
            left = await self.preempting.left_by_victims(info, probe.node)
            obstacles = self.choice.obstacles(info, probe.node)  # the node may have changed meanwhile
        self.metrics.queue.probes.labels("unfit" if obstacles else "fit").inc()
        causes = causes_of(obstacles, info.request.demand, cause_of) if obstacles else NOTHING
        is_news = not probe.kind.refusal.reasons.issuperset(obstacles)
        if left is not None and obstacles:
            is_news |= not left  # it could preempt there
            causes |= causes_of(left, info.request.demand, cause_of) if left else NOTHING
        self.queue.probed(probe, causes, loop_now_s(), is_news=is_news)

    def again(self, uid: PodUid) -> None:
        """Try a pod again now, if it still waits."""
        self.queue.at_once(uid, loop_now_s())
        self.work.set()

    def attempt(self, uid: PodUid) -> Placed | None:
        """Try one pod. Returns its plan, booked and assumed; or None if the pod is refused."""
        waiting = self.waiting[uid]
        pod, cache = waiting.pod, self.choice.cache
        try:
            info = waiting.info = waiting.info or self.reader.understood(pod)
        except InputError as error:
            self.queue.give_up(uid, loop_now_s())
            self.results.refused(pod, f"Pod cannot be scheduled: {error}.")
            return None
        if (problem := self.rules.problem(pod)) is not None:
            self.queue.again(uid, loop_now_s())
            if problem:
                self.results.refused(pod, problem, UNSCHEDULABLE)
            return None
        if self.refusals.share(waiting, info):
            return None
        try:
            result = self.choice.decide(info)
        except NotBookedError as error:
            name = pod.full_name
            get_logger().warning("decision put off", pod=name, error=str(error))
            self.queue.again(uid, loop_now_s())
            self.results.refused(pod, PUT_OFF, SCHEDULER_ERROR)
            return None
        if isinstance(result, Plan):
            volumes = self.claims.reserve(pod, info.needs.mounts, result.booking.node)
            cache.assume(result.booking, info.needs, info.pod)
            self.preempting.nominating.placed(uid, result.booking.node)
            self.queue.placed(uid, loop_now_s())
            return Placed(info, result, waiting.seen_s, volumes)
        self.refusals.add(info, is_final=result.is_final)
        return None
