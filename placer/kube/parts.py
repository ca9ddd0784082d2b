"""All parts of the front end, made and wired together.

Each `_wire` method makes the parts of one subject, of those before it. What always holds: a part listens to others
from its making on, so the order of these methods is the order in which the parts learn of a change.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from placer.core.booking import Booking
from placer.core.standing import PAUSED
from placer.core.violations import Violations
from placer.decide import Decider
from placer.extender.binds import Binds
from placer.extender.extender import Extender, Leadership
from placer.extender.pods import OutsidePods
from placer.kube.evictions import Evictions
from placer.kube.explain import KubeExplainer
from placer.kube.live import KubePods
from placer.kube.options import KubeOptions
from placer.kube.pool import PoolEvents, PoolWatch
from placer.metrics import Metrics
from placer.relocation.memory import NoMemory, RelocationMemory
from placer.relocation.preview import Previewing
from placer.relocation.relocating import WHOLE_GPU, Relocating
from placer.resize.quotas import NamespaceRules
from placer.resize.resize import KubeResizer
from placer.resize.tickets import Tickets
from placer.scheduler.attempts import Attempts
from placer.scheduler.binding.binding import Binder
from placer.scheduler.binding.committer import Committer
from placer.scheduler.binding.scope import WriteScopes
from placer.scheduler.cache.cache import Cache
from placer.scheduler.choice import NodeChoice
from placer.scheduler.event_handlers.cluster_events import ClusterEvents
from placer.scheduler.event_handlers.namespaces import NamespaceEventHandler
from placer.scheduler.event_handlers.nodes import NodeEventHandler
from placer.scheduler.event_handlers.pods import PodEventHandler
from placer.scheduler.event_handlers.watches import TIMING, Watches
from placer.scheduler.failures.handler import FailureHandler, pause_beside
from placer.scheduler.failures.renewal import Renewal
from placer.scheduler.plugins.default_preemption.budgets import Budgets
from placer.scheduler.plugins.default_preemption.nominating import Nominating
from placer.scheduler.plugins.default_preemption.orders import PreemptionOrders
from placer.scheduler.plugins.default_preemption.preempting import Preempting
from placer.scheduler.plugins.default_preemption.stuck import StuckPods
from placer.scheduler.plugins.default_preemption.victim_search import VictimSearch
from placer.scheduler.plugins.default_preemption.writes import PreemptionWrites
from placer.scheduler.plugins.volumes.binder import VolumeBinder
from placer.scheduler.plugins.volumes.waiting import PodClaims
from placer.scheduler.plugins.volumes.watches import VolumeWatches
from placer.scheduler.pods.index import PodIndex
from placer.scheduler.profile import PodReader, Profile, understood
from placer.scheduler.queue.metrics import QueuedPods
from placer.scheduler.queue.queue import Queue
from placer.scheduler.reporting.condition import SCHEDULER_ERROR
from placer.scheduler.reporting.record import Recorder
from placer.scheduler.reporting.results import PlacementEvents, Results
from plimsoll.ids import NodeName
from plimsoll.kube.lease import Lease, LeasedTransport
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import Transport


class BusEvents(PlacementEvents, PoolEvents, Protocol):
    """Takes all events that the front end publishes."""


@dataclass(slots=True)
class KubeParts:
    """The parts of one cluster's front end, which runs them (`placer.scheduler.frontend`).

    Those that are not described here are described by their classes.

    Attributes:
        transport: the connection to the API server.
        decider: the sorted list, the reports, and the ledger, which the front end fills.
        bus: takes the events of placements and of the pool.
        options: see `KubeOptions`.
        lease: without it this placer is the only one. With it pods are placed and resized only while the lease is
            held; until then the front end only watches.
        leads: set once this placer is the one that places, and knows all that an earlier one wrote.
        synced: set once all pods, nodes and namespaces were read.
        clock: the wall clock in UTC.
        relocation_memory: keeps the rooms and the last moves for the next leader.
        queue: the pods without a node that this scheduler could place.
        pods: all pods that the watch shows.
        outside: the pods of kube-scheduler that wait.
        writes: the transport for writes that place, resize or evict. It refuses them without the lease.
        finishes: no further pod is decided on.
        late_writes: the permits for writes of claims, and of pods whose claims were bound before.
    """

    transport: Transport
    decider: Decider
    bus: BusEvents
    options: KubeOptions
    lease: Lease | None = None
    leads: asyncio.Event = field(default_factory=asyncio.Event)
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    relocation_memory: RelocationMemory = field(default_factory=NoMemory)
    queue: Queue = field(init=False, default_factory=Queue)
    pods: PodIndex = field(init=False, default_factory=PodIndex)
    outside: OutsidePods = field(init=False, default_factory=OutsidePods)
    budgets: Budgets = field(init=False, default_factory=Budgets)
    profile: Profile = field(init=False)
    cache: Cache = field(init=False)
    reader: PodReader = field(init=False)
    choice: NodeChoice = field(init=False)
    cluster_events: ClusterEvents = field(init=False)
    writes: Transport = field(init=False)
    late_writes: asyncio.Semaphore = field(init=False)
    scopes: WriteScopes = field(init=False)
    binder: Binder = field(init=False)
    pool: PoolWatch = field(init=False)
    claims: PodClaims = field(init=False)
    recorder: Recorder = field(init=False)
    results: Results = field(init=False)
    nominating: Nominating = field(init=False)
    preempting: Preempting = field(init=False)
    stuck: StuckPods = field(init=False)
    relocating: Relocating = field(init=False)
    evictions: Evictions = field(init=False)
    rules: NamespaceRules = field(init=False)
    resizer: KubeResizer = field(init=False)
    tickets: Tickets = field(init=False)
    pod_changes: PodEventHandler = field(init=False)
    renewal: Renewal = field(init=False)
    watches: Watches = field(init=False)
    committer: Committer = field(init=False)
    failures: FailureHandler = field(init=False)
    attempts: Attempts = field(init=False)
    explainer: KubeExplainer = field(init=False)
    previewing: Previewing = field(init=False)
    live_pods: KubePods = field(init=False)
    extender: Extender = field(init=False)
    finishes: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self._wire_cluster()
        self._wire_writes()
        self._wire_claims()
        self._wire_reports()
        self._wire_preemption()
        self._wire_relocation()
        self._wire_resizes()
        self._wire_watches()
        self._wire_attempts()
        self._wire_evictions()
        self._wire_answers()
        self._wire_extender()

    async def finish(self) -> None:
        """Decide on no further pod, and return once no write that needs the lease is under way."""
        self.finishes = True
        if self.lease is not None:
            await self.lease.settled()

    @property
    def metrics(self) -> Metrics:
        """The placer's metrics."""
        return self.decider.metrics

    def _wire_cluster(self) -> None:
        """The nodes with their pods, the decision over them, and the changes that help waiting pods."""
        self.profile = Profile(self.decider.ledger, self._report_doubt)
        self.cache = self.profile.cache
        plugins = self.profile.framework.plugins
        self.reader = PodReader(self.options.policy, plugins, self.options.places_unheld)
        self.cache.bookings.decides = self.lease is None
        self.cache.on_filled(self._note_standing)
        self.decider.reports.on_change(self._forget_report)
        self.choice = NodeChoice(self.decider, self.profile, partial(pause_beside, self.queue))
        self.cluster_events = ClusterEvents(self.queue, self.decider, self.profile)
        self.metrics.registry.register(QueuedPods(self.queue))

    def _wire_writes(self) -> None:
        """The writes that place pods, under the lease, and the pool, which the same writes change."""
        self.writes, hurry = self.transport, None
        if self.lease is not None:
            self.writes, hurry = LeasedTransport(self.transport, self.lease), self.lease.hurry
        self.late_writes = asyncio.Semaphore(self.options.binds_at_once)
        self.scopes = WriteScopes(self.queue.upcoming, hurry)
        if self.lease is not None:
            self.lease.notes = self.scopes
        self.binder = Binder(self.writes, self.scopes)
        self.pool = PoolWatch(
            self.options.pool_namespace,
            self.decider.pool,
            self.cache,
            self.decider.ledger,
            self.writes,
            self.leads,
            self.bus,
        )

    def _wire_claims(self) -> None:
        index, options = self.profile.volumes, self.options
        self.claims = PodClaims(
            self.profile,
            self.queue,
            VolumeWatches(self.transport, index, TIMING),
            VolumeBinder(self.writes, index, self.cache.labels_of, self.late_writes, options.volumes_s),
        )

    def _wire_reports(self) -> None:
        self.recorder = Recorder(self.transport, self.options.instance, self.clock, self.metrics)
        self.results = Results(self.queue, self.recorder, self.bus)

    def _wire_preemption(self) -> None:
        orders = PreemptionOrders(
            self.cache,
            PreemptionWrites(self.writes, self.clock),
            self.metrics.preemption.victims,
            self.results.preempted,
            lambda pod, note: self.results.refused(pod, note, SCHEDULER_ERROR),
        )
        self.nominating = Nominating(
            self.queue,
            self.choice,
            orders,
            self.leads,
            self.reader.understood,
            self.metrics.preemption.nominations,
        )
        search = VictimSearch(self.choice, self.budgets, lambda: orders.spared | self.nominating.stuck)
        self.preempting = Preempting(self.nominating, search)

    def _wire_relocation(self) -> None:
        """The moves of pods, and the pods that should have ended but do not."""
        rules = self.options.relocation
        self.stuck = StuckPods(self.nominating, rules.keep_s, self.clock, self.results.nomination_given_up)
        whole_gpu = understood(
            WHOLE_GPU, self.options.policy, self.reader.plugins
        )  # nobody's pod, so nothing need hold it
        self.relocating = Relocating(
            rules, self.nominating, self.budgets, self.results, self.clock, self.relocation_memory, whole_gpu
        )

    def _wire_resizes(self) -> None:
        self.rules = NamespaceRules(self.transport, self.decider.ledger, self.pods)
        self.resizer = KubeResizer(
            self.writes,
            self.decider,
            self.cache,
            self.scopes,
            self.leads,
            self.rules,
            self.results.resized,
        )
        self.tickets = Tickets(self.writes, self.resizer.resize, self.leads)

    def _wire_watches(self) -> None:
        self.pod_changes = PodEventHandler(
            (self.pods, self.pool, self.outside),
            self.queue,
            self.cache,
            self.claims,
            self.preempting,
            self.tickets,
            self.relocating.kept,
            self._note_rival,
        )
        self.renewal = Renewal(self.queue, self.preempting, self.results.refused)
        self.watches = Watches(
            self.transport,
            self.pod_changes,
            NodeEventHandler(self.profile, self.claims.binder, self.renewal),
            NamespaceEventHandler(self.profile, self.renewal, self.options.namespace),
            self.claims.watches,
            self.budgets,
            self.cluster_events,
        )

    def _wire_attempts(self) -> None:
        """The decision on each pod in its turn, and what follows: its writes, or the reasons of its refusal."""
        self.committer = Committer(
            self.queue,
            self.cache,
            self.claims,
            self.binder,
            self.recorder,
            self.results,
            self.nominating,
            self.metrics,
            self.clock,
            asyncio.Semaphore(self.options.binds_at_once),
            self.late_writes,
        )
        self.failures = FailureHandler(
            self.queue, self.choice, self.preempting, self.metrics, self.results.refused
        )
        self.attempts = Attempts(
            self.queue,
            self.choice,
            self.reader,
            self.claims,
            self.preempting,
            self.failures,
            self.results,
            self.cluster_events,
            self.rules,
            self.metrics,
        )

    def _wire_evictions(self) -> None:
        self.evictions = Evictions(
            self.options.evictions,
            self.writes,
            self.cache,
            self.recorder,
            self.metrics,
            Violations(self.decider.ledger, self.options.evictions.grace_s),
            lambda node: node in self.decider.reports.silent,
            self.leads,
        )

    def _wire_answers(self) -> None:
        """The answers to people: about one pod, about moves, and for the live page."""
        self.explainer = KubeExplainer(
            self.pods,
            self.queue,
            self.choice,
            self.cache,
            self.reader,
            self.synced,
            self.leads,
            self.relocating.plan_for,
        )
        self.previewing = Previewing(self.relocating, self.preempting, self.pods, self.synced, self.leads)
        self.live_pods = KubePods(self.pods, self.queue)

    def _wire_extender(self) -> None:
        binds = Binds(
            self.outside,
            self.cache,
            self.decider,
            self.transport,
            self.binder,
            self.nominating,
            self.reader,
            self.bus.placed,
            self.clock,
            asyncio.Semaphore(self.options.binds_at_once),
        )
        leadership = Leadership(self.leads, self.lease, self.watches.broken_s)
        self.extender = Extender(leadership, self.decider, binds, self.reader)

    def _note_standing(self, node: NodeName) -> None:
        offer = self.cache.node(node)
        standing = offer.standing if offer is not None else None
        if standing is not None and self.cache.paused is not None:
            standing = replace(standing, closed=(PAUSED, *standing.closed))
        self.decider.pool.put_standing(node, standing)

    def _forget_report(self, node: NodeName) -> None:
        if node not in self.decider.reports:
            self.cache.bookings.forget_report(node)

    def _note_rival(self, pod: Pod) -> None:
        """Report that another placer places pods while this one leads: its Lease is another one."""
        if self.leads.is_set() and (self.lease is None or self.lease.is_held()):
            self.metrics.lease.rival_binds.inc()
            self.results.bound_by_rival(pod)

    def _report_doubt(self, booking: Booking) -> None:
        self.results.doubted(booking, decides=self.lease is None or self.lease.is_held())
