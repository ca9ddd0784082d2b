"""The scheduler of one cluster: its parts wired together, its start, its loop, and its takeover from a leader before.

The loop tries one pod at a time (`attempts`) and binds many at once (`committer`); the `watches` feed its queue. What
always holds: nothing is decided before pods, nodes and reports were all read once, and before all that an earlier
leader wrote is known.
"""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from placer.core.booking import Booking
from placer.core.resize.change import NotNowError
from placer.core.violations import Violations
from placer.decide import Decider
from placer.kube.attempts import Attempts
from placer.kube.binding.binding import Binder
from placer.kube.binding.committer import Committer
from placer.kube.binding.fence import take_over
from placer.kube.binding.scope import Scopes
from placer.kube.choice import NodeChoice
from placer.kube.cluster.cluster import Cluster
from placer.kube.cluster.drift import DriftCheck
from placer.kube.evictions import Evictions
from placer.kube.extender.binds import Binds
from placer.kube.extender.extender import Extender, Leadership
from placer.kube.extender.pods import OutsidePods
from placer.kube.options import KubeOptions
from placer.kube.pod_changes import PodChanges
from placer.kube.pods.pods import PodIndex
from placer.kube.pods.waiting import Waiting
from placer.kube.pods.wanted import understood
from placer.kube.pool import PoolEvents, PoolWatch
from placer.kube.preemption.budgets import Budgets
from placer.kube.preemption.orders import Orders
from placer.kube.preemption.preempting import Preempting
from placer.kube.preemption.stuck import StuckPods
from placer.kube.preemption.victim_search import VictimSearch
from placer.kube.preemption.writes import PreemptionWrites
from placer.kube.queue.metrics import WaitingPods
from placer.kube.queue.queue import Queue
from placer.kube.refusals import SCHEDULER_ERROR, Refusals, pause_beside
from placer.kube.relocation.memory import NoMemory, RoomMemory
from placer.kube.relocation.preview import Previewing
from placer.kube.relocation.relocating import Relocating
from placer.kube.reporting.explain import KubeExplainer
from placer.kube.reporting.live import KubePods
from placer.kube.reporting.record import Recorder
from placer.kube.reporting.retelling import Retelling
from placer.kube.reporting.telling import PlacementEvents, Telling
from placer.kube.resize.resize import KubeResizer
from placer.kube.resize.tickets import Tickets
from placer.kube.volumes.binder import VolumeBinder
from placer.kube.volumes.frontend import VolumeFrontEnd
from placer.kube.volumes.watches import VolumeWatches
from placer.kube.wakeups import Wakeups
from placer.kube.watches import Watches
from placer.metrics import Metrics
from plimsoll.events import NodeState
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.lease import Lease, LeasedTransport
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import Transport
from plimsoll.part.ending import heed_cancellation, noticed
from plimsoll.placer_api.rpc import Resize, Resizing


async def _recall_nothing() -> None:
    """No placer has learned anything before."""


class BusEvents(PlacementEvents, PoolEvents, Protocol):
    """Takes all events that the front end publishes."""


