"""All parts of a placer in a cluster, made and wired together: the core, the controllers, and the doors.

Each function makes the parts of one seam, of those before it. `_subscriptions` is the table of who listens to whom
across them; a part's own listeners stand in its class (`ClusterEvents`, `PodEventHandler`, `VolumeBinding`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from placer.core.booking import Booking
from placer.core.schedulability import PAUSED
from placer.core.violations import Violations
from placer.decide import Decider
from placer.extender.binds import Binds, OutsidePods
from placer.extender.extender import Extender, Leadership
from placer.kube.evictions import Evictions
from placer.kube.explain import KubeExplainer
from placer.kube.live import KubePods
from placer.kube.options import KubeOptions
from placer.kube.pool import PoolEvents, PoolWatch
from placer.metrics import Metrics
from placer.relocation.memory import NoMemory, RelocationMemory
from placer.relocation.preview import RelocationPreviews
from placer.relocation.relocator import WHOLE_GPU, Relocator
from placer.resize.resize import KubeResizer
from placer.resize.tickets import Tickets
from placer.scheduler.binding.binding import Binder
from placer.scheduler.binding.cycle import BindingCycle, Permits
from placer.scheduler.binding.scope import WriteScopes
from placer.scheduler.binding.volumes import VolumeBinder, VolumeBinding
from placer.scheduler.event_handlers.cluster_events import ClusterEvents
from placer.scheduler.event_handlers.namespaces import NamespaceEventHandler
from placer.scheduler.event_handlers.nodes import NodeEventHandler
from placer.scheduler.event_handlers.pods import PodEventHandler
from placer.scheduler.event_handlers.watches import TIMING, Watches
from placer.scheduler.failures.handler import FailureHandler, pause_beside
from placer.scheduler.failures.renewal import Renewal
from placer.scheduler.plugins.volumes.watches import VolumeWatches
from placer.scheduler.pods.index import PodIndex
from placer.scheduler.preemption.budgets import Budgets
from placer.scheduler.preemption.executor import Executor
from placer.scheduler.preemption.nominated_pods import NominatedPods
from placer.scheduler.preemption.post_filter import DefaultPreemption
from placer.scheduler.preemption.stuck_pods import StuckPods
from placer.scheduler.preemption.victim_search import VictimSearch
from placer.scheduler.preemption.writes import PreemptionWrites
from placer.scheduler.profile import PodReader, Profile, understood
from placer.scheduler.queue.metrics import QueuedPods
from placer.scheduler.queue.queue import Queue
from placer.scheduler.quotas import NamespaceRules
from placer.scheduler.reporting.record import Recorder
from placer.scheduler.reporting.results import PlacementEvents, Results
from placer.scheduler.schedule_pod import PodScheduling
from placer.scheduler.scheduler import Scheduler
from plimsoll.ids import NodeName
from plimsoll.kube.lease import Lease, LeasedTransport
from plimsoll.kube.models import Pod
from plimsoll.kube.transport import Transport


class BusEvents(PlacementEvents, PoolEvents, Protocol):
    """Takes all events that the placer publishes."""


@dataclass(slots=True)
class KubeContext:
    """The connections, options and clock that a placer in a cluster is given.

    Attributes:
        transport: the connection to the API server.
        decider: the sorted list, the reports, and the ledger, which the scheduler fills.
        bus: takes the events of placements and of the pool.
        options: see `KubeOptions`.
        lease: without it this placer is the only one. With it pods are placed and resized only while the lease is
            held; until then the placer only watches.
        leads: set once this placer is the one that places, and knows all that an earlier one wrote.
        clock: the wall clock in UTC.
        relocation_memory: keeps the rooms and the last moves for the next leader.
    """

    transport: Transport
    decider: Decider
    bus: BusEvents
    options: KubeOptions
    lease: Lease | None = None
    leads: asyncio.Event = field(default_factory=asyncio.Event)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    relocation_memory: RelocationMemory = field(default_factory=NoMemory)

    @property
    def metrics(self) -> Metrics:
        """The placer's metrics."""
        return self.decider.metrics

    def holds_lease(self) -> bool:
        """Whether this placer may write now."""
        return self.lease is None or self.lease.is_held()


@dataclass(frozen=True, slots=True)
class Core:
    """The scheduler and what its cycles read and write.

    Attributes:
        queue: the pods without a node that this scheduler could place.
        pods: all pods that the watch shows.
        writes: the transport for writes that place, resize or evict. It refuses them without the lease.
        scopes: the pods to which the leader may be writing.
        quotas: holds pods to quotas after raises.

    The others are described by their classes.
    """

    queue: Queue
    pods: PodIndex
    profile: Profile
    reader: PodReader
    scheduling: PodScheduling
    cluster_events: ClusterEvents
    writes: Transport
    scopes: WriteScopes
    binder: Binder
    claims: VolumeBinding
    results: Results
    budgets: Budgets
    preemption: DefaultPreemption
    quotas: NamespaceRules
    failures: FailureHandler
    scheduler: Scheduler


