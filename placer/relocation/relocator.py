"""Relocation: moves pods that allow it, so that a pod which waits for a GPU gets one.

A search finds the fewest evictions after which the waiting pod and all moved pods have a place. The waiting pod is
nominated for its node, and room is kept for each replacement. Then the pods are evicted, one after another. The
waiting pod and the replacements are placed by decisions of their own. What always holds: one waiting pod at a time
has pods moved for it, no pod that could preempt does, and in a dry run nothing is moved. A moved pod that does not
end holds up others for `keep_s` at most. Rooms are stored before a pod is evicted, so that the next leader keeps them
too.

Pods may also be moved together, so that a whole GPU becomes free. No pod is moved to an idle GPU then, so each such
plan leaves one more GPU idle, and moving comes to an end.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from placer.core.reasons import Reason
from placer.core.relocation.plan import Relocation, Steps
from placer.core.relocation.search import confirmed, search
from placer.relocation.evictable import EvictablePods
from placer.relocation.evictor import Evictor
from placer.relocation.memory import RelocationMemory, StoredRelocations
from placer.relocation.replacements import Replacements
from placer.relocation.rules import RelocationMode, RelocationRules
from placer.relocation.snapshot import ClusterSnapshot
from placer.scheduler.clock import loop_now_s
from placer.scheduler.pods.assigned_pods import AssignedPod, priority_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.preemption.budgets import Budgets
from placer.scheduler.preemption.nominated_pods import NominatedPods
from placer.scheduler.reporting.results import Results
from placer.scheduler.schedule_pod import PodScheduling
from plimsoll.contract import GPU_COUNT, SCHEDULER_NAME
from plimsoll.ids import PodUid
from plimsoll.kube.models import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements, Toleration
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

SLICE_S: Final = 0.002
"""Seconds after which a search lets other tasks run."""
REST_RATIO: Final = 4
"""A search rests this many times as long as it works, so that it takes a fifth of the placer's time at most."""
NODES_AT_ONCE: Final = 64
"""The nodes whose idle GPUs are counted before other tasks run."""
WHOLE_GPU: Final = Pod(
    metadata=ObjectMeta(name="whole-gpu", uid="whole-gpu"),
    spec=PodSpec(
        schedulerName=SCHEDULER_NAME,
        containers=[Container(name="main", resources=ResourceRequirements(limits={GPU_COUNT: "1"}))],
        tolerations=[Toleration(operator="Exists")],
        priority=2**31 - 1,
    ),
)
"""A pod that stands for a GPU to be freed; no such pod exists."""
MOST_AWAITED: Final = 3
"""With more rooms kept for replacements, no further pods are moved."""


