"""Relocation: moves pods that allow it, so that a pod which waits for a GPU gets one.

A search finds the fewest evictions after which the waiting pod and all moved pods have a place. The waiting pod is
nominated for its node, and room is kept for each replacement. Then the pods are evicted, one after another, by the
orders of preemption. The waiting pod and the replacements are placed by decisions of their own. What always holds:
one waiting pod at a time has pods moved for it, no pod that could preempt does, and in a dry run nothing is moved.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

import structlog

from placer.core.relocation.plan import Relocation, Steps
from placer.core.relocation.search import confirmed, search
from placer.kube.choice import NodeChoice, Wanted
from placer.kube.cluster import Cluster
from placer.kube.occupants import Occupant, priority_of
from placer.kube.preempting import Preempting
from placer.kube.preemption_orders import Order
from placer.kube.relocation.board import KubeBoard
from placer.kube.relocation.kept import KeptRooms
from placer.kube.relocation.movers import Movers
from placer.kube.relocation.rules import Mode, RelocationRules
from placer.kube.telling import Telling
from placer.kube.waiting import Waiting
from placer.metrics import Metrics
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.ending import heed_cancellation

SLICE_S: Final = 0.002
"""Seconds after which a search lets other tasks run."""
REST_RATIO: Final = 4
"""A search rests so many times as long as it works, so that it takes a fifth of the placer's time at most."""
MOST_KEPT: Final = 3
"""With more rooms kept for replacements, no further pods are moved."""


