"""The scheduler's loop: watch, decide one pod at a time, bind many at once, report the result of each.

What always holds: a decision and its booking are one step on the event loop, so no two pods get the same room. A
malformed pod gets an event that says so, and delays no other pod. Nothing is decided before pods, nodes and reports
were all read once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from placer.core.ledger import ConflictError
from placer.core.plan import Plan
from placer.core.policies import Policy
from placer.core.resize.change import NotNowError
from placer.decide import Decider
from placer.kube.binding import Binder, BindResult, Target, answer
from placer.kube.choice import NodeChoice, Wanted, understood
from placer.kube.cluster import Cluster
from placer.kube.queue import Queue
from placer.kube.record import News, Recorder
from placer.kube.resize import KubeResizer
from placer.publisher import placement
from plimsoll.contract import SCHEDULER_NAME
from plimsoll.events import NodeState, Placement
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.client import Transport
from plimsoll.kube.models import TERMINAL_PHASES, Node, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Reflector, Synced, Timing
from plimsoll.part.errors import InputError
from plimsoll.part.times import rfc3339
from plimsoll.placer_api.rpc import Resize, Resizing

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"
# The text is the same for all causes, so that each pod gets one event. The log names the cause.
PUT_OFF: Final = "The nodes with room changed during each decision; the pod is tried again."
DECISIONS_PER_ATTEMPT: Final = 3
"""The number of decisions that the cluster may overtake before a pod goes back to the queue."""


class PlacementEvents(Protocol):
    """Takes placements for `plimsoll.v1.pod.<what>`; both methods return at once."""

    def placed(self, placement: Placement) -> None:
        """Queue an event for a pod that was bound."""

    def unplaceable(self, placement: Placement) -> None:
        """Queue an event for a pod without a fit node; called once for each new reason."""


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """The options that differ from one placer to another.

    Attributes:
        policy: the policy for pods that name none.
        instance: the name of this placer in events.
        binds_at_once: the number of writes under way together; more wait.
        timing: the timing of the watches.
    """

    policy: Policy
    instance: str = SCHEDULER_NAME
    binds_at_once: int = 16
    timing: Timing = field(default_factory=Timing)


@dataclass(slots=True)
class KubeFrontEnd:
    """Places the pods of one cluster while `run` does.

    Attributes:
        transport: the connection to the API server.
        decider: the sorted list, the reports, and the ledger, which this front end fills.
        bus: takes the events of placements.
        reports_loaded: set once every node's last report was read (`Intake.ready`).
        options: see `KubeOptions`.
        synced: set here once all pods and nodes were read.
        clock: the wall clock in UTC.
    """

    transport: Transport
    decider: Decider
    bus: PlacementEvents
    reports_loaded: asyncio.Event
    options: KubeOptions
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    _queue: Queue = field(default_factory=Queue)
    _waiting: dict[PodUid, Pod] = field(default_factory=dict)
    _refused_for: dict[PodUid, str] = field(
        default_factory=dict
    )  # the reason of the last `unplaceable` event
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _pods_synced: asyncio.Event = field(default_factory=asyncio.Event)
    _nodes_synced: asyncio.Event = field(default_factory=asyncio.Event)
    _cluster: Cluster = field(init=False)
    _choice: NodeChoice = field(init=False)
    _binder: Binder = field(init=False)
    _recorder: Recorder = field(init=False)

    def __post_init__(self) -> None:
        self._cluster = Cluster(self.decider.ledger)
        self._choice = NodeChoice(self.decider, self._cluster)
        self._binder = Binder(self.transport)
        self._recorder = Recorder(self.transport, self.options.instance, self.clock)

    async def run(self) -> None:
        """Schedule until cancelled. Binds under way are abandoned then; the next start reads their results."""
        unsubscribe = self.decider.reports.on_report(self._on_report)
        timing = self.options.timing
        pods = Reflector(self.transport, "/api/v1/pods", Pod, self._on_pod, timing=timing)
        nodes = Reflector(self.transport, "/api/v1/nodes", Node, self._on_node, timing=timing)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(nodes.run(), name="kube: watch nodes")
                group.create_task(pods.run(), name="kube: watch pods")
                group.create_task(self._recorder.run(), name="kube: record")
                group.create_task(self._schedule(group), name="kube: schedule")
        finally:
            unsubscribe()

    def has(self, namespace: str, pod: str) -> bool:  # noqa: ARG002 - see the protocol
        """Always True: any pod may be the cluster's."""
        return True

    async def resize(self, request: Resize) -> Resizing:
        """Change a running container's line or shares, see `KubeResizer.resize`.

        Raises:
            InputError: the pod cannot have the change; nothing was changed.
            NotNowError: not all pods, nodes and reports were read yet, or the API server is away.
        """
        if not (self.synced.is_set() and self.reports_loaded.is_set()):
            raise NotNowError("the placer has just started and has not seen all pods; ask again")
        resized = await KubeResizer(self.transport, self.decider, self._cluster).resize(request)
        self._wake()  # a lowering makes room, and no report comes of it until a pod takes the room
        return resized

    def _on_report(self, state: NodeState) -> None:
        self._cluster.observe(state)
        self._wake()

    def _on_node(self, change: Change[Node]) -> None:
        match change:
            case Added(node) | Modified(node):
                if isinstance(change, Modified) and _same_node(change.item, change.old):
                    return  # a heartbeat
                try:
                    self._cluster.put_node(node)
                except InputError as error:
                    structlog.get_logger().error("node not used", node=node.metadata.name, error=str(error))
                self._wake()
            case Deleted(node):
                self._cluster.remove_node(NodeName(node.metadata.name))
            case Synced():
                self._nodes_synced.set()

    def _on_pod(self, change: Change[Pod]) -> None:
        match change:
            case Synced():
                self._pods_synced.set()
            case Deleted(pod):
                self._drop(PodUid(pod.metadata.uid))
            case Added(pod) | Modified(pod):
                uid = PodUid(pod.metadata.uid)
                if pod.status.phase in TERMINAL_PHASES:
                    self._drop(uid)
                elif pod.spec.nodeName:
                    self._confirm(pod)
                elif _is_ours(pod):
                    known = change.old if isinstance(change, Modified) else None
                    self._await_node(pod, changed=known is None or not _same_pod(pod, known))
                elif not self._cluster.is_assumed(uid):
                    self._forget_waiting(uid)

    def _drop(self, uid: PodUid) -> None:
        """Free the room of a pod that is gone or ended, and try waiting pods."""
        self._forget_waiting(uid)
        if self._cluster.release(uid):
            self._wake()

    def _confirm(self, pod: Pod) -> None:
        self._forget_waiting(PodUid(pod.metadata.uid))
        try:
            self._cluster.confirm(pod)
        except InputError as error:
            structlog.get_logger().error("bound pod counts in part", pod=_name(pod), error=str(error))

    def _await_node(self, pod: Pod, *, changed: bool) -> None:
        uid = PodUid(pod.metadata.uid)
        if self._cluster.is_assumed(uid):
            return
        self._waiting[uid] = pod
        if changed or uid not in self._queue:
            self._queue.put(uid, pod.spec.priority or 0, pod.metadata.creationTimestamp or "")
            self._work.set()

    def _forget_waiting(self, uid: PodUid) -> None:
        self._waiting.pop(uid, None)
        self._refused_for.pop(uid, None)
        self._queue.discard(uid)

    def _wake(self) -> None:
        self._queue.wake(self._now_s())
        self._work.set()

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        await self._nodes_synced.wait()
        await self._pods_synced.wait()
        self.synced.set()
        await self.reports_loaded.wait()
        for state in self.decider.reports.values():
            self._cluster.observe(state)
        places = asyncio.Semaphore(self.options.binds_at_once)
        while True:
            uid = await self._next()
            placed = await self._attempt(uid)
            if placed is not None:
                await places.acquire()
                task = group.create_task(self._carry_out(*placed), name=f"kube: bind {uid}")
                task.add_done_callback(lambda _: places.release())
            await asyncio.sleep(0)  # a decision may await nothing, and a long queue must not block the loop

    async def _next(self) -> PodUid:
        """Wait for the next pod to try."""
        while True:
            self._work.clear()
            uid = self._queue.take(self._now_s())
            if uid is not None:
                return uid
            due_s = self._queue.due_s()
            try:
                async with asyncio.timeout_at(due_s):
                    await self._work.wait()
            except TimeoutError:
                continue

    async def _attempt(self, uid: PodUid) -> tuple[Wanted, Plan] | None:
        """Try one pod. Return its plan, booked and assumed; or None, once its refusal is reported."""
        pod = self._waiting[uid]
        try:
            wanted = understood(pod, self.options.policy)
        except InputError as error:
            self._queue.give_up(uid)
            self._report_refused(pod, f"Pod cannot be scheduled: {error}.")
            return None
        try:
            for _ in range(DECISIONS_PER_ATTEMPT):
                result = self._choice.decide(wanted)
                if isinstance(result, Plan):
                    return (wanted, result) if self._assume(wanted, result) else None
                why_not = await self._choice.explain(wanted)
                if why_not is not None:
                    self._queue.park(uid, self._now_s())
                    self._report_refused(pod, why_not)
                    return None
        except ConflictError as error:
            structlog.get_logger().warning("decision put off", pod=_name(pod), error=str(error))
        self._queue.again(uid, self._now_s())
        self._report_refused(pod, PUT_OFF, SCHEDULER_ERROR)
        return None

    def _assume(self, wanted: Wanted, placed: Plan) -> bool:
        """Count a booked plan's pod on its node; False if the pod was deleted or changed during the decision."""
        uid = wanted.request.pod
        now = self._waiting.get(uid)
        if now is None or not _same_pod(now, wanted.pod):
            self.decider.ledger.forget(uid)
            self._queue.again(uid, self._now_s())
            return False
        self._cluster.assume(placed.booking, wanted.needs)
        return True

    async def _carry_out(self, wanted: Wanted, placed: Plan) -> None:
        """Bind an assumed pod, or free its place."""
        uid, node = wanted.request.pod, placed.booking.node
        target = Target(wanted.pod, node, answer(placed, rfc3339(self.clock())))
        result, message = await self._binder.bind(target)
        if result is BindResult.BOUND:
            self._forget_waiting(uid)
            self._report_placed(wanted.pod, placed)
            return
        structlog.get_logger().warning(
            "not bound", pod=_name(wanted.pod), node=node, outcome=result.value, error=message
        )
        if self._cluster.is_assumed(uid):  # else the watch has already shown the pod bound, ended or deleted
            self._cluster.release(uid)
            self._wake()
        self._queue.again(uid, self._now_s())
        if result is BindResult.REFUSED:
            self._report_refused(wanted.pod, f"Binding was refused: {message}", SCHEDULER_ERROR)

    def _report_placed(self, pod: Pod, placed: Plan) -> None:
        node = placed.booking.node
        structlog.get_logger().info("placed", pod=_name(pod), node=node, gpus=placed.gpus, score=placed.score)
        note = f"Successfully assigned {_name(pod)} to {node}"
        self._recorder.record(News(pod, "Scheduled", note, None))
        self.bus.placed(placement(pod.metadata, placed))

    def _report_refused(self, pod: Pod, note: str, reason: str = UNSCHEDULABLE) -> None:
        uid = PodUid(pod.metadata.uid)
        now = self._waiting.get(uid)
        if now is None:
            return  # bound or gone meanwhile: the refusal is outdated
        # The pod as it is now carries the condition that was written last.
        self._recorder.record(News(now, "FailedScheduling", note, reason))
        if reason != UNSCHEDULABLE or self._refused_for.get(uid) == note:
            return
        self._refused_for[uid] = note
        structlog.get_logger().info("not placed", pod=_name(pod), why=note)
        meta = pod.metadata
        self.bus.unplaceable(Placement(namespace=meta.namespace, name=meta.name, pod=uid, reason=note))


def _is_ours(pod: Pod) -> bool:
    """Whether the pod waits for this scheduler: not one with scheduling gates, or one that is being deleted."""
    waits = not pod.metadata.deletionTimestamp and not pod.spec.schedulingGates
    return pod.spec.schedulerName == SCHEDULER_NAME and waits


def _same_pod(pod: Pod, old: Pod) -> bool:
    """Whether nothing changed that a decision reads. The placer's own patches of conditions do not count."""
    ours, before = pod.metadata, old.metadata
    return pod.spec == old.spec and (ours.annotations, ours.labels) == (before.annotations, before.labels)


def _same_node(node: Node, old: Node) -> bool:
    return node.spec == old.spec and node.status == old.status and node.metadata.labels == old.metadata.labels


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
