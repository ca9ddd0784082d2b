"""Carries preemptions out: writes the nomination, then has the victims deleted, one after another.

What always holds: no pod is deleted for a pod whose nomination has ended, because it is gone or has a place. A victim
whose deletion was refused is no victim again for a while, so refusals do not lead to one deletion after another.
Where several pods move together, the API server must be ready to evict each before the first is evicted.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from prometheus_client import Counter

from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.plugins.default_preemption.writes import PreemptionWrites
from placer.scheduler.pods.assigned_pods import AssignedPod
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import ApiError, TransientError
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

AT_ONCE: Final = 8
"""Preemptions that are carried out together; more wait. Each writes twice for each victim, one after another."""
SPARED_S: Final = 300.0
"""Seconds for which a pod whose deletion was refused, by a webhook or for want of rights, is no victim again."""
REFUSED_PAUSE_S: Final = 5.0
"""Seconds before a pod is tried again after a deletion for it was refused, so that pods do not end in a row."""

OnPreempted = Callable[[Pod, Pod, NodeName], None]
"""Called with a victim that was deleted, the preemptor, and their node."""
OnRelocated = Callable[[Pod, Pod | None, NodeName], None]
"""Called with a pod that was evicted to be moved, the pod for which it moves, if any, and the node that it leaves."""
OnFailed = Callable[[Pod, str], None]
"""Called with a preemptor and the reason why its victims did not end."""
OnEnd = Callable[[PodUid], None]
"""Called with a preemptor whose nomination must end, as its victims do not."""


@dataclass(frozen=True, slots=True)
class PreemptionOrder:
    """A preemption, or a relocation, to carry out.

    Attributes:
        pod: the preemptor, or the pod for which others move.
        node: its nominated node.
        victims: the pods to delete there; the pods that move may be on other nodes too.
        moves: the victims are moved: evicted, so that disruption budgets hold.
    """

    pod: Pod
    node: NodeName
    victims: tuple[AssignedPod, ...]
    moves: bool = False

    @property
    def name(self) -> str:
        """The name of the mechanism, for people."""
        return "relocation" if self.moves else "preemption"


@dataclass(slots=True)
class PreemptionOrders:
    """The preemptions that are to be carried out, and those under way; `run` does it.

    Attributes:
        cache: the nominations, and the pods that have a node.
        writes: the writes to the API server.
        preempted: counts the pods that were deleted.
        on_preempted: see `OnPreempted`.
        on_failed: see `OnFailed`.
        on_end: see `OnEnd`.
        on_relocated: see `OnRelocated`.
    """

    cache: Cache
    writes: PreemptionWrites
    preempted: Counter
    on_preempted: OnPreempted
    on_failed: OnFailed
    on_end: OnEnd = lambda _: None
    on_relocated: OnRelocated = lambda *_: None
    # A pod in place of an order: take its nomination back.
    _orders: asyncio.Queue[PreemptionOrder | Pod] = field(default_factory=asyncio.Queue)
    _under_way: set[PodUid] = field(default_factory=set)
    _taken_back: dict[PodUid, Pod] = field(default_factory=dict)  # once the order that is under way is done
    _spared: dict[PodUid, float] = field(default_factory=dict)  # until when
    _unmovable: dict[PodUid, float] = field(default_factory=dict)  # likewise

    def put(self, order: PreemptionOrder) -> None:
        """Carry out a preemption; returns at once."""
        self._under_way.add(PodUid(order.pod.metadata.uid))
        self._orders.put_nowait(order)

    def take_back(self, pod: Pod) -> None:
        """Take a pod's nomination back in the API server; returns at once."""
        uid = PodUid(pod.metadata.uid)
        if uid in self._under_way:
            self._taken_back[uid] = pod  # after the nomination, which may be on its way
        else:
            self._orders.put_nowait(pod)

    def is_under_way(self, uid: PodUid) -> bool:
        """Whether victims are being deleted for this pod."""
        return uid in self._under_way

    @property
    def spared(self) -> frozenset[PodUid]:
        """The pods that are no victims now, because their deletion was refused."""
        self._spared = _still(self._spared)
        return frozenset(self._spared)

    @property
    def unmovable(self) -> frozenset[PodUid]:
        """The pods that are not moved now, because their eviction was refused, as by a disruption budget."""
        self._unmovable = _still(self._unmovable)
        return frozenset(self._unmovable)

    async def run(self) -> NoReturn:
        """Carry out preemptions until cancelled. Those under way are abandoned then; the next leader goes on."""
        permits = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                heed_cancellation()
                order = await self._orders.get()
                await permits.acquire()
                work = (
                    self._carry_out(order) if isinstance(order, PreemptionOrder) else self._take_back(order)
                )
                task = group.create_task(work, name="kube: carry out a preemption")
                task.add_done_callback(lambda _: permits.release())

    async def _take_back(self, pod: Pod) -> None:
        if self.cache.nominator.find(PodUid(pod.metadata.uid)) is not None:
            return  # nominated anew meanwhile
        try:
            await self.writes.nominate(pod, None)
        except ApiError as error:
            # The next leader would find that the pod does not fit there, and try this again.
            get_logger().warning("nomination not taken back", pod=pod.full_name, error=str(error))

    async def _carry_out(self, order: PreemptionOrder) -> None:
        uid = PodUid(order.pod.metadata.uid)
        try:
            refused = await self._write(order)
            if refused is not None:
                get_logger().warning(f"{order.name} refused", pod=order.pod.full_name, error=refused)
                self.on_failed(order.pod, f"{order.name}: {refused}")
                await asyncio.sleep(REFUSED_PAUSE_S)
        finally:
            self._under_way.discard(uid)
            if (pod := self._taken_back.pop(uid, None)) is not None:
                self._orders.put_nowait(pod)
        if refused is not None and self._holds(order):
            self.on_end(uid)

    async def _write(self, order: PreemptionOrder) -> str | None:
        """Write the nomination, then end the victims; returns what was refused, or None."""
        try:
            if not self._holds(order) or not await self.writes.nominate(order.pod, order.node):
                return None
        except ApiError as error:
            return f"the nomination of {order.node} was not written: {error}"
        if order.moves and (refused := await self.tried(order.victims)) is not None:
            return refused
        for victim in order.victims:
            heed_cancellation()
            known = self.cache.assigned.find(victim.uid)
            if known is None or known.pod.metadata.deletionTimestamp:
                continue
            if not self._holds(order):
                return None  # the pod is gone, or has a place: no further pod needs to end
            refused = await (self.evict(known, order.pod) if order.moves else self._delete(known, order))
            if refused is not None:
                return refused
        return None

    async def _delete(self, victim: AssignedPod, order: PreemptionOrder) -> str | None:
        try:
            ended = await self.writes.end(victim.pod, order.pod)
        except ApiError as error:
            if not isinstance(error, TransientError):
                self._spared[victim.uid] = loop_now_s() + SPARED_S
            return f"pod {victim.pod.full_name} was not deleted: {error}"
        if ended:
            self.preempted.inc()
            self.on_preempted(victim.pod, order.pod, order.node)
        return None

    async def tried(self, movers: Sequence[AssignedPod]) -> str | None:
        """Ask the API server whether it would evict each of several pods; returns what it refuses, or None.

        Only the API server knows all budgets and webhooks, and one refusal makes the other evictions useless.
        """
        for mover in movers if len(movers) > 1 else ():
            heed_cancellation()
            try:
                await self.writes.evict(mover.pod, is_trial=True)
            except ApiError as error:
                return self._not_evicted(mover, error)
        return None

    async def evict(self, mover: AssignedPod, pod: Pod | None) -> str | None:
        """Evict a pod that moves; returns what was refused, or None.

        Args:
            mover: the pod.
            pod: the waiting pod for which it moves; None where it moves for no pod.
        """
        known = self.cache.assigned.find(mover.uid)
        if known is not None and not known.is_relocatable:
            return f"pod {mover.pod.full_name} may not be moved any more: its annotation is gone"
        try:
            ended = await self.writes.evict(mover.pod)
        except ApiError as error:
            return self._not_evicted(mover, error)
        if ended:
            self.on_relocated(mover.pod, pod, mover.node)
        return None

    def _not_evicted(self, mover: AssignedPod, error: ApiError) -> str:
        self._unmovable[mover.uid] = loop_now_s() + SPARED_S
        return f"pod {mover.pod.full_name} was not evicted: {error}"

    def _holds(self, order: PreemptionOrder) -> bool:
        """Whether the room of this order is still held for its pod."""
        own = self.cache.nominator.find(PodUid(order.pod.metadata.uid))
        return own is not None and own.node == order.node


def _still(until: dict[PodUid, float]) -> dict[PodUid, float]:
    now_s = loop_now_s() if until else 0.0
    return {uid: until_s for uid, until_s in until.items() if now_s < until_s}
