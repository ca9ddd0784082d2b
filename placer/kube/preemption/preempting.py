"""Preemption: makes room for a refused pod by the end of pods of lower priority, and holds that room for it.

The pod is nominated first, in the API server too, then its victims are deleted. It is placed by a decision of its own
once they are gone. What always holds: the victims of one pod are on one node at a time, and no pod is deleted for a
pod that has left the queue. A nomination that was read from the API server, after a restart or a change of the
leader, counts as one that was made here.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

import structlog
from prometheus_client import Counter

from placer.core.fit import needs_of
from placer.core.plan import Plan
from placer.core.reasons import Reason
from placer.core.verdicts import Explanation
from placer.kube.choice import NodeChoice
from placer.kube.clock import loop_now_s
from placer.kube.cluster.trial import NodeTrial
from placer.kube.pods.nominations import Nomination
from placer.kube.pods.occupants import Occupant, priority_of
from placer.kube.pods.pending import PendingPod
from placer.kube.pods.wanted import Wanted
from placer.kube.preemption.liftable import are_liftable
from placer.kube.preemption.orders import PreemptionOrder, PreemptionOrders
from placer.kube.preemption.victim_search import (
    NO_VICTIMS,
    NOT_HELPFUL,
    PASSING,
    UNSETTLED,
    NoVictims,
    VictimSearch,
)
from placer.kube.preemption.victims import Victims
from placer.kube.queue.queue import Queue
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError

LINGER_S: Final = 60.0
"""Seconds for which a pod waits for the node's report after its victims are gone, while the last report still shows
their memory. A monitor reports the end of a process within seconds."""
ROUNDS: Final = 3
"""The most searches in a row, where the victims that a search found are gone or safe by its end."""
NAMED: Final = 3
"""The victims that a text names."""

NEVER: Final = "not eligible due to preemptionPolicy=Never."
TERMINATING: Final = "not eligible due to a terminating pod on the nominated node."
UNDER_WAY: Final = "waiting for the preemption for this pod to be finished"
"""kube-scheduler's own texts."""
BUDGETS_UNREAD: Final = "the disruption budgets have not been read yet."
CHANGING: Final = "the nodes changed during each search for victims."