@dataclass(frozen=True, slots=True)
class Controllers:
    """The loops that change pods which have a node, or the pool; described by their classes."""

    stuck: StuckPods
    relocator: Relocator
    evictions: Evictions
    pool: PoolWatch


@dataclass(frozen=True, slots=True)
class Doors:
    """The ways in beside a pod's own: resizes, kube-scheduler's extender, and answers to people.

    Attributes:
        outside: the pods of kube-scheduler that wait.

    The others are described by their classes.
    """

    resizer: KubeResizer
    tickets: Tickets
    outside: OutsidePods
    binds: Binds
    explainer: KubeExplainer
    previews: RelocationPreviews
    live_pods: KubePods


class KubeParts:
    """The parts of a placer in a cluster, which `placer.kube.frontend` runs.

    Attributes:
        context: what this placer was given.
        synced: set once all pods, nodes and namespaces were read.
        core, controllers, doors: the parts by seam.
        renewal: renews the reasons why pods wait.
        watches: feed all of them.
        extender: answers kube-scheduler.
    """

    def __init__(self, context: KubeContext) -> None:
        """Make all parts; nothing runs yet."""
        self.context, self.synced = context, asyncio.Event()
        self.core = _core(context, self._report_doubt)
        self.controllers = _controllers(context, self.core)
        self.doors = _doors(context, self.core, self.controllers, self.synced)
        self.renewal = Renewal(self.core.queue, self.core.preemption, self.core.results.refused)
        self.watches = self._watches()
        leadership = Leadership(context.leads, context.lease, self.watches.broken_s)
        self.extender = Extender(leadership, context.decider, self.doors.binds, self.core.reader)
        for subscribe, listener in self._subscriptions():
            subscribe(listener)

    def _subscriptions(self) -> tuple[tuple[Callable[..., object], Callable[..., object]], ...]:
        """The table of listeners across the seams. Each is called with the node that changed."""
        reports, cache = self.context.decider.reports, self.core.profile.cache
        return (
            (cache.on_filled, self._note_schedulability),
            (reports.on_change, self._forget_report),
        )

    async def finish(self) -> None:
        """Decide on no further pod, and return once no write that needs the lease is under way."""
        self.core.scheduler.finishes = True
        if self.context.lease is not None:
            await self.context.lease.writes.settled()

    def _watches(self) -> Watches:
        """The watches with their handlers: who learns of which objects."""
        core, renewal = self.core, self.renewal
        pods = PodEventHandler(
            (core.pods, self.controllers.pool, self.doors.outside, self.doors.tickets),
            core.queue,
            core.profile.cache,
            core.claims,
            core.preemption.nominated,
            self.controllers.relocator.replacements.take,
            self._note_rival,
        )
        return Watches(
            self.context.transport,
            pods,
            NodeEventHandler(core.profile, core.claims.binder, renewal),
            NamespaceEventHandler(core.profile, renewal, self.context.options.namespace),
            core.claims.watches,
            core.budgets,
            core.cluster_events,
        )

    def _note_schedulability(self, node: NodeName) -> None:
        cache = self.core.profile.cache
        known = cache.node(node)
        schedulability = known.schedulability if known is not None else None
        if schedulability is not None and cache.paused is not None:
            schedulability = replace(schedulability, closed=(PAUSED, *schedulability.closed))
        self.context.decider.pool.put_schedulability(node, schedulability)

    def _forget_report(self, node: NodeName) -> None:
        if node not in self.context.decider.reports:
            self.core.profile.cache.bookings.forget_report(node)

    def _note_rival(self, pod: Pod) -> None:
        """Report that another placer places pods while this one leads: its Lease is another one."""
        if self.context.leads.is_set() and self.context.holds_lease():
            self.context.metrics.lease.rival_binds.inc()
            self.core.results.bound_by_rival(pod)

    def _report_doubt(self, booking: Booking) -> None:
        self.core.results.doubted(booking, decides=self.context.holds_lease())
        self.report_unheld(booking)

    def report_unheld(self, booking: Booking) -> None:
        """Report, while this placer leads, that nothing holds a pod that somebody else bound."""
        pod = self.core.pods.get(booking.pod)
        if pod is not None and self.context.leads.is_set() and self.context.holds_lease():
            self.core.results.held_by_nothing(pod, booking)


