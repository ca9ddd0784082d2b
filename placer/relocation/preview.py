"""Answers people who ask which pods would move: for a waiting pod, or to free a whole GPU.

What always holds: the plan is that of the same search as the placer's own, and nothing is held, written or evicted.
One question is answered at a time, in slices, beside decisions.
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

import msgspec

from placer.api.explaining import SLICE, NotExplainedError, Turns, rest
from placer.core.booking import Booking
from placer.core.reasons import Reason
from placer.core.relocation.plan import Relocation
from placer.core.relocation.search import MOST_MOVES
from placer.relocation.relocator import Relocator, plan_summary
from placer.relocation.rules import RelocationMode
from placer.scheduler.pods.assigned_pods import priority_of
from placer.scheduler.pods.index import PodIndex
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption.post_filter import DefaultPreemption
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError
from plimsoll.part.settings import PREFIX
from plimsoll.placer_api.relocation import MoveRow, ObstacleCount, RelocationPreview

SETTING: Final = f"{PREFIX}RELOCATION"


@dataclass(slots=True)
class RelocationPreviews:
    """Answers; see the module.

    Attributes:
        relocator: searches for plans.
        preemption: explains refusals, and knows the waiting pods.
        pods: all pods that the watch shows.
        synced: set once all pods and nodes were read.
        leads: set once this placer is the one that places.
    """

    relocator: Relocator
    preemption: DefaultPreemption
    pods: PodIndex
    synced: asyncio.Event
    leads: asyncio.Event
    _turns: Turns = field(default_factory=Turns)

    async def for_pod(self, namespace: str, name: str) -> RelocationPreview | None:
        """The plan for a pod; None for a pod that the watch does not show.

        Raises:
            NotExplainedError: pods, nodes or budgets are still being read, or too many ask.
        """
        self._check_read()
        pod = self.pods.find(namespace, name)
        if pod is None:
            return None
        async with self._turns.turn():
            info = self._wanted(pod)
            if isinstance(info, str):
                return self._answer(info)
            no_need = await self._no_need(info)
            return self._answer(no_need) if no_need else await self._plan(info, spares_idle=False)

    async def for_gpu(self) -> RelocationPreview:
        """The plan that frees a whole GPU: its pods move to GPUs that are in use.

        Raises:
            NotExplainedError: likewise.
        """
        self._check_read()
        async with self._turns.turn():
            return await self._plan(self.relocator.whole_gpu, spares_idle=True)

    def _check_read(self) -> None:
        if not self.synced.is_set() or not self.relocator.budgets.are_read:
            raise NotExplainedError("the placer has just started and has not seen all pods; ask again")

    def _wanted(self, pod: Pod) -> PodInfo | str:
        """The demand of a pod that waits for a GPU, or the reason why no pods are moved for it."""
        uid, preemption = PodUid(pod.metadata.uid), self.preemption
        nomination = preemption.search.scheduling.cache.nominator.find(uid)
        if pod.spec.nodeName or preemption.search.scheduling.cache.is_assumed(uid):
            return "The pod has a place, so no pods are moved for it."
        if uid not in preemption.nominated.queue:
            return "The pod does not wait for a place from Plimsoll; `plimsoll explain` says why."
        if nomination is not None:
            plan = self.relocator.plan_for(uid)
            return f"Room is being made for the pod on {nomination.node}. {plan}".rstrip()
        try:
            info = preemption.nominated.understand(pod)
        except InputError as error:
            return f"Only a change of the pod helps: {error}."
        if not info.request.demand.containers:
            return "The pod asks for no GPU, and pods are moved for GPUs alone."
        return info

    async def _no_need(self, info: PodInfo) -> str | None:
        """The reason why a waiting pod needs no moves; None if it does."""
        explained = await self.preemption.search.scheduling.explain(info)
        if explained is None:
            return "The pod has a place without any move; it waits for its turn."
        if Reason.ACQUIRING.value in explained.reasons:
            return "A GPU that will have room is joining the pool."
        if await self.preemption.explain(info) is None:
            return "The pod preempts: pods of lower priority end for it, so none is moved."
        return None

    async def _plan(self, info: PodInfo, *, spares_idle: bool) -> RelocationPreview:
        _, found = await self.relocator.searched(info, spares_idle=spares_idle)
        movable, obstacles = await self._counted(priority_of(info.pod))
        counts = tuple(ObstacleCount(reason=reason, pods=pods) for reason, pods in obstacles.most_common())
        if found is not None:
            text = f"{plan_summary(found)}. {self._consequence()}"
        elif movable:
            text = f"No plan: with up to {MOST_MOVES} moves, not all pods would have a place."
        else:
            text = "No plan: no pod may be moved now."
        answer = msgspec.structs.replace(self._answer(text), movable=movable, obstacles=counts)
        return answer if found is None else _with_plan(answer, found)

    def _answer(self, text: str) -> RelocationPreview:
        return RelocationPreview(text=text, mode=self.relocator.rules.mode.value, leads=self.leads.is_set())

    def _consequence(self) -> str:
        rules = self.relocator.rules
        if rules.mode is not RelocationMode.ON:
            return f"Nothing is moved: {SETTING} is {rules.mode.value}."
        return f"The placer does this by itself once a pod has waited for {rules.after_s:g} s."

    async def _counted(self, priority: int) -> tuple[int, Counter[str]]:
        """The pods that may be moved, and the others with GPUs by the first reason."""
        loop, evictable, movable = asyncio.get_running_loop(), self.relocator.evictable, 0
        obstacles = Counter[str]()
        nodes = tuple(evictable.cache.nodes)
        for start in range(0, len(nodes), SLICE):
            began_s = loop.time()
            for node in nodes[start : start + SLICE]:
                for one in evictable.cache.assigned.on(node):
                    booking = evictable.ledger.booking(one.uid)
                    if booking is None or not booking.grants:
                        continue
                    reason = evictable.obstacle(one, priority)
                    movable += reason is None
                    obstacles.update(() if reason is None else (reason,))
            await rest(began_s)
        return movable, obstacles


def _with_plan(answer: RelocationPreview, plan: Relocation) -> RelocationPreview:
    return msgspec.structs.replace(
        answer,
        node=plan.place.node,
        gpus=_gpus(plan.place),
        cost=plan.cost,
        traffic_pct=plan.traffic_pct,
        moves=_rows(plan),
    )


def _rows(plan: Relocation) -> tuple[MoveRow, ...]:
    return tuple(
        MoveRow(
            pod=one.evicted.name,
            cost=one.evicted.cost,
            node=one.evicted.node,
            gpus=tuple(sorted(one.evicted.gpus)),
            to=one.to.node,
            to_gpus=_gpus(one.to),
        )
        for one in plan.moves
    )


def _gpus(place: Booking) -> tuple[GpuUuid, ...]:
    return tuple(dict.fromkeys(grant.gpu for grant in place.grants))
