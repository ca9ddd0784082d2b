"""Finds out why refused pods fit nowhere, and parks them by their kind. Decisions on other pods go on meanwhile.

A decision refuses a pod at once. The reasons of all nodes take longer, so a task of its own collects them, one pod
after another. Pods that may still have a place come first. What always holds: a refusal that is reported holds at
that moment. Pods of one kind share it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from placer.core.ledger import Ledger
from placer.metrics import Metrics
from placer.scheduler.choice import NodeChoice
from placer.scheduler.clock import loop_now_s
from placer.scheduler.plugins.default_preemption.preempting import Preempting
from placer.scheduler.pods.assigned_pods import priority_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.pods.queued import QueuedPodInfo
from placer.scheduler.queue.hints import NOTHING, Cause, causes_of, largest_ask
from placer.scheduler.queue.parking import KindRefusal
from placer.scheduler.queue.queue import Queue
from placer.scheduler.reporting.condition import SCHEDULER_ERROR, UNSCHEDULABLE
from placer.scheduler.reporting.pod_events import cut
from placer.scheduler.verdicts import Explanation
from plimsoll.ids import PodUid
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
    await asyncio.sleep(PAUSE_S if queue.has_fresh else 0)


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
class Refusals:
    """Explains refusals while `run` runs.

    Attributes:
        waiting: the pods without a node, by uid; the owner changes them.
        queue: the same pods, by rank.
        choice: judges nodes.
        preempting: explains, and has pods of lower priority deleted where that makes room.
        ledger: the learned peaks, on which answers to best-effort pods depend.
        metrics: counts the refusals that pods shared.
        report: takes each refusal.
        on_work: called when the queue may have work.
    """

    waiting: Mapping[PodUid, QueuedPodInfo]
    queue: Queue
    choice: NodeChoice
    preempting: Preempting
    ledger: Ledger
    metrics: Metrics
    report: Report
    on_work: Callable[[], None]
    _refused: Backlog = field(default_factory=Backlog)

    def add(self, info: PodInfo, *, is_final: bool) -> None:
        """Explain this refused pod in its turn; returns at once. For `is_final` see `placer.core.refusal.Refusal`."""
        self._refused.put(info, is_final=is_final)

    def share(self, waiting: QueuedPodInfo, info: PodInfo) -> bool:
        """Park a pod by the refusal of its kind, if one is in force; returns whether one is."""
        self.choice.decider.candidates.refresh()  # a change of rooms may lift the refusal
        if not self.queue.heeds_changes:
            return False  # no refusal is in force; to find the pod's kind takes as long as half of a decision
        uid, kind = info.request.pod, self._kind(info)
        shared = self.queue.refusal(kind)
        if shared is None:
            return False
        self.queue.join(uid, kind, loop_now_s())
        self.metrics.queue.shared_refusals.inc()
        self.report(waiting.pod, shared.note, UNSCHEDULABLE)
        return True

    async def run(self) -> NoReturn:
        """Explain until cancelled."""
        while True:
            heed_cancellation()
            await asyncio.sleep(0)  # an explanation awaits nothing where there are few nodes
            info = await self._refused.get()
            waiting = self.waiting.get(info.request.pod)
            if waiting is None:
                continue  # bound by somebody else, gone, or no longer ours
            if waiting.info is not info:
                self._settle(waiting, info, None)
            elif not self.share(waiting, info):
                explained = await self.preempting.refuse(info)
                waiting = self.waiting.get(info.request.pod)
                if waiting is not None:
                    self._settle(waiting, info, explained)
                await self.choice.pause()

    def _settle(self, waiting: QueuedPodInfo, info: PodInfo, explained: Explanation | None) -> None:
        """Park a refused pod, or try it again if the pod changed or a node has a place by now."""
        uid, now_s = info.request.pod, loop_now_s()
        self.on_work()
        if waiting.info is info and explained is not None:
            waiting.overtaken = 0
            refusal = refusal_of(info, explained, self.choice.profile.framework.cause)
            kind = self._kind(info)
            self.queue.park(uid, kind, refusal, now_s)
            if self.preempting.may_pass(uid):
                self.queue.wake_kind(kind, now_s)
            self.report(waiting.pod, refusal.note, UNSCHEDULABLE)
        elif waiting.overtaken < OVERTAKEN_AT_MOST:
            waiting.overtaken += 1
            self.queue.at_once(uid, now_s)
        else:
            waiting.overtaken = 0
            self.queue.again(uid, now_s)
            self.report(waiting.pod, PUT_OFF, SCHEDULER_ERROR)

    def _kind(self, info: PodInfo) -> Hashable:
        """Equal for pods that share a refusal; while there are anti-affinity rules, their labels are equal too.

        A nominated pod shares none, because it alone may have the room that is held for it.
        """
        request = info.request
        if self.choice.cache.nominator.find(request.pod) is not None:
            return info.signature, request.pod
        learns = any(container.best_effort for container in request.demand.containers)
        expected = self.ledger.learned_bytes(request.owner) if learns else None
        volumes = self.choice.volume_state(info)
        if not self.choice.profile.topology.has_terms:
            return info.signature, expected, volumes
        meta = info.pod.metadata
        return info.signature, expected, volumes, meta.namespace, frozenset((meta.labels or {}).items())


def refusal_of(info: PodInfo, explained: Explanation, cause_of: Callable[[str], Cause]) -> KindRefusal:
    """The refusal that a pod's kind shares, by the explanation of why the pod fits nowhere."""
    demand = info.request.demand
    causes = NOTHING if explained.is_of_pod else causes_of(explained.reasons, demand, cause_of)
    may_preempt = info.pod.spec.preemptionPolicy != "Never"
    return KindRefusal(
        cut(explained.text),
        causes,
        largest_ask(demand),
        explained.reasons,
        topics=explained.topics,
        priority=priority_of(info.pod) if may_preempt and not explained.is_of_pod else None,
    )