@dataclass(slots=True)
class Preempting:
    """Explains refusals, with preemption as the last resort; `run` carries it out.

    Attributes:
        waiting: the pods without a node, by uid; the owner changes them.
        queue: the same pods, by rank.
        choice: judges nodes.
        search: finds victims.
        orders: carries preemptions out.
        leads: set while this placer decides.
        understand: reads a pod's demand; raises `InputError`.
        outcomes: counts the nominations of this scheduler's pods that ended, by outcome.
        on_work: called when the queue may have work.
        stuck: pods that should have ended long ago, and are awaited no longer; see `placer.kube.preemption.stuck`.
    """

    waiting: Mapping[PodUid, PendingPod]
    queue: Queue
    choice: NodeChoice
    search: VictimSearch
    orders: PreemptionOrders
    leads: asyncio.Event
    understand: Callable[[Pod], Wanted]
    outcomes: Counter
    on_work: Callable[[], None]
    stuck: set[PodUid] = field(default_factory=set)
    _hasty: set[PodUid] = field(default_factory=set)  # refused for a reason that may pass by itself
    # Pods whose nomination was written here: the watch shows their status late.
    _written: set[PodUid] = field(default_factory=set)
    _freed: dict[PodUid, float] = field(default_factory=dict)  # preemptors: since when they wait for a report
    _filled: set[NodeName] = field(default_factory=set)
    _some_filled: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.orders.on_end = self.give_up
        self.choice.cluster.on_filled(self._note_filled)
        self.choice.decider.reports.on_change(self._note_filled)
        self.choice.decider.ledger.on_change(lambda node, _: self._note_filled(node))  # a resize too

    async def refuse(self, wanted: Wanted) -> Explanation | None:
        """Explain a refusal, as `NodeChoice.explain` does, after trying preemption.

        If victims are found, the pod is nominated when this returns, and they are deleted meanwhile. No other task
        has run between the explanation and the return.
        """
        explained: Explanation | None = None
        for _ in range(ROUNDS):
            explained = await self.choice.explain(wanted)
            # A GPU that joins the pool will have the room, so no pod has to end.
            if (
                explained is None
                or not self._may_matter(wanted)
                or Reason.ACQUIRING.value in explained.reasons
            ):
                return explained
            why_not = self._ineligible(wanted)
            if why_not is not None:
                return _with(explained, why_not)
            found = await self.search.search(wanted)
            explained = await self.choice.explain(wanted)  # for the nodes that changed during the search
            if explained is None or not self._still_waits(wanted):
                return explained
            if isinstance(found, NoVictims):
                self._end(wanted.request.pod)
                if not PASSING.isdisjoint(found.reasons):
                    self._hasty.add(wanted.request.pod)
                return _with(explained, found.text, found.reasons)
            again = self.search.confirm(wanted, found)
            if again is not None:
                return _with(explained, self._nominate(wanted, again))
        self._hasty.add(wanted.request.pod)
        return _with(explained, CHANGING)

    def may_pass(self, uid: PodUid) -> bool:
        """Whether the last refusal of a pod may pass without an announced change; True once for each refusal."""
        if uid not in self._hasty:
            return False
        self._hasty.discard(uid)
        return True

    async def explain(self, wanted: Wanted) -> Explanation | None:
        """Explain a refusal as `refuse` would, but end no pod: None also if victims could make room."""
        explained = await self.choice.explain(wanted)
        if explained is None or not self._may_matter(wanted):
            return explained
        why_not = self._ineligible(wanted)
        if why_not is not None:
            return _with(explained, why_not)
        found = await self.search.search(wanted)
        explained = await self.choice.explain(wanted)
        if explained is None or isinstance(found, Victims):
            return None
        return _with(explained, found.text, found.reasons)

    def may_preempt(self, wanted: Wanted, node: NodeName) -> bool:
        """Whether a parked pod may preempt now, and a node has pods of lower priority."""
        lower = self.choice.cluster.occupants.below(priority_of(wanted.pod), node)
        return bool(lower) and self._ineligible(wanted) is None

    async def left_by_victims(self, wanted: Wanted, node: NodeName) -> tuple[str, ...] | None:
        """The reasons that keep a parked pod from a node that has changed, even if pods of lower priority end there.

        Empty if their end would lift all reasons now, so that the pod could preempt, or if the node keeps changing.
        None if their end is no help there. The node has not changed when this returns.
        """
        found = await self.search.on_node(wanted, node)
        if isinstance(found, Victims) or UNSETTLED in found:
            return ()
        return tuple(set(found) - {NO_VICTIMS, NOT_HELPFUL}) or None

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
        nominations = self.choice.cluster.nominations
        known = nominations.find(uid)
        if not node or pod.metadata.deletionTimestamp:
            self._drop(uid, "given_up" if not node else "gone")
            return
        try:
            needs = needs_of(pod)
        except InputError:
            self._drop(uid, "given_up")  # it can never be placed
            return
        if known is not None and (known.node, known.needs, known.priority) == (node, needs, priority_of(pod)):
            known.pod = pod
            return
        nominations.put(Nomination(pod, node, needs))
        self._note_filled(node)

    def pod_ends(self, node: NodeName) -> None:
        """Take in that a pod of a node ends, or is gone.

        A scheduler nominates a pod before the victims end. So the GPUs for a pod of another scheduler are known only
        now, and they are held before a decision can take them.
        """
        if self.leads.is_set():
            for own in self.choice.cluster.nominations.on(node):
                if not own.is_ours and own.booking is None:
                    self._hold_gpus(own, self._plan_later(own))

    def forget(self, uid: PodUid) -> None:
        """Hold no room for a pod that is gone, or has a node."""
        self._drop(uid, "gone")
        self._written.discard(uid)
        self._freed.pop(uid, None)
        self._hasty.discard(uid)

    def placed(self, uid: PodUid, node: NodeName) -> None:
        """Do not hold nominated room for a pod that already has its place on this node."""
        own = self.choice.cluster.nominations.find(uid)
        if own is not None:
            self._drop(uid, "placed" if own.node == node else "elsewhere")

    def check_all(self) -> None:
        """Check all nominations; a leader does so before its first decision, because others may have made them."""
        for node in self.choice.cluster.nominations.nodes():
            self.check(node)

    async def run(self) -> NoReturn:
        """Carry out preemptions, and check nominations whose nodes fill up, until cancelled.

        Preemptions under way are abandoned then; the next leader goes on.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.orders.run(), name="kube: carry out preemptions")
            group.create_task(self._check_filled(), name="kube: check nominations")
        raise AssertionError("both tasks are endless")

    def _may_matter(self, wanted: Wanted) -> bool:
        """Whether any pod of lower priority has a node, or the pod was nominated."""
        cluster = self.choice.cluster
        is_nominated = cluster.nominations.find(wanted.request.pod) is not None
        return is_nominated or cluster.occupants.has_below(priority_of(wanted.pod))

    def _still_waits(self, wanted: Wanted) -> bool:
        waiting = self.waiting.get(wanted.request.pod)
        return waiting is not None and waiting.wanted is wanted

    def _ineligible(self, wanted: Wanted) -> str | None:
        """The reason why a pod may not preempt now; None if it may."""
        uid = wanted.request.pod
        if wanted.pod.spec.preemptionPolicy == "Never":
            return NEVER
        if not self.search.budgets.are_read:
            return BUDGETS_UNREAD
        if self.orders.is_under_way(uid):
            return UNDER_WAY
        own = self.choice.cluster.nominations.find(uid)
        if own is None or not are_liftable(self.choice.reasons_against(wanted, own.node)):
            return None
        return TERMINATING if self._still_end(own) else None

    def _still_end(self, own: Nomination) -> bool:
        """Whether pods still end on the nominated node, or their memory is still reported."""
        if self._ending(own):
            self._freed.pop(own.uid, None)
            return True
        found = self.choice.decider.candidates.find(own.node)
        reported = found.node.gpus if found is not None else ()
        if not any(uid in gpu.measured_bytes for gpu in reported for uid in own.victims):
            return False
        return loop_now_s() - self._freed.setdefault(own.uid, loop_now_s()) < LINGER_S

    def _ending(self, own: Nomination) -> list[Occupant]:
        """The pods that still end on a nominated node, so that the nominated pod gets their room."""
        return [
            one
            for one in self.choice.cluster.occupants.on(own.node)
            if one.uid not in self.stuck
            and (
                one.uid in own.victims
                or one.is_being_evicted  # as for a relocation; its priority may be as high
                or (one.priority < own.priority and one.is_being_preempted)
            )
        ]

    def hold(self, nomination: Nomination) -> None:
        """Hold room for a waiting pod that relocation nominates; its status, as the watch shows it, is late."""
        self._written.add(nomination.uid)
        self._freed.pop(nomination.uid, None)
        self.choice.cluster.nominations.put(nomination)

    def retry(self, uid: PodUid) -> None:
        """Try a waiting pod again; one that does not wait any more is no error."""
        waiting = self.waiting.get(uid)
        if waiting is not None:
            self.queue.put(uid, priority_of(waiting.pod), loop_now_s(), tried=True)
            self.on_work()

    def _nominate(self, wanted: Wanted, victims: Victims) -> str:
        """Hold the room of the victims, and have them deleted; returns the text for people."""
        uid, node, nominations = wanted.request.pod, victims.node, self.choice.cluster.nominations
        for other in nominations.on(node):
            if other.is_ours and other.uid != uid and other.priority < priority_of(wanted.pod):
                self.give_up(other.uid)  # as kube-scheduler does: it may find another place sooner
        known = nominations.find(uid)
        if known is not None and known.node != node:
            self._drop(uid, "given_up")
        pod = self.waiting[uid].pod
        booking = victims.plan.booking if victims.plan.booking.grants else None
        ending = frozenset(one.uid for one in victims.pods)
        nominations.put(Nomination(pod, node, wanted.needs, booking, ending))
        self._written.add(uid)
        self._freed.pop(uid, None)
        self.orders.put(PreemptionOrder(pod, node, victims.pods))
        names = [one.pod.full_name for one in victims.pods]
        named = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
        structlog.get_logger().info("preempting", pod=pod.full_name, node=node, victims=names)
        return f"{len(names)} pod(s) of lower priority end on {node} to make room: {named}."

    def _end(self, uid: PodUid) -> None:
        """End a pod's nomination, in the API server too."""
        ended = self._drop(uid, "given_up")
        waiting = self.waiting.get(uid)
        if ended is None or not ended.is_ours or waiting is None:
            return
        self._written.add(uid)
        self._freed.pop(uid, None)
        self.orders.take_back(waiting.pod)

    def _drop(self, uid: PodUid, outcome: str) -> Nomination | None:
        """Hold no room for a pod any more; returns its nomination, or None."""
        ended = self.choice.cluster.nominations.drop(uid)
        if ended is not None and ended.is_ours and self.leads.is_set():
            self.outcomes.labels(outcome).inc()
        return ended

    def give_up(self, uid: PodUid) -> None:
        """End a pod's nomination, and try the pod again."""
        self._end(uid)
        self.retry(uid)

    def _note_filled(self, node: NodeName) -> None:
        if self.choice.cluster.nominations.are_on(node):
            self._filled.add(node)
            self._some_filled.set()

    async def _check_filled(self) -> NoReturn:
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
        for own in self.choice.cluster.nominations.on(node):
            if node not in self.choice.cluster.nodes:
                self.give_up(own.uid)
                continue
            plan = self._plan_later(own)
            if plan is None and own.uid in self.waiting:
                self.give_up(own.uid)
            self._hold_gpus(own, plan)

    def _hold_gpus(self, own: Nomination, plan: Plan | None) -> None:
        if plan is not None and plan.booking.grants:
            self.choice.cluster.nominations.hold_gpus(own, plan.booking)

    def _plan_later(self, own: Nomination) -> Plan | None:
        """The place of a nominated pod once the pods that end there are gone; on its GPU as before, if possible."""
        waiting = self.waiting.get(own.uid)
        try:
            if waiting is None:  # a pod of another scheduler
                wanted = self.understand(own.pod)
            else:
                wanted = waiting.wanted = waiting.wanted or self.understand(waiting.pod)
        except InputError:
            return None
        gpus = {grant.gpu for grant in own.booking.grants} if own.booking is not None else set()
        only: tuple[GpuUuid | None, ...] = (*gpus, None) if len(gpus) == 1 else (None,)
        for gpu in only:
            trial = NodeTrial(self.choice.decider, self.choice.cluster, wanted, own.node, gpu)
            for one in self._ending(own):
                trial.remove(one)
            for uid in own.victims - self.stuck:
                trial.remove_memory(uid)
            plan = trial.plan()
            if isinstance(plan, Plan):
                return plan
        return None


def _with(
    explained: Explanation | None, preemption: str, reasons: frozenset[str] = frozenset()
) -> Explanation | None:
    """An explanation with a sentence about preemption, as kube-scheduler adds it, and the reasons behind that."""
    if explained is None:
        return None
    return Explanation(f"{explained.text} preemption: {preemption}", explained.reasons | reasons)
