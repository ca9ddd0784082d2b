"""Carries preemptions out: writes the nomination, then has the victims end, one after another.

What always holds: no pod ends for a pod whose nomination has ended, because it is gone or has a place. A victim whose
deletion was refused is no victim again for a while, so refusals do not lead to one deletion after another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn

from prometheus_client import Counter

from placer.scheduler.cache.cache import Cache
from placer.scheduler.clock import loop_now_s
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.preemption.writes import PreemptionWrites
from placer.scheduler.reporting.condition import SCHEDULER_ERROR
from placer.scheduler.reporting.results import Results
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import ApiError, TransientError
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

AT_ONCE: Final = 8
"""Preemptions that are carried out together; more wait. Each writes twice for each victim, one after another."""
SPARED_S: Final = 300.0
"""Seconds for which a pod whose end was refused, by a webhook, a budget or for want of rights, is left alone."""
REFUSED_PAUSE_S: Final = 5.0
"""Seconds before a pod is tried again after a deletion for it was refused, so that pods do not end in a row."""

EndVictims = Callable[[Callable[[], bool]], Awaitable[str | None]]
"""Ends pods one after another while its argument says that the nominated pod still waits for their room.

Returns what the API server refused, or None.
"""


class SparedPods:
    """Pods whose end was refused not long ago."""

    def __init__(self) -> None:
        self._until_s: dict[PodUid, float] = {}

    def add(self, uid: PodUid) -> None:
        """Leave a pod alone for a while."""
        self._until_s[uid] = loop_now_s() + SPARED_S

    def now(self) -> frozenset[PodUid]:
        """The pods that are left alone now."""
        now_s = loop_now_s() if self._until_s else 0.0
        self._until_s = {uid: until_s for uid, until_s in self._until_s.items() if now_s < until_s}
        return frozenset(self._until_s)


@dataclass(frozen=True, slots=True)
class _Order:
    pod: Pod
    node: NodeName
    end_victims: EndVictims
    name: str


@dataclass(slots=True)
class Executor:
    """Carries out preemptions, and whatever else ends pods for a nominated one, while `run` runs.

    Attributes:
        cache: the nominations, and the pods that have a node.
        writes: the writes to the API server.
        deleted: counts the pods that were deleted.
        results: reports pods that were deleted, and refusals.
        on_end: called with a pod whose nomination must end, as its victims do not.
    """

    cache: Cache
    writes: PreemptionWrites
    deleted: Counter
    results: Results
    on_end: Callable[[PodUid], None] = lambda _: None
    # A pod in place of an order: take its nomination back.
    _orders: asyncio.Queue[_Order | Pod] = field(default_factory=asyncio.Queue)
    _under_way: set[PodUid] = field(default_factory=set)
    _taken_back: dict[PodUid, Pod] = field(default_factory=dict)  # once the order that is under way is done
    _spared: SparedPods = field(default_factory=SparedPods)

    def preempt(self, pod: Pod, node: NodeName, victims: Sequence[AssignedPod]) -> None:
        """Nominate a pod for a node, and have its victims there deleted; returns at once."""
        self.carry_out(pod, node, partial(self._delete_all, victims, pod, node), "preemption")

    def carry_out(self, pod: Pod, node: NodeName, end_victims: EndVictims, name: str) -> None:
        """Nominate a pod for a node, and then end pods for it; returns at once. `name` is that of the mechanism."""
        self._under_way.add(PodUid(pod.metadata.uid))
        self._orders.put_nowait(_Order(pod, node, end_victims, name))

    def take_back(self, pod: Pod) -> None:
        """Take a pod's nomination back in the API server; returns at once."""
        uid = PodUid(pod.metadata.uid)
        if uid in self._under_way:
            self._taken_back[uid] = pod  # after the nomination, which may be on its way
        else:
            self._orders.put_nowait(pod)

    def is_under_way(self, uid: PodUid) -> bool:
        """Whether pods are being ended for this pod."""
        return uid in self._under_way

    @property
    def spared(self) -> frozenset[PodUid]:
        """The pods that are no victims now, because their deletion was refused."""
        return self._spared.now()

    async def run(self) -> NoReturn:
        """Carry out preemptions until cancelled. Those under way are abandoned then; the next leader goes on."""
        permits = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            while True:
                heed_cancellation()
                order = await self._orders.get()
                await permits.acquire()
                work = self._carry_out(order) if isinstance(order, _Order) else self._take_back(order)
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

    async def _carry_out(self, order: _Order) -> None:
        uid = PodUid(order.pod.metadata.uid)
        try:
            refused = await self._write(order)
            if refused is not None:
                get_logger().warning(f"{order.name} refused", pod=order.pod.full_name, error=refused)
                self.results.refused(order.pod, f"{order.name}: {refused}", SCHEDULER_ERROR)
                await asyncio.sleep(REFUSED_PAUSE_S)
        finally:
            self._under_way.discard(uid)
            if (pod := self._taken_back.pop(uid, None)) is not None:
                self._orders.put_nowait(pod)
        if refused is not None and self._holds(order):
            self.on_end(uid)

    async def _write(self, order: _Order) -> str | None:
        """Write the nomination, then end the victims; returns what was refused, or None."""
        try:
            if not self._holds(order) or not await self.writes.nominate(order.pod, order.node):
                return None
        except ApiError as error:
            return f"the nomination of {order.node} was not written: {error}"
        return await order.end_victims(lambda: self._holds(order))

    async def _delete_all(
        self, victims: Sequence[AssignedPod], preemptor: Pod, node: NodeName, still_waits: Callable[[], bool]
    ) -> str | None:
        for victim in still_running(victims, self.cache):
            heed_cancellation()
            if not still_waits():
                return None
            try:
                ended = await self.writes.end(victim.pod, preemptor)
            except ApiError as error:
                if not isinstance(error, TransientError):
                    self._spared.add(victim.uid)
                return f"pod {victim.pod.full_name} was not deleted: {error}"
            if ended:
                self.deleted.inc()
                self.results.preempted(victim.pod, preemptor, node)
        return None

    def _holds(self, order: _Order) -> bool:
        """Whether the room of this order is still held for its pod."""
        own = self.cache.nominator.find(PodUid(order.pod.metadata.uid))
        return own is not None and own.node == order.node


def still_running(pods: Iterable[AssignedPod], cache: Cache) -> Iterator[AssignedPod]:
    """Each of some pods as it is when its turn comes, without those that end or are gone by then."""
    for one in pods:
        known = cache.assigned.find(one.uid)
        if known is not None and not known.pod.metadata.deletionTimestamp:
            yield known