def _core(context: KubeContext, on_doubt: Callable[[Booking], None]) -> Core:
    decider, options, queue, pods = context.decider, context.options, Queue(), PodIndex()
    profile = Profile(decider.ledger, on_doubt)
    profile.cache.bookings.decides = context.lease is None
    reader = PodReader(options.policy, profile.framework.plugins, options.places_unheld)
    scheduling = PodScheduling(decider, profile, partial(pause_beside, queue))
    cluster_events = ClusterEvents(queue, decider, profile)
    context.metrics.registry.register(QueuedPods(queue))
    writes, scopes = _writes(context, queue)
    binder, permits = Binder(writes, scopes, context.clock), Permits.of(options.binds_at_once)
    volumes = profile.volumes.store
    claims = VolumeBinding(
        profile,
        queue,
        VolumeWatches(context.transport, volumes, TIMING),
        VolumeBinder(writes, volumes, profile.cache.labels_of, permits.late, options.volumes_s),
    )
    recorder = Recorder(context.transport, options.instance, context.clock, context.metrics)
    results, budgets = Results(queue, recorder, context.bus), Budgets()
    preemption = _preemption(context, queue, scheduling, reader, budgets, writes, results)
    failures = FailureHandler(queue, scheduling, preemption, context.metrics, results.refused)
    quotas = NamespaceRules(context.transport, decider.ledger, pods)
    binding = BindingCycle(
        queue, profile.cache, claims, binder, results, preemption.nominated, context.metrics, permits
    )
    return Core(
        queue=queue,
        pods=pods,
        profile=profile,
        reader=reader,
        scheduling=scheduling,
        cluster_events=cluster_events,
        writes=writes,
        scopes=scopes,
        binder=binder,
        claims=claims,
        results=results,
        budgets=budgets,
        preemption=preemption,
        quotas=quotas,
        failures=failures,
        scheduler=Scheduler(
            queue, reader, quotas, scheduling, failures, binding, cluster_events, context.metrics
        ),
    )


def _writes(context: KubeContext, queue: Queue) -> tuple[Transport, WriteScopes]:
    """The transport for writes under the lease, and the pods to which they may be under way."""
    lease = context.lease
    if lease is None:
        return context.transport, WriteScopes(queue.upcoming, None)
    scopes = WriteScopes(queue.upcoming, lease.hurry)
    lease.notes = scopes
    return LeasedTransport(context.transport, lease), scopes


def _preemption(  # noqa: PLR0913, PLR0917 - the parts before it
    context: KubeContext,
    queue: Queue,
    scheduling: PodScheduling,
    reader: PodReader,
    budgets: Budgets,
    writes: Transport,
    results: Results,
) -> DefaultPreemption:
    executor = Executor(
        scheduling.cache,
        PreemptionWrites(writes, context.clock),
        context.metrics.preemption.victims,
        results,
    )
    nominated = NominatedPods(
        queue, scheduling, executor, context.leads, reader.understood, context.metrics.preemption.nominations
    )
    search = VictimSearch(scheduling, budgets, lambda: executor.spared | nominated.stuck)
    return DefaultPreemption(nominated, search)


def _controllers(context: KubeContext, core: Core) -> Controllers:
    rules, options, nominated = context.options.relocation, context.options, core.preemption.nominated
    # Nobody's pod, so nothing need hold it.
    whole_gpu = understood(WHOLE_GPU, options.policy, core.reader.plugins)
    return Controllers(
        StuckPods(nominated, rules.keep_s, context.clock, core.results.nomination_given_up),
        Relocator(
            rules,
            nominated,
            core.budgets,
            core.results,
            context.clock,
            context.relocation_memory,
            whole_gpu,
        ),
        Evictions(
            options.evictions,
            core.writes,
            core.profile.cache,
            core.results.recorder,
            context.metrics,
            Violations(context.decider.ledger, options.evictions.grace_s),
            lambda node: node in context.decider.reports.silent,
            context.leads,
        ),
        PoolWatch(
            options.pool_namespace,
            context.decider.pool,
            core.profile.cache,
            context.decider.ledger,
            core.writes,
            context.leads,
            context.bus,
        ),
    )


def _doors(context: KubeContext, core: Core, controllers: Controllers, synced: asyncio.Event) -> Doors:
    cache, leads, outside = core.profile.cache, context.leads, OutsidePods()
    resizer = KubeResizer(
        core.writes, context.decider, cache, core.scopes, leads, core.quotas, core.results.resized
    )
    return Doors(
        resizer,
        Tickets(core.writes, resizer.resize, leads),
        outside,
        Binds(
            outside,
            context.decider,
            context.transport,
            core.binder,
            core.preemption.nominated,
            core.reader,
            context.bus.placed,
            asyncio.Semaphore(context.options.binds_at_once),
        ),
        KubeExplainer(
            core.pods,
            core.queue,
            core.scheduling,
            cache,
            core.reader,
            synced,
            leads,
            controllers.relocator.plan_for,
        ),
        RelocationPreviews(controllers.relocator, core.preemption, core.pods, synced, leads),
        KubePods(core.pods, core.queue),
    )
