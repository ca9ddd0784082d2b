"""Relocation: moves pods that allow it, so that a pod which waits for a GPU gets one.

A search finds the fewest evictions after which the waiting pod and all moved pods have a place. The waiting pod is
nominated for its node, and room is kept for each replacement. Then the pods are evicted, one after another, by the
orders of preemption. The waiting pod and the replacements are placed by decisions of their own. What always holds:
one waiting pod at a time has pods moved for it, no pod that could preempt does, and in a dry run nothing is moved. A
moved pod that does not end holds up others for `keep_s` at most. Rooms are stored before a pod is evicted, so that
the next leader keeps them too.

Pods may also be moved together, so that a whole GPU becomes free. No pod is moved to an idle GPU then, so each such
plan leaves one more GPU idle, and moving comes to an end.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from placer.core.reasons import Reason
from placer.core.relocation.plan import Relocation, Steps
from placer.core.relocation.search import confirmed, search
from placer.metrics import Metrics
from placer.relocation.board import KubeBoard
from placer.relocation.kept import KeptRooms
from placer.relocation.memory import RelocationMemory, StoredRelocations
from placer.relocation.movers import Movers
from placer.relocation.rules import RelocationMode, RelocationRules
from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.plugins.default_preemption.budgets import Budgets
from placer.scheduler.plugins.default_preemption.nominating import Nominating
from placer.scheduler.plugins.default_preemption.orders import PreemptionOrder
from placer.scheduler.pods.assigned_pods import AssignedPod, priority_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.reporting.results import Results
from placer.scheduler.schedule_pod import PodScheduling
from plimsoll.contract import GPU_COUNT, SCHEDULER_NAME
from plimsoll.ids import NodeName, PodUid
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
MOST_KEPT: Final = 3
"""With more rooms kept for replacements, no further pods are moved."""


@dataclass(slots=True)
class Relocating:
    """Moves pods while `run` runs.

    Attributes:
        rules: see `RelocationRules`.
        nominating: knows the waiting pods, judges nodes, holds rooms, and carries out evictions.
        budgets: the disruption budgets.
        results: reports plans and moves.
        clock: the wall clock in UTC.
        memory: keeps the rooms and the last moves for the next leader.
        whole_gpu: the demand of `WHOLE_GPU`.
        movers: the pods that may be moved.
        kept: the rooms that are kept for replacements.
    """

    rules: RelocationRules
    nominating: Nominating
    budgets: Budgets
    results: Results
    clock: Callable[[], datetime]
    memory: RelocationMemory
    whole_gpu: PodInfo
    movers: Movers = field(init=False)
    kept: KeptRooms = field(init=False)
    _tried: dict[bytes, float] = field(default_factory=dict)  # by signature: when it is tried again
    _under_way: PodUid | None = None  # the pod for which others are moved
    _under_way_until_s: float = 0.0  # by then other pods have waited long enough
    _leaving: dict[PodUid, float] = field(default_factory=dict)  # evicted pods: how long their end is awaited
    _spare_due_s: float = 0.0  # when idle GPUs are counted again
    _plans: dict[PodUid, str] = field(default_factory=dict)  # the last plan for each pod that waits
    _stored: StoredRelocations | None = None  # as `memory` has it

    def __post_init__(self) -> None:
        scheduling, orders = self._choice, self.nominating.orders
        self.movers = Movers(
            scheduling.cache,
            scheduling.decider.ledger,
            self.budgets,
            self.rules,
            lambda: orders.unmovable,
            self.clock,
        )
        self.kept = KeptRooms(scheduling.cache, self.nominating, self.rules.keep_s, self.clock)
        orders.on_relocated = self._moved

    async def restore(self) -> None:
        """Go on with an earlier leader's rooms and moves, before the first decision; takes some seconds at most."""
        if self.rules.mode is not RelocationMode.OFF:
            self._stored = stored = await self.memory.read()
            self.movers.restore(stored.moves)
            self.kept.restore(stored.rooms)

    async def _save(self) -> None:
        """Store the rooms and moves for the next leader, if others are stored."""
        now = StoredRelocations(self.kept.stored(), self.movers.moves())
        if now != self._stored and await self.memory.write(now):
            self._stored = now

    async def run(self) -> None:
        """Look for pods that have waited long, until cancelled; returns at once where pods are never moved."""
        await self.nominating.leads.wait()
        while self.rules.mode is not RelocationMode.OFF:
            heed_cancellation()
            await asyncio.sleep(self.rules.check_s)
            await self.look()

    async def look(self) -> None:
        """Give up rooms whose time is over, and move pods once, if there is a reason to."""
        self._give_up_rooms()
        await self._save()
        self._plans = {uid: plan for uid, plan in self._plans.items() if uid in self.nominating.queue}
        if self._is_busy():
            return
        if (info := self._next()) is not None:
            await self._try(info)
        elif await self._lacks_spare():
            await self._free_gpu()

    def plan_for(self, uid: PodUid) -> str:
        """The last plan for a waiting pod, for people; empty without any."""
        return self._plans.get(uid, "")

    def _is_busy(self) -> bool:
        if self._under_way is not None:
            is_late = loop_now_s() >= self._under_way_until_s
            is_held = self._is_nominated(self._under_way) and not is_late
            if is_held or self.nominating.orders.is_under_way(self._under_way):
                return True
            self._under_way = None
        return len(self.kept) >= MOST_KEPT

    def _is_nominated(self, uid: PodUid) -> bool:
        return self._cluster.nominator.find(uid) is not None

    @property
    def _choice(self) -> PodScheduling:
        return self.nominating.scheduling

    @property
    def _cluster(self) -> Cache:
        return self._choice.cache

    @property
    def _metrics(self) -> Metrics:
        return self._choice.decider.metrics

    def _next(self) -> PodInfo | None:
        """The waiting pod for which others may be moved now: of the highest priority, the one that waits longest."""
        now_s = loop_now_s()
        self._tried = {signature: at_s for signature, at_s in self._tried.items() if now_s < at_s}
        due = [
            one
            for one in self.nominating.queue
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
        is_ending = self.nominating.orders.is_under_way(uid)
        return not self._is_nominated(uid) and not is_ending and not self._cluster.is_assumed(uid)

    async def _try(self, info: PodInfo) -> None:
        """Search for a plan, and carry it out, or report it."""
        uid = info.request.pod
        self._tried[info.signature] = loop_now_s() + self.rules.after_s
        if not self.movers.budgets.are_read:
            return
        board, found = await self.searched(info, spares_idle=False)
        waiting = self.nominating.queue.get(uid)
        if waiting is None or waiting.info is not info or not self._may_have(uid):
            return
        if found is None:
            self._plans.pop(uid, None)
            self._metrics.relocation.plans.labels("none").inc()
            return
        text = plan_text(found, board)
        self._plans[uid] = text
        get_logger().info(
            "relocation planned", pod=waiting.pod.full_name, plan=text, mode=self.rules.mode.value
        )
        if self.rules.mode is RelocationMode.DRY_RUN:
            self._metrics.relocation.plans.labels("dry-run").inc()
            self.results.relocation_planned(waiting.pod, f"{text} Nothing is moved in a dry run.")
        else:
            await self._carry_out(waiting.pod, found, board)
            self.results.relocation_planned(waiting.pod, text)

    async def searched(self, info: PodInfo, *, spares_idle: bool) -> tuple[KubeBoard, Relocation | None]:
        """The plan for a pod, as it holds at this moment; None without one, or where the pod needs none."""
        uid = info.request.pod
        understand = self.nominating.understand
        board = await KubeBoard.made(self._choice, info, self.movers, understand, spares_idle=spares_idle)
        found = None if board.is_empty else await _in_slices(search(board, uid))
        found = confirmed(board, uid, found) if found is not None and found.moves else None
        return board, None if found is None or self.movers.are_too_many(_moved(found, board)) else found

    async def _carry_out(self, pod: Pod, found: Relocation, board: KubeBoard) -> None:
        """Hold and store all rooms, and have the pods evicted meanwhile."""
        self._under_way = uid = PodUid(pod.metadata.uid)
        self._under_way_until_s = loop_now_s() + self.rules.keep_s
        own = board.nomination(found.place, [one.movable for one in found.moves])
        own.pod = pod  # as the watch shows it now
        self.nominating.hold(own)
        self._keep_rooms(found, board)
        await self._save()
        order = PreemptionOrder(pod, found.place.node, tuple(_moved(found, board)), moves=True)
        self.nominating.orders.put(order)
        self.nominating.retry(uid)
        self._metrics.relocation.plans.labels("begun").inc()

    def _keep_rooms(self, found: Relocation, board: KubeBoard) -> None:
        leaving = [one.movable for one in found.moves]
        for one in found.moves:
            held, info = board.nomination(one.to, leaving), board.info(one.movable.pod)
            assert info is not None, "a place was planned for it"
            self.kept.keep(board.movers[one.movable.pod].assigned_pod.pod, info.signature, held)

    async def _lacks_spare(self) -> bool:
        """Whether a search is due, no moved pod still ends, and fewer GPUs are idle than are to be kept free."""
        now_s = loop_now_s()
        find = self._cluster.assigned.find
        self._leaving = {
            uid: at_s for uid, at_s in self._leaving.items() if find(uid) is not None and now_s < at_s
        }
        is_moving = bool(self._leaving or len(self.kept))
        if not self.rules.spare_gpus or now_s < self._spare_due_s or is_moving:
            return False
        self._spare_due_s = now_s + self.rules.after_s
        idle = 0
        for number, node in enumerate(tuple(self._choice.decider.reports)):
            if not number % NODES_AT_ONCE:
                await asyncio.sleep(0)
            found = self._choice.decider.candidates.find(node)
            idle += sum(room.is_empty for room in found.rooms.values()) if found is not None else 0
            if idle >= self.rules.spare_gpus:
                return False
        return self.movers.budgets.are_read

    async def _free_gpu(self) -> None:
        """Free one whole GPU: its pods move to GPUs that are in use, so that one more is idle."""
        board, found = await self.searched(self.whole_gpu, spares_idle=True)
        if found is None:
            self._metrics.relocation.plans.labels("none").inc()
            return
        is_dry = self.rules.mode is RelocationMode.DRY_RUN
        text = plan_text(found, board)
        get_logger().info("relocation planned", plan=text, mode=self.rules.mode.value)
        self._metrics.relocation.plans.labels("dry-run" if is_dry else "begun").inc()
        if is_dry:
            return
        self._keep_rooms(found, board)
        await self._save()
        orders, moved = self.nominating.orders, _moved(found, board)
        refused = await orders.tried(moved)
        for one in moved:
            heed_cancellation()
            refused = refused or await orders.evict(one, None)
            if refused is not None:
                get_logger().warning("relocation refused", error=refused)
                break

    def _moved(self, victim: Pod, pod: Pod | None, node: NodeName) -> None:
        """A pod was evicted to be moved."""
        self._metrics.relocation.pods.inc()
        self._leaving[PodUid(victim.metadata.uid)] = loop_now_s() + self.rules.keep_s
        self.movers.note_moved(victim)
        to = self.kept.note_evicted(PodUid(victim.metadata.uid))
        self.results.relocated(victim, pod, node, to, self.rules.keep_s)

    def _give_up_rooms(self) -> None:
        under_way = self._under_way is not None and self.nominating.orders.is_under_way(self._under_way)
        for one in self.kept.expire(under_way):
            get_logger().warning("room given up", moved=one.moved.full_name, node=one.nomination.node)
            self._metrics.relocation.plans.labels("given-up").inc()


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


def _moved(found: Relocation, board: KubeBoard) -> list[AssignedPod]:
    return [board.movers[one.movable.pod].assigned_pod for one in found.moves]


def plan_text(found: Relocation, board: KubeBoard) -> str:
    """A plan for people, with all moves."""
    moves = [
        f"{board.movers[one.movable.pod].assigned_pod.pod.full_name} from {one.movable.node} to {one.to.node} "
        f"({', '.join(dict.fromkeys(grant.gpu for grant in one.to.grants))})"
        for one in found.moves
    ]
    return f"{plan_summary(found)}: {'; '.join(moves)}."


def plan_summary(found: Relocation) -> str:
    """The number of pods that a plan moves, their cost, and the node."""
    count = f"{len(found.moves)} pod" + ("s" if len(found.moves) > 1 else "")
    return f"Moving {count} at a cost of {found.cost:g} makes room on {found.place.node}"
