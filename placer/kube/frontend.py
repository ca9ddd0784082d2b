"""The scheduler's loop: watch, decide one pod at a time, bind many at once, report the result of each.

What always holds: a decision and its booking are one step on the event loop, so no two pods get the same room. A
malformed pod gets an event that says so, and delays no other pod. Nothing is decided before pods, nodes and reports
were all read once.
"""

import asyncio
import contextlib
import gc
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog

from placer.core.ledger import Booking, ConflictError
from placer.core.plan import Plan
from placer.core.policies import Policy
from placer.core.resize.change import NotNowError
from placer.core.violations import Violations
from placer.decide import Decider
from placer.kube.binding import WRITE_LIFETIME_S, Binder
from placer.kube.budgets import Budgets
from placer.kube.choice import NodeChoice, understood
from placer.kube.cluster import Cluster
from placer.kube.committer import Committer, Placed
from placer.kube.drift import DriftCheck
from placer.kube.evictions import EvictionRules, Evictions
from placer.kube.explain import KubeExplainer
from placer.kube.extender.binds import Binds
from placer.kube.extender.extender import Extender, Leadership
from placer.kube.extender.pods import OutsidePods
from placer.kube.fence import fence
from placer.kube.hints import EVERYTHING, NOTHING, causes_of
from placer.kube.live import KubePods
from placer.kube.pods import PodIndex
from placer.kube.pool import OFF, PoolEvents, PoolWatch
from placer.kube.preempting import Preempting
from placer.kube.preemption_orders import Orders
from placer.kube.preemption_writes import PreemptionWrites
from placer.kube.queue import Probe, Queue, Try
from placer.kube.queue_metrics import WaitingPods
from placer.kube.record import Recorder
from placer.kube.refusals import PUT_OFF, SCHEDULER_ERROR, UNSCHEDULABLE, Refusals
from placer.kube.resize import KubeResizer
from placer.kube.resize_tickets import Tickets
from placer.kube.retelling import Retelling
from placer.kube.scope import Scopes
from placer.kube.telling import PlacementEvents, Telling
from placer.kube.victim_search import VictimSearch
from placer.kube.volumes.binder import BIND_TIMEOUT_S, VolumeBinder
from placer.kube.volumes.frontend import VolumeFrontEnd
from placer.kube.volumes.watches import VolumeWatches
from placer.kube.waiting import Waiting, same_pod
from placer.kube.wakeups import Wakeups
from placer.metrics import Metrics
from plimsoll.contract import OPT_OUT_LABEL, SCHEDULER_NAME
from plimsoll.events import NodeState, Placement
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.client import Transport
from plimsoll.kube.lease import Lease, LeasedTransport
from plimsoll.kube.models import TERMINAL_PHASES, DisruptionBudget, Namespace, Node, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Reflector, Synced, Timing
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize, Resizing

UNBROKEN_S: Final = 0.002
"""The longest time that probes may take in one piece, so that watches and binds go on."""
TIMING: Final = Timing(longest_backoff_s=2.0)
"""The timing of a placer's watches. After an outage nothing is placed before the watches are tried again. A cluster
has a few placers of three watches each, so frequent attempts are no load for a server that is coming up."""


async def _recall_nothing() -> None:
    """Nothing was learned before."""


class BusEvents(PlacementEvents, PoolEvents, Protocol):
    """Takes all events that the front end publishes."""


@dataclass(frozen=True, slots=True)
class KubeOptions:
    """The options that differ from one placer to another.

    Attributes:
        policy: the policy for pods that name none.
        instance: the name of this placer in events.
        binds_at_once: the number of writes under way together; more wait.
        timing: the timing of the watches.
        drift_s: the pause between two comparisons of the ledger with the API server, in seconds.
        volumes_s: the longest time that the claims of a placed pod may take to be bound, in seconds.
        evictions: what happens to pods that pass their lines.
        pool_namespace: the namespace of the pool's reservation pods; `OFF`: every GPU that is reported may be used.
        opt_out_label: a node with this label and the value `off` takes no pods.
    """

    policy: Policy
    instance: str = SCHEDULER_NAME
    binds_at_once: int = 16
    timing: Timing = TIMING
    drift_s: float = 300.0
    volumes_s: float = BIND_TIMEOUT_S
    pool_namespace: str = OFF
    evictions: EvictionRules = field(default_factory=EvictionRules)
    opt_out_label: str = OPT_OUT_LABEL


