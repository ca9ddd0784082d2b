"""Holds the room of nominated pods while pods, nodes and reports change, and ends nominations that have no room.

The nominations are those that were made here, by preemption or relocation, and those that the API server shows: made
by another scheduler, or by an earlier leader. What always holds: a nominated pod whose node has no room for it, even
once the pods that end there are gone, is tried elsewhere.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NoReturn

from prometheus_client import Counter

from placer.core.plan import Plan
from placer.scheduler.clock import loop_now_s
from placer.scheduler.dry_run import NodeDryRun
from placer.scheduler.pods.assigned_pods import AssignedPod, priority_of
from placer.scheduler.pods.needs import needs_of
from placer.scheduler.pods.nominator import Nomination
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption.executor import Executor
from placer.scheduler.queue.queue import Queue
from placer.scheduler.schedule_pod import PodScheduling
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError

LINGER_S: Final = 60.0
"""Seconds for which a pod waits for the node's report after its victims are gone, while the last report still shows
their memory. A monitor reports the end of a process within seconds."""


@dataclass(slots=True)
class NominatedPods:
    """Holds the room of nominated pods; `run` checks those whose nodes fill up.

    Attributes:
        queue: the pods without a node.
        scheduling: judges nodes.
        executor: carries preemptions out, and takes nominations back.
        leads: set while this placer decides.
        understand: reads a pod's demand; raises `InputError`.
        outcomes: counts the nominations of this scheduler's pods that ended, by outcome.
        stuck: pods that should have ended long ago, and are awaited no longer; see `StuckPods`.
    """

    queue: Queue
    scheduling: PodScheduling
    executor: Executor
    leads: asyncio.Event
    understand: Callable[[Pod], PodInfo]
    outcomes: Counter
    stuck: set[PodUid] = field(default_factory=set)
    # Pods whose nomination was written here: the watch shows their status late.
    _written: set[PodUid] = field(default_factory=set)
    _freed: dict[PodUid, float] = field(default_factory=dict)  # preemptors: since when they wait for a report
    _filled: set[NodeName] = field(default_factory=set)
    _some_filled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.executor.on_end = self.give_up
        self.scheduling.cache.on_filled(self._note_filled)
        self.scheduling.decider.reports.on_change(self._note_filled)
        self.scheduling.decider.ledger.on_change(lambda node, _: self._note_filled(node))  # a resize too

    def observe(self, pod: Pod) -> None:
        """Take a pod without a node as the watch shows it, for the nomination in its status."""
        if PodUid(pod.metadata.uid) not in self._written or not self.leads.is_set():
            self._take_over(pod)

    def not_bound(self, pod: Pod) -> None:
        """Hold the room of a nominated pod again: its bind failed."""
        self._take_over(pod)

    def _take_over(self, pod: Pod) -> None:
        """Hold the room that a pod's status names."""
        uid, node = PodUid(pod.metadata.uid), NodeName(pod.status.nominatedNodeName or "")
        nominator = self.scheduling.cache.nominator
        known = nominator.find(uid)
        if not node or pod.metadata.deletionTimestamp:
            self.drop(uid, "given_up" if not node else "gone")
            return
        try:
            needs = needs_of(pod)
        except InputError:
            self.drop(uid, "given_up")  # it can never be placed
            return
        if known is not None and (known.node, known.needs, known.priority) == (node, needs, priority_of(pod)):
            known.pod = pod
            return
        nominator.put(Nomination(pod, node, needs))
        self._note_filled(node)

    def pod_ends(self, node: NodeName) -> None:
        """Take in that a pod of a node ends, or is gone.

        A scheduler nominates a pod before the victims end. So the GPUs for a pod of another scheduler are known only
        now, and they are held before a decision can take them.
        """
        if self.leads.is_set():
            for own in self.scheduling.cache.nominator.on(node):
                if not own.is_ours and own.booking is None:
                    self._hold_gpus(own, self._plan_later(own))

    def forget(self, uid: PodUid) -> None:
        """Hold no room for a pod that is gone, or has a node."""
        self.drop(uid, "gone")
        self._written.discard(uid)
        self._freed.pop(uid, None)

    def placed(self, uid: PodUid, node: NodeName) -> None:
        """Do not hold nominated room for a pod that already has its place on this node."""
        own = self.scheduling.cache.nominator.find(uid)
        if own is not None:
            self.drop(uid, "placed" if own.node == node else "elsewhere")

    def check_all(self) -> None:
        """Check all nominations; a leader does so before its first decision, because others may have made them."""
        for node in self.scheduling.cache.nominator.nodes():
            self.check(node)

    def still_end(self, own: Nomination) -> bool:
        """Whether pods still end on the nominated node, or their memory is still reported."""
        if self._ending(own):
            self._freed.pop(own.uid, None)
            return True
        found = self.scheduling.decider.candidates.find(own.node)
        reported = found.node.gpus if found is not None else ()
        if not any(uid in gpu.measured_bytes for gpu in reported for uid in own.victims):
            return False
        return loop_now_s() - self._freed.setdefault(own.uid, loop_now_s()) < LINGER_S

    def _ending(self, own: Nomination) -> list[AssignedPod]:
        """The pods that still end on a nominated node, so that the nominated pod gets their room."""
        return [
            one
            for one in self.scheduling.cache.assigned.on(own.node)
            if one.uid not in self.stuck
            and (
                one.uid in own.victims
                or one.is_being_evicted  # as for a relocation; its priority may be as high
                or (one.priority < own.priority and one.is_being_preempted)
            )
        ]

    def hold(self, nomination: Nomination) -> None:
        """Hold room for a waiting pod that is nominated here; its status, as the watch shows it, is late."""
        self._written.add(nomination.uid)
        self._freed.pop(nomination.uid, None)
        self.scheduling.cache.nominator.put(nomination)

    def retry(self, uid: PodUid) -> None:
        """Try a waiting pod again; one that does not wait any more is no error."""
        self.queue.activate(uid, loop_now_s())

    def end(self, uid: PodUid) -> None:
        """End a pod's nomination, in the API server too."""
        ended = self.drop(uid, "given_up")
        waiting = self.queue.get(uid)
        if ended is None or not ended.is_ours or waiting is None:
            return
        self._written.add(uid)
        self._freed.pop(uid, None)
        self.executor.take_back(waiting.pod)

    def drop(self, uid: PodUid, outcome: str) -> Nomination | None:
        """Hold no room for a pod any more; returns its nomination, or None."""
        ended = self.scheduling.cache.nominator.drop(uid)
        if ended is not None and ended.is_ours and self.leads.is_set():
            self.outcomes.labels(outcome).inc()
        return ended

    def give_up(self, uid: PodUid) -> None:
        """End a pod's nomination, and try the pod again."""
        self.end(uid)
        self.retry(uid)

    def _note_filled(self, node: NodeName) -> None:
        if self.scheduling.cache.nominator.are_on(node):
            self._filled.add(node)
            self._some_filled.set()

    async def run(self) -> NoReturn:
        """Check the nominations whose nodes fill up, until cancelled."""
        await self.leads.wait()
        while True:
            heed_cancellation()
            await self._some_filled.wait()
            self._some_filled.clear()
            filled, self._filled = self._filled, set()
            for node in filled:
                self.check(node)
                await asyncio.sleep(0)  # other tasks run between two nodes

    def check(self, node: NodeName) -> None:
        """End the nominations for a node that have no room, even once all pods that end there are gone."""
        for own in self.scheduling.cache.nominator.on(node):
            if node not in self.scheduling.cache.nodes:
                self.give_up(own.uid)
                continue
            plan = self._plan_later(own)
            if plan is None and own.uid in self.queue:
                self.give_up(own.uid)
            self._hold_gpus(own, plan)

    def _hold_gpus(self, own: Nomination, plan: Plan | None) -> None:
        if plan is not None and plan.booking.grants:
            self.scheduling.cache.nominator.hold_gpus(own, plan.booking)

    def _plan_later(self, own: Nomination) -> Plan | None:
        """The place of a nominated pod once the pods that end there are gone; on its GPU as before, if possible."""
        waiting = self.queue.get(own.uid)
        try:
            if waiting is None:  # a pod of another scheduler
                info = self.understand(own.pod)
            else:
                info = waiting.info = waiting.info or self.understand(waiting.pod)
        except InputError:
            return None
        gpus = {grant.gpu for grant in own.booking.grants} if own.booking is not None else set()
        only: tuple[GpuUuid | None, ...] = (*gpus, None) if len(gpus) == 1 else (None,)
        for gpu in only:
            dry_run = NodeDryRun(self.scheduling.decider, self.scheduling.profile, info, own.node, gpu)
            for one in self._ending(own):
                dry_run.remove(one)
            for uid in own.victims - self.stuck:
                dry_run.remove_memory(uid)
            plan = dry_run.plan()
            if isinstance(plan, Plan):
                return plan
        return None
