"""The binds that kube-scheduler orders: decide the GPUs of one node now, book them, write, and know the result.

What always holds: the decision and its booking are one step on the event loop. A bind without room writes nothing. A
pod has one bind under way, however often kube-scheduler asks for it. A bind whose answer was lost keeps its room
(`placer.scheduler.binding.binding`), and a bind goes on after kube-scheduler has stopped waiting for it.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NoReturn

import msgspec

from placer.core.ledger import NotBookedError
from placer.core.plan import Plan
from placer.core.refusal import Refusal
from placer.decide import Decider, NodeSide
from placer.extender.demand import extender_demand
from placer.extender.wire import BindingArgs, NotBoundError, UnavailableError, UndecidedError
from placer.publisher import placement
from placer.scheduler.binding.binding import Binder, BindResult, Ending, PodBinding
from placer.scheduler.cache.cache import Cache
from placer.scheduler.pods.nominator import bookings_of
from placer.scheduler.preemption.nominated_pods import NominatedPods
from placer.scheduler.profile import PodReader, shortages
from plimsoll.contract import DECISION, SCHEDULER_NAME, asks_gpu
from plimsoll.events import Placement
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Pod, decode_pod
from plimsoll.kube.transport import ApiError, NotFoundError, Transport
from plimsoll.part.log import get_logger


@dataclass(slots=True)
class OutsidePods:
    """The pods of other schedulers that ask for GPUs and wait for a node, each as the watch showed it last.

    The extender binds such pods without reading them first. A new leader must know them too: a bind of the earlier
    leader may still arrive for them (`placer.scheduler.binding.scope`). So a placer that serves no extender keeps
    them too.
    """

    _pods: dict[PodUid, Pod] = field(default_factory=dict)

    def put(self, pod: Pod) -> None:
        """Learn of a pod that is new or changed."""
        uid = PodUid(pod.metadata.uid)
        ended = pod.spec.nodeName or pod.status.phase in TERMINAL_PHASES
        if not ended and pod.spec.schedulerName != SCHEDULER_NAME and asks_gpu(pod):
            self._pods[uid] = pod
        else:
            self._pods.pop(uid, None)

    def remove(self, pod: Pod) -> None:
        """Forget a pod that is gone. An unknown pod is no error."""
        self._pods.pop(PodUid(pod.metadata.uid), None)

    def get(self, uid: PodUid) -> Pod | None:
        """The pod, or None if it does not wait, asks for no GPU, or was not shown yet."""
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[Pod]:
        return iter(self._pods.values())


ANSWER_S: Final = 4.0
"""The time after which a bind without a result is answered. kube-scheduler's `httpTimeout` is 5 s by default, and an
answer that says what happens is better than none."""


@dataclass(frozen=True, slots=True)
class _Bind:
    node: NodeName
    task: asyncio.Task[Ending]


@dataclass(slots=True)
class Binds:
    """Carries out binds while `run` runs.

    Attributes:
        pods: the pods of other schedulers, as the watch showed them.
        decider: the reports and the ledger, which the placer's own scheduler shares.
        transport: reads pods that the watch has not shown.
        binder: writes.
        nominated: holds room for nominated pods.
        reader: reads pods.
        on_placed: called with each placement.
        permits: one for each write that may be under way together with others.
    """

    pods: OutsidePods
    decider: Decider
    transport: Transport
    binder: Binder
    nominated: NominatedPods
    reader: PodReader
    on_placed: Callable[[Placement], None]
    permits: asyncio.Semaphore
    _under_way: dict[PodUid, _Bind] = field(default_factory=dict)
    _group: asyncio.TaskGroup | None = None

    @property
    def cache(self) -> Cache:
        """The nodes and their pods, which the placer's own scheduler shares."""
        return self.nominated.scheduling.cache

    async def run(self) -> NoReturn:
        """Let binds go on until cancelled. Binds under way are abandoned then; the next start reads their results."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.get_running_loop().create_future()  # until cancelled
            finally:
                self._group = None
        raise AssertionError("a future that nobody sets has ended")

    def place_of(self, uid: PodUid) -> NodeName | None:
        """The node where a pod is being bound, or is bound with a GPU; None for a pod without a place."""
        under_way = self._under_way.get(uid)
        if under_way is not None:
            return under_way.node
        booking = self.decider.ledger.booking(uid)
        return booking.node if booking is not None else None

    async def bind(self, order: BindingArgs) -> None:
        """Bind a pod to a node; returns once it is bound, also if an earlier request has bound it there.

        Cancelling leaves the bind under way.

        Raises:
            InputError: the pod is malformed.
            NotBoundError: the node has no room for the pod, or the pod is gone, changed, or bound elsewhere.
            UndecidedError: the API server did not answer within `ANSWER_S`. The bind goes on.
            UnavailableError: the pod could not be read; nothing was done.
        """
        deadline_s = asyncio.get_running_loop().time() + ANSWER_S
        under_way = self._under_way.get(order.pod_uid)
        if under_way is None:
            pod = await self._pod(order, deadline_s)
            if pod is None:
                return  # bound there already
            # Another request may have begun while the pod was read.
            under_way = self._under_way.get(order.pod_uid) or self._begin(pod, order.node)
        if under_way.node != order.node:
            raise NotBoundError(
                f"pod {order.name} is being bound to {under_way.node}; its result is not known yet"
            )
        await asyncio.wait({under_way.task}, timeout=deadline_s - asyncio.get_running_loop().time())
        _check(under_way, order)

    async def _pod(self, order: BindingArgs, deadline_s: float) -> Pod | None:
        """The pod without a node; None if it is bound to the ordered node by the placer."""
        known = self.pods.get(order.pod_uid)
        if known is not None and not self.cache.is_assumed(order.pod_uid):
            return known
        path = f"/api/v1/namespaces/{order.pod_namespace}/pods/{order.pod_name}"
        try:
            async with asyncio.timeout_at(deadline_s):
                pod = decode_pod(await self.transport.get(path))
        except NotFoundError as error:
            raise NotBoundError(f"pod {order.name} is gone") from error
        except TimeoutError as error:
            raise UnavailableError(f"pod {order.name}: the API server did not answer in time") from error
        except (ApiError, msgspec.MsgspecError) as error:
            raise UnavailableError(f"pod {order.name} cannot be read: {error}") from error
        if pod.metadata.uid != order.pod_uid:
            raise NotBoundError(f"pod {order.name} with uid {order.pod_uid} is gone; another has its name")
        if not pod.spec.nodeName:
            return pod
        by_placer = DECISION in (pod.metadata.annotations or {}) or not asks_gpu(pod)
        if pod.spec.nodeName == order.node and by_placer:
            return None
        whose = "the placer" if by_placer else "somebody else, without GPUs"
        raise NotBoundError(f"pod {order.name} is bound to {pod.spec.nodeName} already, by {whose}")

    def _begin(self, pod: Pod, node: NodeName) -> _Bind:
        """Decide and book, and start the write; awaits nothing."""
        if self._group is None:
            raise UnavailableError("the placer is ending")
        plan = self._decide(pod, node)
        uid = PodUid(pod.metadata.uid)
        task = self._group.create_task(
            self._carry_out(pod, plan), name=f"kube: bind {uid} for kube-scheduler"
        )
        under_way = self._under_way[uid] = _Bind(node, task)
        return under_way

    def _decide(self, pod: Pod, node: NodeName) -> Plan:
        asked, name = extender_demand(pod, self.reader), pod.full_name
        if not self.cache.has_node(node):
            raise NotBoundError(f"pod {name}: node {node} is not known to the placer")
        try:
            # kube-scheduler has checked the node, but knows neither of the placer's own pods that are being bound,
            # nor of room that is held for pods that the placer nominated.
            nominator = self.cache.nominator
            side = NodeSide(
                lambda one: shortages(self.cache, pod, asked.needs, one),
                held=lambda one: bookings_of(nominator.against(pod, one)),
            )
            decided = self.decider.counted(
                lambda: self.decider.choose(asked.request, asked.policy, (node,), side)
            )
        except NotBookedError as error:
            raise NotBoundError(f"pod {name}: {error}") from error
        if isinstance(decided, Refusal):
            why = ", ".join(decided.reasons[node])
            raise NotBoundError(f"pod {name} no longer fits on {node}: {why}")
        self.cache.assume(decided.booking, asked.needs, pod)
        self.nominated.placed(PodUid(pod.metadata.uid), node)
        return decided

    async def _carry_out(self, pod: Pod, plan: Plan) -> Ending:
        """Write the place of an assumed pod, or free it."""
        uid, node, metrics = PodUid(pod.metadata.uid), plan.booking.node, self.decider.metrics
        binding = self.binder.binding(pod, plan)
        name = pod.full_name
        try:
            ending = await self._write(binding)
        finally:
            self._under_way.pop(uid, None)
        log, where = get_logger(), {"pod": name, "node": node}
        if ending.result is BindResult.BOUND:
            log.info("placed", **where, gpus=plan.gpus, score=plan.score, scheduler=pod.spec.schedulerName)
            self.on_placed(placement(pod.metadata, plan))
            return ending
        metrics.binds.failures.labels(ending.result.name.lower()).inc()
        log.warning("not bound", **where, outcome=ending.result.value, error=ending.message)
        if self.cache.is_assumed(uid):  # else the watch has already shown the pod bound, ended or deleted
            self.cache.forget(uid)
            if (known := self.pods.get(uid)) is not None:
                self.nominated.not_bound(known)
        return ending

    async def _write(self, binding: PodBinding) -> Ending:
        held = True

        def free() -> None:
            nonlocal held
            if held:
                held = False
                self.permits.release()

        await self.permits.acquire()
        try:
            with self.decider.metrics.binds.seconds.time():
                return await self.binder.bind(binding, free)
        finally:
            free()


def _check(bind: _Bind, order: BindingArgs) -> None:
    """Return if the pod was bound.

    Raises:
        NotBoundError: as `Binds.bind`.
    """
    if not bind.task.done():
        remedy = "the pod keeps its room until the result is known"
        raise UndecidedError(f"pod {order.name}: the API server has not answered the bind yet; {remedy}")
    if bind.task.cancelled():
        raise UndecidedError(f"pod {order.name}: the placer ends, and the result of the bind is not known")
    ending = bind.task.result()
    if ending.result is not BindResult.BOUND:
        raise NotBoundError(
            f"pod {order.name} was not bound to {bind.node}, {ending.result.value}: {ending.message}"
        )