@dataclass(slots=True)
class KubeFrontEnd:
    """Places the pods of one cluster while `run` does.

    Attributes:
        transport: the connection to the API server.
        decider: the sorted list, the reports, and the ledger, which this front end fills.
        bus: takes the events of placements and of the pool.
        reports_loaded: set once every node's last report was read (`Intake.ready`).
        options: see `KubeOptions`.
        synced: set here once all pods, nodes and namespaces were read.
        lease: without it this placer is the only one. With it pods are placed and resized only while the lease is
            held; until then this front end only watches.
        leads: set here once this placer is the one that places, and knows all that an earlier one wrote.
        extender: answers kube-scheduler, if somebody serves it.
        explainer: explains pods to people.
        live_pods: names of pods, and those that wait, for the live page.
        tickets: carries out resizes.
        evictions: tells of pods that pass their lines, and evicts them.
        recall: awaited before the first decision: reads what earlier placers learned. It must neither raise nor take
            long.
        clock: the wall clock in UTC.
    """

    transport: Transport
    decider: Decider
    bus: BusEvents
    reports_loaded: asyncio.Event
    options: KubeOptions
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    lease: Lease | None = None
    leads: asyncio.Event = field(default_factory=asyncio.Event)
    recall: Callable[[], Awaitable[None]] = _recall_nothing
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    extender: Extender = field(init=False)
    _outside: OutsidePods = field(default_factory=OutsidePods)
    _queue: Queue = field(default_factory=Queue)
    _waiting: dict[PodUid, Waiting] = field(default_factory=dict)
    _pods: PodIndex = field(default_factory=PodIndex)
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _pods_synced: asyncio.Event = field(default_factory=asyncio.Event)
    _nodes_synced: asyncio.Event = field(default_factory=asyncio.Event)
    _cluster: Cluster = field(init=False)
    _choice: NodeChoice = field(init=False)
    _binder: Binder = field(init=False)
    _recorder: Recorder = field(init=False)
    _telling: Telling = field(init=False)
    _wakeups: Wakeups = field(init=False)
    _refusals: Refusals = field(init=False)
    _retelling: Retelling = field(init=False)
    _budgets: Budgets = field(default_factory=Budgets)
    _preempting: Preempting = field(init=False)
    explainer: KubeExplainer = field(init=False)
    live_pods: KubePods = field(init=False)
    tickets: Tickets = field(init=False)
    evictions: Evictions = field(init=False)
    _placing: Transport = field(init=False)  # for writes that place or resize
    _scopes: Scopes = field(init=False)
    _namespaces_synced: asyncio.Event = field(default_factory=asyncio.Event)
    _watches: tuple[Reflector[Pod], Reflector[Node], Reflector[Namespace]] | None = None
    _volumes: VolumeFrontEnd = field(init=False)
    _committer: Committer = field(init=False)
    _pool: PoolWatch = field(init=False)

    def __post_init__(self) -> None:
        self._cluster = Cluster(self.decider.ledger, self._report_doubt, self.options.opt_out_label)
        self.decider.reports.on_change(self._forget_report)
        self._choice = NodeChoice(self.decider, self._cluster)
        self._cluster.bookings.decides = self.lease is None
        self._wakeups = Wakeups(self._queue, self.decider, self._cluster, self._work.set)
        self._placing = LeasedTransport(self.transport, self.lease) if self.lease else self.transport
        self._scopes = Scopes(self._queue.upcoming, self.lease.hurry if self.lease else None)
        if self.lease is not None:
            self.lease.notes = self._scopes
        self._binder = Binder(self._placing, self._scopes)
        self._pool = PoolWatch(
            self.options.pool_namespace,
            self.decider.pool,
            self._cluster,
            self.decider.ledger,
            self._placing,
            self.leads,
            self.bus,
        )
        index, volumes_s = self._cluster.volumes, self.options.volumes_s
        late_writes = asyncio.Semaphore(self.options.binds_at_once)
        self._volumes = VolumeFrontEnd(
            self._cluster,
            self._queue,
            VolumeWatches(self.transport, index, self.options.timing),
            VolumeBinder(self._placing, index, self._cluster.labels_of, late_writes, volumes_s),
            self._work.set,
        )
        self._recorder = Recorder(self.transport, self.options.instance, self.clock, self._metrics)
        self._telling = Telling(self._waiting, self._recorder, self.bus)
        orders = Orders(
            self._cluster,
            PreemptionWrites(self._placing, self.clock),
            self._metrics.preempted_pods,
            self._telling.preempted,
            lambda pod, note: self._telling.refused(pod, note, SCHEDULER_ERROR),
        )
        self._preempting = Preempting(
            self._waiting,
            self._queue,
            self._choice,
            VictimSearch(self._choice, self._budgets, lambda: orders.spared),
            orders,
            self.leads,
            lambda pod: understood(pod, self.options.policy),
            self._metrics.nominations,
            self._work.set,
        )
        self._committer = Committer(
            self._waiting,
            self._queue,
            self._cluster,
            self._volumes,
            self._binder,
            self._recorder,
            self._telling,
            self._preempting,
            self._metrics,
            self.clock,
            self._forget_waiting,
            self._work.set,
            asyncio.Semaphore(self.options.binds_at_once),
            late_writes,
        )
        self._refusals = Refusals(
            self._waiting,
            self._queue,
            self._choice,
            self._preempting,
            self.decider.ledger,
            self._metrics,
            self._telling.refused,
            self._work.set,
        )
        self._retelling = Retelling(self._waiting, self._queue, self._preempting, self._telling.refused)
        self.explainer = KubeExplainer(
            self._pods,
            self._waiting,
            self._queue,
            self._choice,
            self._cluster,
            self.options.policy,
            self.synced,
            self.leads,
        )
        self.live_pods = KubePods(self._pods, self._waiting)
        self._metrics.registry.register(WaitingPods(self._queue))
        self.tickets = Tickets(self._placing, self.resize, self.leads)
        self.evictions = Evictions(
            self.options.evictions,
            self._placing,
            self._cluster,
            self._recorder,
            self._metrics,
            Violations(self.decider.ledger, self.options.evictions.grace_s),
            lambda node: node in self.decider.reports.silent,
            self.leads,
        )
        self.extender = self._make_extender()

    def _make_extender(self) -> Extender:
        binds = Binds(
            self._outside,
            self._cluster,
            self.decider,
            self.transport,
            self._binder,
            self._preempting,
            self.options.policy,
            self.bus.placed,
            self.clock,
            asyncio.Semaphore(self.options.binds_at_once),
        )
        leadership = Leadership(self.leads, self.lease, self.broken_s)
        return Extender(leadership, self.decider, binds, self.options.policy)

    @property
    def _metrics(self) -> Metrics:
        return self.decider.metrics

    async def run(self) -> None:
        """Schedule until cancelled. Binds under way are abandoned then; the next start reads their results."""
        unsubscribe = self.decider.reports.on_report(self._observe)
        timing = self.options.timing
        pods = Reflector(self.transport, "/api/v1/pods", Pod, self._on_pod, timing=timing)
        nodes = Reflector(self.transport, "/api/v1/nodes", Node, self._on_node, timing=timing)
        path = "/apis/policy/v1/poddisruptionbudgets"
        # With the longer pauses that are the default: nothing but preemption waits for budgets, and a placer of an
        # earlier version had no right to them.
        budgets = Reflector(self.transport, path, DisruptionBudget, self._on_budget)
        namespaces = Reflector(
            self.transport, "/api/v1/namespaces", Namespace, self._on_namespace, timing=timing
        )
        self._watches = pods, nodes, namespaces
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(nodes.run(), name="kube: watch nodes")
                group.create_task(pods.run(), name="kube: watch pods")
                group.create_task(budgets.run(), name="kube: watch disruption budgets")
                group.create_task(namespaces.run(), name="kube: watch namespaces")
                self._volumes.watches.start(group)
                group.create_task(self._recorder.run(), name="kube: record")
                group.create_task(self._schedule(group, pods), name="kube: schedule")
                group.create_task(self._refusals.run(), name="kube: explain refusals")
                group.create_task(self._retelling.run(), name="kube: tell parked pods anew")
                group.create_task(self._preempting.run(), name="kube: preempt")
                group.create_task(self.evictions.run(), name="kube: evict")
                group.create_task(self._pool.run(), name="kube: release GPUs of the pool")
                group.create_task(self.tickets.run(), name="kube: carry out resizes")
                group.create_task(self.extender.binds.run(), name="kube: bind for kube-scheduler")
        finally:
            unsubscribe()

    def broken_s(self) -> float:
        """The longest `Reflector.broken_s` of all watches: 0 while all are live, infinite before the lists."""
        if self._watches is None:
            return math.inf
        return max(self._volumes.watches.broken_s(), *(watch.broken_s() for watch in self._watches))

    async def resize(self, request: Resize, ticket: str | None = None) -> Resizing:
        """Change a running container's line or shares, see `KubeResizer.resize`. One call at a time.

        Raises:
            InputError: the pod cannot have the change; nothing was changed.
            NotNowError: not all pods, nodes and reports were read yet, or the API server is away.
        """
        if not self.leads.is_set():
            raise NotNowError("the placer has just started and has not seen all pods; ask again")
        resizer = KubeResizer(self._placing, self.decider, self._cluster, self._scopes)
        return await resizer.resize(request, ticket)

    def _observe(self, state: NodeState) -> None:
        self._cluster.observe(state)
        self.evictions.measure(state)

    def _forget_report(self, node: NodeName) -> None:
        if node not in self.decider.reports:
            self._cluster.forget_report(node)

    def _on_node(self, change: Change[Node]) -> None:
        match change:
            case Added(node) | Modified(node):
                old = change.old if isinstance(change, Modified) else None
                if old is not None and _same_node(node, old):
                    return  # a heartbeat
                self._retelling.note()
                self._volumes.binder.note_nodes()
                try:
                    self._cluster.put_node(node)
                except InputError as error:
                    structlog.get_logger().error("node not used", node=node.metadata.name, error=str(error))
            case Deleted(node):
                self._cluster.remove_node(NodeName(node.metadata.name))
                self._volumes.binder.note_nodes()
                self._retelling.note()
            case Synced():
                self._nodes_synced.set()

    def _on_namespace(self, change: Change[Namespace]) -> None:
        match change:
            case Added(namespace) | Modified(namespace):
                self._cluster.put_namespace(namespace)
            case Deleted(namespace):
                self._cluster.remove_namespace(namespace.metadata.name)
            case Synced():
                self._namespaces_synced.set()

    def _on_pod(self, change: Change[Pod]) -> None:
        match change:
            case Synced():
                self._pods_synced.set()
            case Deleted(pod):
                self._outside.drop(PodUid(pod.metadata.uid))
                self._pods.remove(pod)
                self._drop(PodUid(pod.metadata.uid))
                self._pool.drop(pod)
            case Added(pod) | Modified(pod):
                self._pods.put(pod)
                uid = PodUid(pod.metadata.uid)
                self._pool.note(pod)
                self._outside.note(pod)
                if pod.status.phase in TERMINAL_PHASES:
                    self._drop(uid)
                elif pod.spec.nodeName:
                    self._confirm(pod)
                    self.tickets.note(pod)
                elif _is_ours(pod):
                    self._preempting.observe(pod)
                    known = change.old if isinstance(change, Modified) else None
                    self._await_node(pod, changed=known is None or not same_pod(pod, known))
                elif not self._cluster.is_assumed(uid):
                    self._forget_waiting(uid)
                    self._preempting.observe(pod)

    def _on_budget(self, change: Change[DisruptionBudget]) -> None:
        were_read = self._budgets.are_read
        self._budgets.on_change(change)
        if self._budgets.are_read and not were_read:
            self._wakeups.wake(EVERYTHING)  # pods that could not preempt until now

    def _drop(self, uid: PodUid) -> None:
        """Free the room of a pod that is gone or ended, for waiting pods."""
        ended = self._cluster.occupants.find(uid)
        self._forget_waiting(uid)
        self._preempting.forget(uid)
        self._cluster.release(uid)
        self._volumes.note_end(uid)
        if ended is not None:
            self._preempting.pod_ends(ended.node)
        self.tickets.forget(uid)

    def _confirm(self, pod: Pod) -> None:
        self._forget_waiting(PodUid(pod.metadata.uid))
        self._preempting.forget(PodUid(pod.metadata.uid))
        try:
            self._cluster.confirm(pod)
        except InputError as error:
            structlog.get_logger().error("bound pod counts in part", pod=_name(pod), error=str(error))
        self._volumes.note_end(PodUid(pod.metadata.uid))
        if pod.metadata.deletionTimestamp:
            self._preempting.pod_ends(NodeName(pod.spec.nodeName or ""))

    def _report_doubt(self, booking: Booking) -> None:
        doubt = booking.doubt
        assert doubt is not None, "only a booking in doubt is reported"
        log, name = structlog.get_logger(), f"{doubt.namespace}/{doubt.name}"
        if not doubt.foreign and self.lease is not None and not self.lease.is_held():
            # The decision may be that of a placer that has taken the lease over. Then this placer ends soon.
            log.info("pod placed or changed by another", pod=name, node=booking.node)
            return
        log.error("pod in doubt", pod=name, node=booking.node, reason=doubt.reason)
        if doubt.foreign:
            self.bus.foreign(
                Placement(
                    namespace=doubt.namespace,
                    name=doubt.name,
                    pod=booking.pod,
                    node=booking.node,
                    reason=doubt.reason,
                )
            )

    def _await_node(self, pod: Pod, *, changed: bool) -> None:
        uid = PodUid(pod.metadata.uid)
        if self._cluster.is_assumed(uid):
            assumed = self._waiting.get(uid)
            if assumed is not None:  # for the next attempt, if the bind under way fails
                assumed.pod, assumed.wanted = pod, None if changed else assumed.wanted
            return
        now_s = self._now_s()
        waiting = self._waiting.setdefault(uid, Waiting(pod, now_s))
        waiting.pod = pod
        self._volumes.note_waiting(pod)
        if changed or uid not in self._queue:
            waiting.wanted = None
            self._queue.put(uid, pod.spec.priority or 0, now_s, tried=_was_refused(pod))
            self._work.set()

    def _forget_waiting(self, uid: PodUid) -> None:
        self._volumes.forget_waiting(uid)
        if self._waiting.pop(uid, None) is not None:
            self._queue.discard(uid, self._now_s())
            self._work.set()  # another pod of its kind may be tried

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    async def _schedule(self, group: asyncio.TaskGroup, pods: Reflector[Pod]) -> None:
        await self._nodes_synced.wait()
        await self._pods_synced.wait()
        await self._namespaces_synced.wait()
        await self._volumes.watches.synced.wait()
        drift = DriftCheck(
            self.transport, self._cluster, self.decider.ledger, self.decider.metrics, self.options.drift_s
        )
        group.create_task(drift.run(), name="kube: compare the ledger")
        self.synced.set()
        await self.reports_loaded.wait()
        for state in self.decider.reports.values():
            self._cluster.observe(state)
            self.decider.learn(state)
        if self.lease is not None:
            await self.lease.held.wait()
            await self._take_over(pods)
        await self.recall()
        self._cluster.bookings.decides = True
        self._preempting.check_all()
        gc.freeze()  # the objects of a whole cluster live long, and the collector need not walk them again
        self.leads.set()
        while True:
            uid = await self._next()
            placed = self._attempt(uid)
            heed_cancellation()  # a group that is ending takes no task
            if placed is not None:
                taken = await self._committer.take()
                group.create_task(self._committer.commit(placed, taken), name=f"kube: bind {uid}")
            await asyncio.sleep(0)  # a decision may await nothing, and a long queue must not block the loop

    async def _take_over(self, pods: Reflector[Pod]) -> None:
        """Learn all that an earlier leader wrote, and make its late writes fail."""
        began_s, inherited = self._now_s(), self._scopes.inherited
        await pods.catch_up()
        if inherited is None:
            return
        waiting = (*(one.pod for one in self._waiting.values()), *self._outside)
        late = {_name(pod) for pod in waiting if inherited.has(pod)} | inherited.resized
        if late:
            version = await fence(self._placing, late, began_s + WRITE_LIFETIME_S)
            await pods.catch_up(version)  # a write may have arrived just before its pod was changed
        self._scopes.inherited = None
        structlog.get_logger().info("late writes fenced off", pods=len(late))

    async def _next(self) -> PodUid:
        """Wait for the next pod to try; meanwhile probe parked pods on nodes that changed."""
        paused_s = self._now_s()
        while True:
            heed_cancellation()
            self._work.clear()
            self._wakeups.catch_up()
            now_s = self._now_s()
            match self._queue.take(now_s):
                case Try(uid, waited_s):
                    self._metrics.queue_wait_seconds.observe(waited_s)
                    return uid
                case Probe() as probe:
                    await self._probe(probe)
                    if now_s - paused_s > UNBROKEN_S:
                        await asyncio.sleep(0)
                        paused_s = self._now_s()
                case None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout_at(self._queue.due_s()):
                            await self._work.wait()

    async def _probe(self, probe: Probe) -> None:
        """Find out whether a changed node could take a parked pod now."""
        wanted = self._waiting[probe.uid].wanted
        assert wanted is not None, "a parked pod's demand was read"
        obstacles, left = self._choice.obstacles(wanted, probe.node), None
        if obstacles and self._preempting.may_preempt(wanted, probe.node):
            left = await self._preempting.left_by_victims(wanted, probe.node)
            obstacles = self._choice.obstacles(wanted, probe.node)  # the node may have changed meanwhile
        self._metrics.probes.labels("unfit" if obstacles else "fit").inc()
        causes = causes_of(obstacles, wanted.request.demand) if obstacles else NOTHING
        is_news = not probe.kind.refusal.reasons.issuperset(obstacles)
        if left is not None and obstacles:
            is_news |= not left  # it could preempt there
            causes |= causes_of(left, wanted.request.demand) if left else NOTHING
        self._queue.probed(probe, causes, self._now_s(), is_news=is_news)

    def _attempt(self, uid: PodUid) -> Placed | None:
        """Try one pod. Returns its plan, booked and assumed; or None if the pod is refused."""
        waiting = self._waiting[uid]
        pod = waiting.pod
        try:
            wanted = waiting.wanted = waiting.wanted or understood(pod, self.options.policy)
        except InputError as error:
            self._queue.give_up(uid, self._now_s())
            self._telling.refused(pod, f"Pod cannot be scheduled: {error}.")
            return None
        if self._refusals.share(waiting, wanted):
            return None
        try:
            result = self._choice.decide(wanted)
        except ConflictError as error:
            structlog.get_logger().warning("decision put off", pod=_name(pod), error=str(error))
            self._queue.again(uid, self._now_s())
            self._telling.refused(pod, PUT_OFF, SCHEDULER_ERROR)
            return None
        if isinstance(result, Plan):
            volumes = self._volumes.reserve(pod, wanted.needs.mounts, result.booking.node)
            self._cluster.assume(result.booking, wanted.needs, wanted.pod)
            self._preempting.placed(uid, result.booking.node)
            self._queue.placed(uid, self._now_s())
            return Placed(wanted, result, waiting.seen_s, volumes)
        self._refusals.add(wanted, is_final=result.is_final)
        return None


def _is_ours(pod: Pod) -> bool:
    """Whether the pod waits for this scheduler: not one with scheduling gates, or one that is being deleted."""
    waits = not pod.metadata.deletionTimestamp and not pod.spec.schedulingGates
    return pod.spec.schedulerName == SCHEDULER_NAME and waits


def _was_refused(pod: Pod) -> bool:
    """Whether a placer has tried the pod: its condition says so."""
    condition = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
    return condition is not None and condition.reason in (UNSCHEDULABLE, SCHEDULER_ERROR)


def _same_node(node: Node, old: Node) -> bool:
    return node.spec == old.spec and node.status == old.status and node.metadata.labels == old.metadata.labels


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
