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
from placer.core.verdicts import Explanation
from placer.kube.choice import NodeChoice
from placer.kube.clock import loop_now_s
from placer.kube.pods.occupants import priority_of
from placer.kube.pods.pending import PendingPod
from placer.kube.pods.wanted import Wanted
from placer.kube.preemption.preempting import Preempting
from placer.kube.queue.hints import NOTHING, causes_of, largest_ask
from placer.kube.queue.parking import KindRefusal
from placer.kube.queue.queue import Queue
from placer.kube.reporting.condition import SCHEDULER_ERROR, UNSCHEDULABLE
from placer.kube.reporting.pod_events import cut
from placer.metrics import Metrics
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
        self._open: deque[Wanted] = deque()
        self._final: deque[Wanted] = deque()
        self._in_a_row = 0  # the refusals still open that were given since the last final one
        self._some = asyncio.Event()

    def put(self, wanted: Wanted, *, is_final: bool) -> None:
        """Add a pod; for `is_final` see `placer.core.refusal.Refusal`."""
        (self._final if is_final else self._open).append(wanted)
        self._some.set()

    async def get(self) -> Wanted:
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

    waiting: Mapping[PodUid, PendingPod]
    queue: Queue
    choice: NodeChoice
    preempting: Preempting
    ledger: Ledger
    metrics: Metrics
    report: Report
    on_work: Callable[[], None]
    _refused: Backlog = field(default_factory=Backlog)

    def add(self, wanted: Wanted, *, is_final: bool) -> None:
        """Explain this refused pod in its turn; returns at once. For `is_final` see `placer.core.refusal.Refusal`."""
        self._refused.put(wanted, is_final=is_final)

    def share(self, waiting: PendingPod, wanted: Wanted) -> bool:
        """Park a pod by the refusal of its kind, if one is in force; returns whether one is."""
        self.choice.decider.candidates.refresh()  # a change of rooms may lift the refusal
        if not self.queue.heeds_changes:
            return False  # no refusal is in force; to find the pod's kind takes as long as half of a decision
        uid, kind = wanted.request.pod, self._kind(wanted)
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
            wanted = await self._refused.get()
            waiting = self.waiting.get(wanted.request.pod)
            if waiting is None:
                continue  # bound by somebody else, gone, or no longer ours
            if waiting.wanted is not wanted:
                self._settle(waiting, wanted, None)
            elif not self.share(waiting, wanted):
                explained = await self.preempting.refuse(wanted)
                waiting = self.waiting.get(wanted.request.pod)
                if waiting is not None:
                    self._settle(waiting, wanted, explained)
                await self.choice.pause()

    def _settle(self, waiting: PendingPod, wanted: Wanted, explained: Explanation | None) -> None:
        """Park a refused pod, or try it again if the pod changed or a node has a place by now."""
        uid, now_s = wanted.request.pod, loop_now_s()
        self.on_work()
        if waiting.wanted is wanted and explained is not None:
            waiting.overtaken = 0
            refusal = refusal_of(wanted, explained)
            kind = self._kind(wanted)
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

    def _kind(self, wanted: Wanted) -> Hashable:
        """Equal for pods that share a refusal; while there are anti-affinity rules, their labels are equal too.

        A nominated pod shares none, because it alone may have the room that is held for it.
        """
        request = wanted.request
        if self.choice.cluster.nominations.find(request.pod) is not None:
            return wanted.kind, request.pod
        learns = any(container.best_effort for container in request.demand.containers)
        expected = self.ledger.learned_bytes(request.owner) if learns else None
        volumes = self.choice.volume_state(wanted)
        if not self.choice.cluster.pod_rules.has_rules:
            return wanted.kind, expected, volumes
        meta = wanted.pod.metadata
        return wanted.kind, expected, volumes, meta.namespace, frozenset((meta.labels or {}).items())


def refusal_of(wanted: Wanted, explained: Explanation) -> KindRefusal:
    """The refusal that a pod's kind shares, by the explanation of why the pod fits nowhere."""
    demand = wanted.request.demand
    causes = NOTHING if explained.is_of_pod else causes_of(explained.reasons, demand)
    may_preempt = wanted.pod.spec.preemptionPolicy != "Never"
    return KindRefusal(
        cut(explained.text),
        causes,
        largest_ask(demand),
        explained.reasons,
        topics=explained.topics,
        priority=priority_of(wanted.pod) if may_preempt and not explained.is_of_pod else None,
    )