@dataclass(slots=True)
class KubeFrontEnd:
    """Places the pods of one cluster while `run` runs.

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
        previewing: tells people which pods would move.
        live_pods: names of pods, and those that wait, for the live page.
        tickets: carries out resizes.
        evictions: reports pods that pass their lines, and evicts them.
        recall: awaited before the first decision: reads what earlier placers learned. It must neither raise nor take
            long.
        clock: the wall clock in UTC.
        room_memory: keeps the rooms of moved pods for the next leader.
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
    room_memory: RoomMemory = field(default_factory=NoMemory)
    extender: Extender = field(init=False)
    _outside: OutsidePods = field(default_factory=OutsidePods)
    _queue: Queue = field(default_factory=Queue)
    _waiting: dict[PodUid, Waiting] = field(default_factory=dict)
    _pods: PodIndex = field(default_factory=PodIndex)
    _work: asyncio.Event = field(default_factory=asyncio.Event)
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
    _stuck: StuckPods = field(init=False)
    _relocating: Relocating = field(init=False)
    explainer: KubeExplainer = field(init=False)
    previewing: Previewing = field(init=False)
    live_pods: KubePods = field(init=False)
    tickets: Tickets = field(init=False)
    evictions: Evictions = field(init=False)
    _placing: Transport = field(init=False)  # for writes that place or resize
    _scopes: Scopes = field(init=False)
    _watches: Watches = field(init=False)
    _pod_changes: PodChanges = field(init=False)
    _attempts: Attempts = field(init=False)
    _volumes: VolumeFrontEnd = field(init=False)
    _committer: Committer = field(init=False)
    _finishes: bool = False
    _pool: PoolWatch = field(init=False)

    def __post_init__(self) -> None:
        self._cluster = Cluster(self.decider.ledger, self._report_doubt, self.options.opt_out_label)
        self.decider.reports.on_change(self._forget_report)
        self._choice = NodeChoice(self.decider, self._cluster, partial(pause_beside, self._queue))
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
            VictimSearch(self._choice, self._budgets, lambda: orders.spared | self._preempting.stuck),
            orders,
            self.leads,
            lambda pod: understood(pod, self.options.policy),
            self._metrics.nominations,
            self._work.set,
        )
        self._stuck = StuckPods(
            self._preempting, self.options.relocation.keep_s, self.clock, self._telling.nomination_given_up
        )
        self._relocating = Relocating(
            self.options.relocation, self._preempting, self._telling, self.clock, self.room_memory
        )
        self.tickets = Tickets(self._placing, self.resize, self.leads)
        self._pod_changes = PodChanges(
            self._pods,
            self._waiting,
            self._queue,
            self._cluster,
            self._volumes,
            self._preempting,
            self._pool,
            self.tickets,
            self._outside,
            self._relocating.kept,
            self._work.set,
            self._note_rival,
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
            self._pod_changes.forget_waiting,
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
        self._watches = Watches(
            self.transport,
            self.options.timing,
            self._cluster,
            self._pod_changes,
            self._budgets,
            self._volumes,
            self._retelling,
            self._wakeups,
        )
        self._attempts = Attempts(
            self._queue,
            self._waiting,
            self._choice,
            self.options.policy,
            self._volumes,
            self._preempting,
            self._refusals,
            self._telling,
            self._wakeups,
            self._metrics,
            self._work,
        )
        self.explainer = KubeExplainer(
            self._pods,
            self._waiting,
            self._queue,
            self._choice,
            self._cluster,
            self.options.policy,
            self.synced,
            self.leads,
            relocation_of=self._relocating.plan_for,
        )
        self.previewing = Previewing(self._relocating, self._pods, self.synced, self.leads)
        self.live_pods = KubePods(self._pods, self._waiting)
        self._metrics.registry.register(WaitingPods(self._queue))
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
        try:
            async with asyncio.TaskGroup() as group:
                self._watches.start(group)
                _start(group, "record", self._recorder.run)
                _start(group, "schedule", partial(self._schedule, group))
                _start(group, "explain refusals", self._refusals.run)
                _start(group, "tell parked pods anew", self._retelling.run)
                _start(group, "preempt", self._preempting.run)
                _start(group, "find stuck pods", self._stuck.run)
                _start(group, "evict", self.evictions.run)
                _start(group, "relocate", self._relocating.run)
                _start(group, "release GPUs of the pool", self._pool.run)
                _start(group, "carry out resizes", self.tickets.run)
                _start(group, "bind for kube-scheduler", self.extender.binds.run)
        finally:
            unsubscribe()

    async def finish(self) -> None:
        """Decide on no further pod, and return once no write that needs the lease is under way."""
        self._finishes = True
        if self.lease is not None:
            await self.lease.settled()

    def broken_s(self) -> float:
        """The longest `Reflector.broken_s` of all watches: 0 while all are live, infinite before the lists."""
        return self._watches.broken_s()

    async def resize(self, request: Resize, ticket: str | None = None) -> Resizing:
        """Change a running container's line or shares, see `KubeResizer.resize`. Calls must not overlap.

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

    def _report_doubt(self, booking: Booking) -> None:
        self._telling.doubted(booking, decides=self.lease is None or self.lease.is_held())

    def _note_rival(self, pod: Pod) -> None:
        """Report that another placer places pods while this one leads: its Lease is another one."""
        if self.leads.is_set() and (self.lease is None or self.lease.is_held()):
            self._metrics.rival_binds.inc()
            self._telling.bound_by_rival(pod)

    async def _schedule(self, group: asyncio.TaskGroup) -> None:
        await self._watches.until_synced()
        ledger, pause_s = self.decider.ledger, self.options.drift_s
        drift = DriftCheck(self.transport, self._cluster, ledger, self._metrics, pause_s)
        group.create_task(drift.run(), name="kube: compare the ledger")
        self.synced.set()
        await self.reports_loaded.wait()
        for state in self.decider.reports.values():
            self._cluster.observe(state)
            self.decider.learn(state)
        if self.lease is not None:
            await self.lease.held.wait()
            await take_over(self._placing, self._scopes, self._watches.pods.catch_up, self._without_node)
        await self.recall()
        await self._relocating.restore()
        self._cluster.bookings.decides = True
        self._preempting.check_all()
        gc.freeze()  # the objects of a whole cluster live long, and the collector need not walk them again
        self.leads.set()
        while True:
            uid = await self._attempts.next()
            if self._finishes:
                return
            placed = None if self._committer.puts_off(uid) else self._attempts.attempt(uid)
            heed_cancellation()  # a group that is ending takes no task
            if placed is not None:
                taken = await self._committer.take(placed)
                group.create_task(self._committer.commit(placed, taken), name=f"kube: bind {uid}")
            await asyncio.sleep(0)  # a decision may await nothing, and a long queue must not block the loop

    def _without_node(self) -> tuple[Pod, ...]:
        return (*(one.pod for one in self._waiting.values()), *self._outside)


def _start(group: asyncio.TaskGroup, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    group.create_task(noticed(f"kube front end's task `{name}`", work), name=f"kube: {name}")