@dataclass(slots=True)
class Relocator:
    """Moves pods while `run` runs.

    Attributes:
        rules: see `RelocationRules`.
        nominated: knows the waiting pods, judges nodes, and holds rooms.
        budgets: the disruption budgets.
        results: reports plans and moves.
        clock: the wall clock in UTC.
        memory: keeps the rooms and the last moves for the next leader.
        whole_gpu: the demand of `WHOLE_GPU`.
        evictor: evicts the pods that move.
        evictable: the pods that may be moved.
        replacements: those that may come, with the rooms that are kept for them.
    """

    rules: RelocationRules
    nominated: NominatedPods
    budgets: Budgets
    results: Results
    clock: Callable[[], datetime]
    memory: RelocationMemory
    whole_gpu: PodInfo
    evictor: Evictor = field(init=False)
    evictable: EvictablePods = field(init=False)
    replacements: Replacements = field(init=False)
    _tried: dict[bytes, float] = field(default_factory=dict)  # by signature: when it is tried again
    # The pod for which others are moved, and by when other pods have waited long enough.
    _under_way: tuple[PodUid, float] | None = None
    _leaving: dict[PodUid, float] = field(default_factory=dict)  # evicted pods: how long their end is awaited
    _spare_due_s: float = 0.0  # when idle GPUs are counted again
    _plans: dict[PodUid, str] = field(default_factory=dict)  # the last plan for each pod that waits
    _stored: StoredRelocations | None = None  # as `memory` has it

    def __post_init__(self) -> None:
        scheduling = self.nominated.scheduling
        cache, ledger = scheduling.cache, scheduling.decider.ledger
        self.evictor = Evictor(cache, self.nominated.executor.writes, self._note_evicted)
        self.evictable = EvictablePods(cache, ledger, self.budgets, self.rules, self.evictor, self.clock)
        self.replacements = Replacements(cache, self.nominated, self.rules.keep_s, self.clock)

    async def restore(self) -> None:
        """Go on with an earlier leader's rooms and moves, before the first decision; takes some seconds at most."""
        if self.rules.mode is not RelocationMode.OFF:
            self._stored = stored = await self.memory.read()
            self.evictable.restore(stored.moves)
            self.replacements.restore(stored.rooms)

    async def _save(self) -> None:
        """Store the rooms and moves for the next leader, if others are stored."""
        now = StoredRelocations(self.replacements.stored(), self.evictable.moves())
        if now != self._stored and await self.memory.write(now):
            self._stored = now

    async def run(self) -> None:
        """Look for pods that have waited long, until cancelled; returns at once where pods are never moved."""
        await self.nominated.leads.wait()
        while self.rules.mode is not RelocationMode.OFF:
            heed_cancellation()
            await asyncio.sleep(self.rules.check_s)
            await self.look()

    async def look(self) -> None:
        """Give up rooms whose time is over, and move pods once, if there is a reason to."""
        self._give_up_rooms()
        await self._save()
        self._plans = {uid: plan for uid, plan in self._plans.items() if uid in self.nominated.queue}
        if self._is_busy():
            return
        if (info := self._next()) is not None:
            await self._relocate_for(info)
        elif await self._lacks_spare():
            await self._free_gpu()

    def plan_for(self, uid: PodUid) -> str:
        """The last plan for a waiting pod, for people; empty without any."""
        return self._plans.get(uid, "")

    def _is_busy(self) -> bool:
        if self._under_way is not None:
            uid, until_s = self._under_way
            is_held = self._is_nominated(uid) and loop_now_s() < until_s
            if is_held or self.nominated.executor.is_under_way(uid):
                return True
            self._under_way = None
        return len(self.replacements) >= MOST_AWAITED

    def _is_nominated(self, uid: PodUid) -> bool:
        return self._scheduling.cache.nominator.find(uid) is not None

    @property
    def _scheduling(self) -> PodScheduling:
        return self.nominated.scheduling

    def _count_plan(self, outcome: str) -> None:
        self._scheduling.decider.metrics.relocation.plans.labels(outcome).inc()

    def _next(self) -> PodInfo | None:
        """The waiting pod for which others may be moved now: of the highest priority, the one that waits longest."""
        now_s = loop_now_s()
        self._tried = {signature: at_s for signature, at_s in self._tried.items() if now_s < at_s}
        due = [
            one
            for one in self.nominated.queue
            if one.refused_for
            and Reason.ACQUIRING.value not in one.refused_for  # a GPU that joins the pool will have the room
            and now_s - one.seen_s >= self.rules.after_s
            and one.info is not None
            and one.info.request.demand.containers
            and one.info.signature not in self._tried
            and self._may_have(one.info.request.pod)
        ]
        first = min(due, key=lambda one: (-priority_of(one.pod), one.seen_s), default=None)
        return first.info if first is not None else None

    def _may_have(self, uid: PodUid) -> bool:
        """Whether a pod is neither nominated nor being bound."""
        is_ending = self.nominated.executor.is_under_way(uid)
        return not self._is_nominated(uid) and not is_ending and not self._scheduling.cache.is_assumed(uid)

    async def _relocate_for(self, info: PodInfo) -> None:
        """Search for a plan for a waiting pod, and carry it out, or report it."""
        uid = info.request.pod
        self._tried[info.signature] = loop_now_s() + self.rules.after_s
        if not self.budgets.are_read:
            return
        snapshot, found = await self.searched(info, spares_idle=False)
        waiting = self.nominated.queue.get(uid)
        if waiting is None or waiting.info is not info or not self._may_have(uid):
            return
        if found is None:
            self._plans.pop(uid, None)
            self._count_plan("none")
            return
        text = self._plans[uid] = plan_text(found)
        if self._only_reports(text, pod=waiting.pod.full_name):
            self.results.relocation_planned(waiting.pod, f"{text} Nothing is moved in a dry run.")
            return
        self._under_way = uid, loop_now_s() + self.rules.keep_s
        own = snapshot.nomination(found.place, [one.evicted for one in found.moves])
        own.pod = waiting.pod  # as the watch shows it now
        self.nominated.hold(own)
        pods = self._keep_rooms(found, snapshot)
        await self._save()
        evict = partial(self.evictor.evict, pods, waiting.pod)
        self.nominated.executor.carry_out(waiting.pod, found.place.node, evict, "relocation")
        self.nominated.retry(uid)
        self.results.relocation_planned(waiting.pod, text)

    async def _free_gpu(self) -> None:
        """Free one whole GPU: its pods move to GPUs that are in use, so that one more is idle."""
        snapshot, found = await self.searched(self.whole_gpu, spares_idle=True)
        if found is None:
            self._count_plan("none")
            return
        if self._only_reports(plan_text(found)):
            return
        pods = self._keep_rooms(found, snapshot)
        await self._save()
        refused = await self.evictor.evict(pods, None)
        if refused is not None:
            get_logger().warning("relocation refused", error=refused)

    def _only_reports(self, plan: str, **about: str) -> bool:
        """Log and count a plan; returns whether it is not carried out."""
        get_logger().info("relocation planned", **about, plan=plan, mode=self.rules.mode.value)
        is_dry = self.rules.mode is RelocationMode.DRY_RUN
        self._count_plan("dry-run" if is_dry else "begun")
        return is_dry

    async def searched(
        self, info: PodInfo, *, spares_idle: bool
    ) -> tuple[ClusterSnapshot, Relocation | None]:
        """The plan for a pod, as it holds at this moment; None without one, or where the pod needs none."""
        uid = info.request.pod
        snapshot = ClusterSnapshot(self._scheduling, info, self.nominated.understand, spares_idle=spares_idle)
        await snapshot.read(self.evictable)
        found = None if snapshot.is_empty else await _in_slices(search(snapshot, uid))
        found = confirmed(snapshot, uid, found) if found is not None and found.moves else None
        if found is not None and self.evictable.are_too_many(self._pods_of(found)):
            found = None
        return snapshot, found

    def _pods_of(self, found: Relocation) -> list[AssignedPod]:
        """The pods that a plan moves. A plan was confirmed just now, so all of them are there."""
        known = (self._scheduling.cache.assigned.find(one.evicted.pod) for one in found.moves)
        return [one for one in known if one is not None]

    def _keep_rooms(self, found: Relocation, snapshot: ClusterSnapshot) -> list[AssignedPod]:
        """Keep the rooms of a plan for the replacements; returns the pods that move."""
        leaving, pods = [one.evicted for one in found.moves], self._pods_of(found)
        for pod, one in zip(pods, found.moves, strict=True):
            info = snapshot.info(pod.uid)
            assert info is not None, "a place was planned for it"
            self.replacements.keep(pod.pod, info.signature, snapshot.nomination(one.to, leaving))
        return pods

    async def _lacks_spare(self) -> bool:
        """Whether a search is due, no moved pod still ends, and fewer GPUs are idle than are to be kept free."""
        now_s = loop_now_s()
        find = self._scheduling.cache.assigned.find
        self._leaving = {
            uid: at_s for uid, at_s in self._leaving.items() if find(uid) is not None and now_s < at_s
        }
        is_moving = bool(self._leaving or len(self.replacements))
        if not self.rules.spare_gpus or now_s < self._spare_due_s or is_moving:
            return False
        self._spare_due_s = now_s + self.rules.after_s
        idle = 0
        for number, node in enumerate(tuple(self._scheduling.decider.reports)):
            if not number % NODES_AT_ONCE:
                await asyncio.sleep(0)
            found = self._scheduling.decider.candidates.find(node)
            idle += sum(room.is_empty for room in found.rooms.values()) if found is not None else 0
            if idle >= self.rules.spare_gpus:
                return False
        return self.budgets.are_read

    def _note_evicted(self, moved: AssignedPod, pod: Pod | None) -> None:
        """Take in that a pod was evicted, to make room for another one, if any."""
        self._scheduling.decider.metrics.relocation.pods.inc()
        self._leaving[moved.uid] = loop_now_s() + self.rules.keep_s
        self.evictable.note_moved(moved.pod)
        to = self.replacements.note_evicted(moved.uid)
        self.results.relocated(moved.pod, pod, moved.node, to, self.rules.keep_s)

    def _give_up_rooms(self) -> None:
        under_way = self._under_way is not None and self.nominated.executor.is_under_way(self._under_way[0])
        for one in self.replacements.expire(under_way):
            get_logger().warning("room given up", moved=one.moved.full_name, node=one.node)
            self._count_plan("given-up")


async def _in_slices(steps: Steps[Relocation | None]) -> Relocation | None:
    """Take all steps; other tasks run between slices."""
    loop = asyncio.get_running_loop()
    while True:
        until_s = loop.time() + SLICE_S
        while loop.time() < until_s:
            try:
                next(steps)
            except StopIteration as end:
                result: Relocation | None = end.value
                return result
        await asyncio.sleep(SLICE_S * REST_RATIO)


def plan_text(found: Relocation) -> str:
    """A plan for people, with all moves."""
    moves = [
        f"{one.evicted.name} from {one.evicted.node} to {one.to.node} "
        f"({', '.join(dict.fromkeys(grant.gpu for grant in one.to.grants))})"
        for one in found.moves
    ]
    return f"{plan_summary(found)}: {'; '.join(moves)}."


def plan_summary(found: Relocation) -> str:
    """The number of pods that a plan moves, their cost, and the node."""
    count = f"{len(found.moves)} pod" + ("s" if len(found.moves) > 1 else "")
    return f"Moving {count} at a cost of {found.cost:g} makes room on {found.place.node}"
