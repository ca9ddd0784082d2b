"""Finds out why refused pods fit nowhere, and lets them wait. Decisions on other pods go on meanwhile.

A decision refuses a pod at once. The reasons of all nodes take longer, so a task of its own collects them, one pod
after another. Pods that may still have a place come first. What always holds: a refusal that is reported holds at
that moment. Pods of one signature share it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from placer.metrics import Metrics
from placer.scheduler.clock import loop_now_s
from placer.scheduler.pods.assigned_pods import priority_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption.post_filter import DefaultPreemption
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import Diagnosis, QueuedPodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause, causes_of, largest_request
from placer.scheduler.reporting.condition import SCHEDULER_ERROR, UNSCHEDULABLE
from placer.scheduler.reporting.pod_events import cut
from placer.scheduler.schedule_pod import PodScheduling
from placer.scheduler.verdicts import Explanation
from plimsoll.kube.models import Pod
from plimsoll.part.ending import heed_cancellation

OPEN_IN_A_ROW: Final = 8
"""The pods that may have a place, and are explained before one that has none, while both wait."""
OVERTAKEN_AT_MOST: Final = 3
"""The times that a refused pod is tried at once because a node has a place by now, before it backs off."""
PUT_OFF: Final = "The nodes with room changed during each decision; the pod is tried again."
"""The text is the same for all causes, so that each pod gets one event. The log names the cause."""

PAUSE_S: Final = 0.01
"""The pause between two slices of an explanation while a pod waits that was never tried. Thousands of pods that fit
nowhere may come before it, and each takes far longer to explain than to refuse. A slice takes some 3 ms."""


async def pause_beside(queue: Queue) -> None:
    """Let other tasks run between two slices of an explanation. Pods that were never tried get most of the time."""
    await asyncio.sleep(PAUSE_S if queue.active.never_tried.head() is not None else 0)


Report = Callable[[Pod, str, str], None]
"""Reports a refusal to people: the pod, the text, and the condition's reason."""


class Backlog:
    """The refused pods that wait for their explanation, in its order."""

    def __init__(self) -> None:
        self._open: deque[PodInfo] = deque()
        self._final: deque[PodInfo] = deque()
        self._in_a_row = 0  # the refusals still open that were given since the last final one
        self._some = asyncio.Event()

    def put(self, info: PodInfo, *, is_final: bool) -> None:
        """Add a pod; for `is_final` see `placer.core.refusal.Refusal`."""
        (self._final if is_final else self._open).append(info)
        self._some.set()

    async def get(self) -> PodInfo:
        """Remove the next pod; waits until there is one. Cancelling loses no pod."""
        while not (self._open or self._final):
            self._some.clear()
            await self._some.wait()
        if self._open and (not self._final or self._in_a_row < OPEN_IN_A_ROW):
            self._in_a_row += 1
            return self._open.popleft()
        self._in_a_row = 0
        return self._final.popleft()


@dataclass(slots=True)
class FailureHandler:
    """Explains refusals while `run` runs.

    Attributes:
        queue: the pods without a node.
        scheduling: judges nodes.
        preemption: explains, and has pods of lower priority deleted where that makes room.
        metrics: counts the refusals that pods shared.
        report: takes each refusal.
    """

    queue: Queue
    scheduling: PodScheduling
    preemption: DefaultPreemption
    metrics: Metrics
    report: Report
    _refused: Backlog = field(default_factory=Backlog)

    def add(self, info: PodInfo, *, is_final: bool) -> None:
        """Explain this refused pod in its turn; returns at once. For `is_final` see `placer.core.refusal.Refusal`."""
        self._refused.put(info, is_final=is_final)

    def shares_diagnosis(self, pod: QueuedPodInfo, info: PodInfo) -> bool:
        """Refuse a pod by the diagnosis of its signature, if one is in force; returns whether one is."""
        self.scheduling.decider.candidates.refresh()  # a change of rooms may end the diagnosis
        if not len(self.queue.unschedulable):
            return False  # none is in force; to find the pod's signature takes as long as half of a decision
        signature = self._signature(info)
        alike = self.queue.unschedulable.find(signature)
        diagnosis = alike.shared if alike is not None else None
        if diagnosis is None:
            return False
        self.queue.add_unschedulable(pod.uid, signature, None, loop_now_s())
        self.metrics.queue.shared_refusals.inc()
        self.report(pod.pod, diagnosis.note, UNSCHEDULABLE)
        return True

    async def run(self) -> NoReturn:
        """Explain until cancelled."""
        while True:
            heed_cancellation()
            await asyncio.sleep(0)  # an explanation awaits nothing where there are few nodes
            info = await self._refused.get()
            pod = self.queue.get(info.request.pod)
            if pod is None:
                continue  # bound by somebody else, gone, or no longer ours
            if pod.info is not info:
                self._settle(pod, info, None)
            elif not self.shares_diagnosis(pod, info):
                explained = await self.preemption.refuse(info)
                pod = self.queue.get(info.request.pod)
                if pod is not None:
                    self._settle(pod, info, explained)
                await self.scheduling.pause()

    def _settle(self, pod: QueuedPodInfo, info: PodInfo, explained: Explanation | None) -> None:
        """Let a refused pod wait, or try it again if the pod changed or a node has a place by now."""
        now_s = loop_now_s()
        if pod.info is info and explained is not None:
            pod.overtaken = 0
            diagnosis = diagnosis_of(info, explained, self.scheduling.profile.framework.cause)
            self.queue.add_unschedulable(pod.uid, self._signature(info), diagnosis, now_s)
            self.report(pod.pod, diagnosis.note, UNSCHEDULABLE)
        elif pod.overtaken < OVERTAKEN_AT_MOST:
            pod.overtaken += 1
            self.queue.requeue(pod.uid, now_s, pause_s=0.0)
        else:
            pod.overtaken = 0
            self.queue.requeue(pod.uid, now_s)
            self.report(pod.pod, PUT_OFF, SCHEDULER_ERROR)

    def _signature(self, info: PodInfo) -> Hashable:
        """Equal for pods that share a refusal; while there are anti-affinity rules, their labels are equal too.

        A nominated pod shares none, because it alone may have the room that is held for it.
        """
        request = info.request
        if self.scheduling.cache.nominator.find(request.pod) is not None:
            return info.signature, request.pod
        learns = any(container.best_effort for container in request.demand.containers)
        expected = self.scheduling.decider.ledger.learned_bytes(request.owner) if learns else None
        volumes = self.scheduling.volume_state(info)
        if not self.scheduling.profile.topology.has_terms:
            return info.signature, expected, volumes
        meta = info.pod.metadata
        return info.signature, expected, volumes, meta.namespace, frozenset((meta.labels or {}).items())


def diagnosis_of(info: PodInfo, explained: Explanation, cause_of: Callable[[str], Cause]) -> Diagnosis:
    """The diagnosis that pods of one signature share, by the explanation of why one of them fits nowhere."""
    demand = info.request.demand
    may_preempt = info.pod.spec.preemptionPolicy != "Never"
    return Diagnosis(
        cut(explained.text),
        NOTHING if explained.is_of_pod else causes_of(explained.reasons, demand, cause_of),
        largest_request(demand),
        explained.reasons,
        topics=explained.topics,
        priority=priority_of(info.pod) if may_preempt and not explained.is_of_pod else None,
        may_pass=explained.may_pass,
    )