@dataclass(slots=True)
class Relocating:
    """Moves pods while `run` does.

    Attributes:
        rules: see `RelocationRules`.
        waiting: the pods without a node, by uid.
        choice: judges nodes.
        preempting: holds rooms, and carries out evictions.
        movers: the pods that may be moved.
        kept: the rooms that are kept for replacements.
        telling: tells plans and moves.
        leads: set while this placer decides.
        metrics: counts plans and moves.
    """

    rules: RelocationRules
    waiting: Mapping[PodUid, Waiting]
    choice: NodeChoice
    preempting: Preempting
    movers: Movers
    kept: KeptRooms
    telling: Telling
    leads: asyncio.Event
    metrics: Metrics
    _tried: dict[bytes, float] = field(default_factory=dict)  # by kind of pod: when it is tried again
    _under_way: PodUid | None = None  # the pod for which others are moved
    _plans: dict[PodUid, str] = field(default_factory=dict)  # the last plan for each pod that waits

    def __post_init__(self) -> None:
        self.preempting.orders.on_relocated = self._moved

    async def run(self) -> NoReturn:
        """Look for pods that have waited long, until cancelled."""
        await self.leads.wait()
        while True:
            heed_cancellation()
            await asyncio.sleep(self.rules.check_s)
            self._give_up_rooms()
            self._plans = {uid: plan for uid, plan in self._plans.items() if uid in self.waiting}
            if not self._is_busy() and (wanted := self._next()) is not None:
                await self._try(wanted)

    def observe(self, pod: Pod) -> None:
        """Take in a waiting pod, which may be the replacement of a moved one."""
        self.kept.take(pod)

    def plan_for(self, uid: PodUid) -> str:
        """The last plan for a waiting pod, for people; empty without any."""
        return self._plans.get(uid, "")

    def _is_busy(self) -> bool:
        if self._under_way is not None:
            if self._is_nominated(self._under_way) or self.preempting.orders.is_under_way(self._under_way):
                return True
            self._under_way = None
        return len(self.kept) >= MOST_KEPT

    def _is_nominated(self, uid: PodUid) -> bool:
        return self._cluster.nominations.find(uid) is not None

    @property
    def _cluster(self) -> Cluster:
        return self.choice.cluster

    def _next(self) -> Wanted | None:
        """The waiting pod for which others may be moved now: of the highest priority, the one that waits longest."""
        now_s = asyncio.get_running_loop().time()
        self._tried = {kind: at_s for kind, at_s in self._tried.items() if now_s < at_s}
        due = [
            one
            for one in self.waiting.values()
            if one.refused_for
            and now_s - one.seen_s >= self.rules.after_s
            and one.wanted is not None
            and one.wanted.request.demand.containers
            and one.wanted.kind not in self._tried
            and self._may_have(one.wanted.request.pod)
        ]
        first = min(due, key=lambda one: (-priority_of(one.pod), one.seen_s), default=None)
        return first.wanted if first is not None else None

    def _may_have(self, uid: PodUid) -> bool:
        """Whether a pod is neither nominated nor being bound."""
        is_ending = self.preempting.orders.is_under_way(uid)
        return not self._is_nominated(uid) and not is_ending and not self._cluster.is_assumed(uid)

    async def _try(self, wanted: Wanted) -> None:
        """Search for a plan, and carry it out, or report it."""
        uid = wanted.request.pod
        self._tried[wanted.kind] = asyncio.get_running_loop().time() + self.rules.after_s
        if not self.movers.budgets.are_read:
            return
        board = await KubeBoard.made(self.choice, wanted, self.movers)
        found = None if board.is_empty else await _in_slices(search(board, uid))
        found = confirmed(board, uid, found) if found is not None and found.moves else None
        waiting = self.waiting.get(uid)
        if waiting is None or waiting.wanted is not wanted or not self._may_have(uid):
            return
        moved = [board.movers[one.movable.pod].occupant for one in found.moves] if found is not None else []
        if found is None or self.movers.violates(moved):
            self._plans.pop(uid, None)
            self.metrics.relocation_plans.labels("none").inc()
            return
        text = _text(found, board)
        self._plans[uid] = text
        structlog.get_logger().info(
            "relocation planned", pod=_name(waiting.pod), plan=text, mode=self.rules.mode.value
        )
        if self.rules.mode is Mode.DRY_RUN:
            self.metrics.relocation_plans.labels("dry-run").inc()
            self.telling.relocation_planned(waiting.pod, f"{text} Nothing is moved in a dry run.")
        else:
            self._carry_out(waiting.pod, found, board, moved)
            self.telling.relocation_planned(waiting.pod, text)

    def _carry_out(self, pod: Pod, found: Relocation, board: KubeBoard, moved: list[Occupant]) -> None:
        """Hold all rooms, and have the pods evicted meanwhile."""
        self._under_way = uid = PodUid(pod.metadata.uid)
        leaving = [one.movable for one in found.moves]
        own = board.nomination(found.place, leaving)
        own.pod = pod  # as the watch shows it now
        self.preempting.hold(own)
        for one in found.moves:
            held = board.nomination(one.to, leaving)
            self.kept.keep(board.movers[one.movable.pod], held, self.rules.keep_s)
        self.preempting.orders.put(Order(pod, found.place.node, tuple(moved), moves=True))
        self.preempting.retry(uid)
        self.metrics.relocation_plans.labels("begun").inc()

    def _moved(self, victim: Pod, pod: Pod, node: NodeName) -> None:
        """A pod was evicted to be moved."""
        self.metrics.relocated_pods.inc()
        self.movers.note_moved(victim)
        to = self.kept.place_of(PodUid(victim.metadata.uid))
        self.telling.relocated(victim, pod, node, to, self.rules.keep_s)

    def _give_up_rooms(self) -> None:
        under_way = self._under_way is not None and self.preempting.orders.is_under_way(self._under_way)
        for one in self.kept.expire(under_way):
            structlog.get_logger().warning(
                "room given up", moved=_name(one.mover.occupant.pod), node=one.nomination.node
            )
            self.metrics.relocation_plans.labels("given-up").inc()


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


def _text(found: Relocation, board: KubeBoard) -> str:
    """A plan for people."""
    moves = [
        f"{_name(board.movers[one.movable.pod].occupant.pod)} from {one.movable.node} to {one.to.node} "
        f"({', '.join(dict.fromkeys(grant.gpu for grant in one.to.grants))})"
        for one in found.moves
    ]
    count = f"{len(moves)} pod" + ("s" if len(moves) > 1 else "")
    return f"Moving {count} at a cost of {found.cost:g} makes room on {found.place.node}: {'; '.join(moves)}."


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
