"""The placer's metrics, in a registry of their own. `app.py` makes them once and passes them to each part."""

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, Metric

from placer.core.holders import GpuKey
from placer.core.ledger import Ledger
from plimsoll.events import NodeState
from plimsoll.gpu_events import HealthClass
from plimsoll.ids import NodeName
from plimsoll.part.metrics import add_common

WRITE_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
WAIT_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)
PENDING_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)


class Metrics:
    """Counters, gauges and histograms; every name begins with `plimsoll_placer_`."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        add_common(self.registry, "placer")
        self.nats_up = Gauge(
            "plimsoll_placer_nats_up",
            "1 while the placer is connected to NATS, else 0.",
            registry=self.registry,
        )
        self.redis_up = Gauge(
            "plimsoll_placer_redis_up",
            "0 while the placer that leads cannot write to Redis, else 1.",
            registry=self.registry,
        )
        self.last_report = Gauge(
            "plimsoll_placer_last_report_timestamp_seconds",
            "When the node reported last, in seconds since 1970; `time()` less this is the report's age.",
            ["node"],
            registry=self.registry,
        )
        self.reports = Counter(
            "plimsoll_placer_reports",
            "Reports taken in, by outcome: `applied`, `stale` (not newer than the last one), `stateless` (one of "
            "many events at once) or `damaged`.",
            ["outcome"],
            registry=self.registry,
        )
        self.late_reports = Counter(
            "plimsoll_placer_late_reports",
            "Reports of a node that were older than its newest one; many of them mean two monitors of one name.",
            ["node"],
            registry=self.registry,
        )
        self.refills = Counter(
            "plimsoll_placer_refills", "Times the list in Redis was filled.", registry=self.registry
        )
        self.learned_owners = Gauge(
            "plimsoll_placer_learned_owners",
            "Workloads whose pods' needs the placer has learned.",
            registry=self.registry,
        )
        self.violations = Gauge(
            "plimsoll_placer_violating_pods",
            "Pods that pass their line of memory, by several reports and for the grace time.",
            registry=self.registry,
        )
        self.evictions = Counter(
            "plimsoll_placer_evictions",
            "Attempts to evict a pod that passes its line, by outcome: `evicted`, `refused` (by a disruption "
            "budget), `forbidden`, `changed` or `unanswered`.",
            ["outcome"],
            registry=self.registry,
        )
        self.unpublished = Counter(
            "plimsoll_placer_unpublished",
            "Placement events dropped from a full queue, or at the end; above 0, NATS was away for long.",
            registry=self.registry,
        )
        self.decisions = Counter(
            "plimsoll_placer_decisions", "Decisions made, by outcome.", ["outcome"], registry=self.registry
        )
        self.nodes_read = Counter(
            "plimsoll_placer_nodes_read",
            "Nodes that decisions have read; per decision they do not grow with the cluster.",
            registry=self.registry,
        )
        self.gpus_read = Counter(
            "plimsoll_placer_gpus_read",
            "GPUs that decisions have read, and groups of GPUs that they passed over; per decision they do not grow "
            "with the cluster.",
            registry=self.registry,
        )
        self.decision_seconds = Histogram(
            "plimsoll_placer_decision_seconds",
            "Time of a decision, from candidates to booking.",
            buckets=(
                0.00005,
                0.0001,
                0.0002,
                0.0005,
                0.001,
                0.0025,
                0.005,
                0.01,
                0.025,
                0.05,
                0.1,
                0.25,
                1,
                5,
            ),
            registry=self.registry,
        )
        self.policy_seconds = Histogram(
            "plimsoll_placer_policy_seconds",
            "Time in which a policy compared places for one pod; the event loop stands still meanwhile.",
            ["policy"],
            buckets=(0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1),
            registry=self.registry,
        )
        self.nodes = Gauge("plimsoll_placer_nodes", "Nodes that have reported.", registry=self.registry)
        self.silent_nodes = Gauge(
            "plimsoll_placer_silent_nodes",
            "Nodes that are no candidates because they have not reported for too long.",
            registry=self.registry,
        )
        self.node_silent = Gauge(
            "plimsoll_placer_node_silent",
            "1 while the node is no candidate because it has not reported for too long, else 0.",
            ["node"],
            registry=self.registry,
        )
        self.leader = Gauge(
            "plimsoll_placer_leader",
            "1 while this placer holds the lease, else 0.",
            registry=self.registry,
        )
        self.lease_transitions = Gauge(
            "plimsoll_placer_lease_transitions",
            "Times that the lease went to another placer, as last read.",
            registry=self.registry,
        )
        self.lease_failures = Counter(
            "plimsoll_placer_lease_failures",
            "Renewals of the lease that the API server did not answer in time.",
            registry=self.registry,
        )
        self.rival_binds = Counter(
            "plimsoll_placer_rival_binds",
            "Pods that another placer bound while this one led; above 0, two placers of the cluster have two Leases.",
            registry=self.registry,
        )
        self.shared_refusals = Counter(
            "plimsoll_placer_shared_refusals",
            "Pods refused without a decision, because an equal pod was just refused.",
            registry=self.registry,
        )
        self.probes = Counter(
            "plimsoll_placer_probes",
            "Probes of a changed node for pods that fit nowhere, by outcome: `fit` or `unfit`.",
            ["outcome"],
            registry=self.registry,
        )
        self.queue_wait_seconds = Histogram(
            "plimsoll_placer_queue_wait_seconds",
            "Time that a pod stood in the queue, ready to be tried.",
            buckets=WAIT_BUCKETS_S,
            registry=self.registry,
        )
        self.bind_seconds = Histogram(
            "plimsoll_placer_bind_seconds",
            "Time of a bind, until its result is known.",
            buckets=WRITE_BUCKETS_S,
            registry=self.registry,
        )
        self.bind_failures = Counter(
            "plimsoll_placer_bind_failures",
            "Binds without success, by result: `elsewhere` (bound by somebody else), `gone`, `changed` (the "
            "pod is decided anew at once) or `refused`.",
            ["result"],
            registry=self.registry,
        )
        self.preempted_pods = Counter(
            "plimsoll_placer_preempted_pods",
            "Pods that were deleted to make room for others.",
            registry=self.registry,
        )
        self.nominations = Counter(
            "plimsoll_placer_nominations",
            "Nominations of this placer's own pods that ended, by outcome: `placed` (on the nominated node), "
            "`elsewhere`, `given_up` (the room is no longer available) or `gone` (the pod).",
            ["outcome"],
            registry=self.registry,
        )
        self.relocated_pods = Counter(
            "plimsoll_placer_relocated_pods",
            "Pods that were evicted to be moved, so that a waiting pod gets a GPU.",
            registry=self.registry,
        )
        self.relocation_plans = Counter(
            "plimsoll_placer_relocation_plans",
            "Searches for pods to move, by outcome: `none` (no plan), `dry-run` (reported), `begun`; and rooms of "
            "replacements that did not come, as `given-up`.",
            ["outcome"],
            registry=self.registry,
        )
        self.pending_bound_seconds = Histogram(
            "plimsoll_placer_pending_bound_seconds",
            "Time from the first sight of a pod until it is bound.",
            buckets=PENDING_BUCKETS_S,
            registry=self.registry,
        )
        self.news_waiting = Gauge(
            "plimsoll_placer_news_waiting",
            "Pods with news that no event shows yet.",
            registry=self.registry,
        )
        self.news_coalesced = Counter(
            "plimsoll_placer_news_coalesced",
            "News of a pod that newer news replaced before it was written.",
            registry=self.registry,
        )
        self.news_dropped = Counter(
            "plimsoll_placer_news_dropped",
            "News that the API server refused, or answered with errors for long.",
            registry=self.registry,
        )
        self.drift_bytes = Gauge(
            "plimsoll_placer_drift_bytes",
            "Bytes by which ledger and API server differed when they were last compared; 0 unless there is a bug.",
            registry=self.registry,
        )
        self.drift_pods = Gauge(
            "plimsoll_placer_drift_pods",
            "Pods that the ledger and the API server counted differently, when they were last compared.",
            registry=self.registry,
        )

    def forget_node(self, node: NodeName) -> None:
        """Drop the series of a node; an unknown one is no error."""
        self.late_reports.remove_by_labels({"node": node})
        self.last_report.remove_by_labels({"node": node})
        self.node_silent.remove_by_labels({"node": node})


@dataclass(frozen=True, slots=True)
class Promises:
    """A collector of Prometheus: the bytes and the share that pods were promised on each GPU, from the ledger.

    It may run beside the event loop, in another thread: bookings do not change, and it copies their list first.
    """

    ledger: Ledger

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        promised_bytes: defaultdict[GpuKey, int] = defaultdict(int)
        share_pct: defaultdict[GpuKey, int] = defaultdict(int)
        for booking in tuple(self.ledger.bookings()):
            for gpu in {grant.gpu for grant in booking.grants}:
                promise = self.ledger.promise(booking, gpu)
                promised_bytes[booking.node, gpu] += promise.expected_bytes
                share_pct[booking.node, gpu] += promise.share_pct
        of_gpu = ["node", "gpu"]
        memory = GaugeMetricFamily(
            "plimsoll_placer_promised_bytes",
            "Memory promised to pods on a GPU; absent where none is.",
            labels=of_gpu,
        )
        share = GaugeMetricFamily(
            "plimsoll_placer_promised_share_ratio",
            "Compute time promised to pods on a GPU, 0 to 1; absent where none is.",
            labels=of_gpu,
        )
        for key, count_bytes in promised_bytes.items():
            memory.add_metric(key, count_bytes)
        for key, pct in share_pct.items():
            share.add_metric(key, pct / 100)
        yield memory
        yield share


@dataclass(frozen=True, slots=True)
class UnhealthyGpus:
    """A collector of Prometheus: the GPUs that are not healthy, by class, from the nodes' last reports.

    It may run beside the event loop, in another thread.

    Attributes:
        states: gives all reports in one step.
    """

    states: Callable[[], Sequence[NodeState]]

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        counts = Counts(one.health for state in self.states() for one in state.health)
        family = GaugeMetricFamily(
            "plimsoll_placer_unhealthy_gpus",
            "GPUs that are not healthy, by class: `info`, `degraded` or `fatal`; fatal ones take no pod.",
            labels=["class"],
        )
        for each in HealthClass:
            if each is not HealthClass.HEALTHY:
                family.add_metric([each.value], counts[each])
        yield family
