"""DefaultPreemption: makes room for a refused pod by the end of pods of lower priority, and holds that room for it.

The pod is nominated first, in the API server too, then its victims are deleted. It is placed by a decision of its own
once they are gone. What always holds: the victims of one pod are on one node at a time, and no pod is deleted for a
pod that has left the queue.
"""

import asyncio
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from placer.core.reasons import Reason
from placer.scheduler.pods.assigned_pods import priority_of
from placer.scheduler.pods.nominator import Nomination
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption.nominated_pods import NominatedPods
from placer.scheduler.preemption.victim_search import (
    NO_VICTIMS,
    NOT_HELPFUL,
    PASSING,
    UNSETTLED,
    NoVictims,
    VictimSearch,
)
from placer.scheduler.preemption.victims import Victims
from placer.scheduler.verdicts import Explanation
from plimsoll.ids import NodeName
from plimsoll.part.log import get_logger

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
class DefaultPreemption:
    """Explains refusals, with preemption as the last resort; `run` carries it out.

    Attributes:
        nominated: holds rooms, and carries preemptions out.
        search: finds victims, and judges nodes.
    """

    nominated: NominatedPods
    search: VictimSearch

    async def refuse(self, info: PodInfo) -> Explanation | None:
        """Explain a refusal, as `PodScheduling.explain` does, after trying preemption.

        If victims are found, the pod is nominated when this returns, and they are deleted meanwhile. No other task
        has run between the explanation and the return.
        """
        explained: Explanation | None = None
        for _ in range(ROUNDS):
            explained = await self.search.scheduling.explain(info)
            # A GPU that joins the pool will have the room, so no pod has to end.
            if explained is None or not self._may_matter(info) or Reason.ACQUIRING.value in explained.reasons:
                return explained
            why_not = self._ineligible(info)
            if why_not is not None:
                return _with(explained, why_not)
            found = await self.search.search(info)
            explained = await self.search.scheduling.explain(info)  # nodes changed during the search
            if explained is None or not self._still_waits(info):
                return explained
            if isinstance(found, NoVictims):
                self.nominated.end(info.request.pod)
                refused = _with(explained, found.text, found.reasons)
                return replace(refused, may_pass=not PASSING.isdisjoint(found.reasons))
            again = self.search.confirm(info, found)
            if again is not None:
                return _with(explained, self._nominate(info, again))
        return None if explained is None else replace(_with(explained, CHANGING), may_pass=True)

    async def explain(self, info: PodInfo) -> Explanation | None:
        """Explain a refusal as `refuse` would, but end no pod: None also if victims could make room."""
        explained = await self.search.scheduling.explain(info)
        if explained is None or not self._may_matter(info):
            return explained
        why_not = self._ineligible(info)
        if why_not is not None:
            return _with(explained, why_not)
        found = await self.search.search(info)
        explained = await self.search.scheduling.explain(info)
        if explained is None or isinstance(found, Victims):
            return None
        return _with(explained, found.text, found.reasons)

    def may_preempt(self, info: PodInfo, node: NodeName) -> bool:
        """Whether an unschedulable pod may preempt now, and a node has pods of lower priority."""
        lower = self.search.scheduling.cache.assigned.below(priority_of(info.pod), node)
        return bool(lower) and self._ineligible(info) is None

    async def left_by_victims(self, info: PodInfo, node: NodeName) -> tuple[str, ...] | None:
        """The reasons that keep a refused pod from a node that has changed, even if pods of lower priority end there.

        Empty if their end would lift all reasons now, so that the pod could preempt, or if the node keeps changing.
        None if their end is no help there. The node has not changed when this returns.
        """
        found = await self.search.on_node(info, node)
        if isinstance(found, Victims) or UNSETTLED in found:
            return ()
        return tuple(set(found) - {NO_VICTIMS, NOT_HELPFUL}) or None

    async def run(self) -> NoReturn:
        """Carry out preemptions, and check nominations whose nodes fill up, until cancelled.

        Preemptions under way are abandoned then; the next leader goes on.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nominated.executor.run(), name="kube: carry out preemptions")
            group.create_task(self.nominated.run(), name="kube: check nominations")
        raise AssertionError("both tasks are endless")

    def _may_matter(self, info: PodInfo) -> bool:
        """Whether any pod of lower priority has a node, or the pod was nominated."""
        cache = self.search.scheduling.cache
        is_nominated = cache.nominator.find(info.request.pod) is not None
        return is_nominated or cache.assigned.has_below(priority_of(info.pod))

    def _still_waits(self, info: PodInfo) -> bool:
        waiting = self.nominated.queue.get(info.request.pod)
        return waiting is not None and waiting.info is info

    def _ineligible(self, info: PodInfo) -> str | None:
        """The reason why a pod may not preempt now; None if it may."""
        uid = info.request.pod
        if info.pod.spec.preemptionPolicy == "Never":
            return NEVER
        if not self.search.budgets.are_read:
            return BUDGETS_UNREAD
        if self.nominated.executor.is_under_way(uid):
            return UNDER_WAY
        own = self.search.scheduling.cache.nominator.find(uid)
        if own is None or not self.search.scheduling.profile.framework.is_resolvable(
            self.search.scheduling.reasons_against(info, own.node)
        ):
            return None
        return TERMINATING if self.nominated.still_end(own) else None

    def _nominate(self, info: PodInfo, victims: Victims) -> str:
        """Hold the room of the victims, and have them deleted; returns the text for people."""
        uid, node, nominator = info.request.pod, victims.node, self.search.scheduling.cache.nominator
        for other in nominator.on(node):
            if other.is_ours and other.uid != uid and other.priority < priority_of(info.pod):
                self.nominated.give_up(other.uid)  # as kube-scheduler does: it may find another place sooner
        known = nominator.find(uid)
        if known is not None and known.node != node:
            self.nominated.drop(uid, "given_up")
        waiting = self.nominated.queue.get(uid)
        assert waiting is not None, "the caller has seen that the pod still waits"
        pod = waiting.pod
        booking = victims.plan.booking if victims.plan.booking.grants else None
        ending = frozenset(one.uid for one in victims.pods)
        self.nominated.hold(Nomination(pod, node, info.needs, booking, ending))
        self.nominated.executor.preempt(pod, node, victims.pods)
        names = [one.pod.full_name for one in victims.pods]
        named = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
        get_logger().info("preempting", pod=pod.full_name, node=node, victims=names)
        return f"{len(names)} pod(s) of lower priority end on {node} to make room: {named}."


def _with(explained: Explanation, preemption: str, reasons: frozenset[str] = frozenset()) -> Explanation:
    """An explanation with a sentence about preemption, as kube-scheduler adds it, and the reasons behind that."""
    return Explanation(f"{explained.text} preemption: {preemption}", explained.reasons | reasons)
