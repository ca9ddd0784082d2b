"""The metrics of the front end for Kubernetes. They stand here, because a scrape shows them without a cluster too."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

WRITE_BUCKETS_S: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15)
WAIT_BUCKETS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)
PENDING_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 7200)


class LeaseMetrics:
    """The Lease by which one placer of several leads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leader = Gauge(
            "plimsoll_placer_leader",
            "1 while this placer holds the lease, else 0.",
            registry=registry,
        )
        self.transitions = Gauge(
            "plimsoll_placer_lease_transitions",
            "Times that the lease went to another placer, as last read.",
            registry=registry,
        )
        self.failures = Counter(
            "plimsoll_placer_lease_failures",
            "Renewals of the lease that the API server did not answer in time.",
            registry=registry,
        )
        self.rival_binds = Counter(
            "plimsoll_placer_rival_binds",
            "Pods that another placer bound while this one led; above 0, two placers of the cluster have two Leases.",
            registry=registry,
        )


class QueueMetrics:
    """The attempts to place pods that wait in the queue."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.wait_seconds = Histogram(
            "plimsoll_placer_queue_wait_seconds",
            "Time that a pod stood in the queue, ready to be tried.",
            buckets=WAIT_BUCKETS_S,
            registry=registry,
        )
        self.shared_refusals = Counter(
            "plimsoll_placer_shared_refusals",
            "Pods refused without a decision, because an equal pod was just refused.",
            registry=registry,
        )
        self.probes = Counter(
            "plimsoll_placer_probes",
            "Probes of a changed node for pods that fit nowhere, by outcome: `fit` or `unfit`.",
            ["outcome"],
            registry=registry,
        )


class BindMetrics:
    """The binds of pods to their nodes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.seconds = Histogram(
            "plimsoll_placer_bind_seconds",
            "Time of a bind, until its result is known.",
            buckets=WRITE_BUCKETS_S,
            registry=registry,
        )
        self.failures = Counter(
            "plimsoll_placer_bind_failures",
            "Binds without success, by result: `elsewhere` (bound by somebody else), `gone`, `changed` (the "
            "pod is decided anew at once) or `refused`.",
            ["result"],
            registry=registry,
        )
        self.pending_seconds = Histogram(
            "plimsoll_placer_pending_bound_seconds",
            "Time from the first sight of a pod until it is bound.",
            buckets=PENDING_BUCKETS_S,
            registry=registry,
        )


class EvictionMetrics:
    """Pods that pass their line of memory, and their evictions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.violating_pods = Gauge(
            "plimsoll_placer_violating_pods",
            "Pods that pass their line of memory, by several reports and for the grace time.",
            registry=registry,
        )
        self.attempts = Counter(
            "plimsoll_placer_evictions",
            "Attempts to evict a pod that passes its line, by outcome: `evicted`, `refused` (by a disruption "
            "budget), `forbidden`, `changed` or `unanswered`.",
            ["outcome"],
            registry=registry,
        )


class PreemptionMetrics:
    """Pods that were deleted for others, and the nominations of these."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.victims = Counter(
            "plimsoll_placer_preempted_pods",
            "Pods that were deleted to make room for others.",
            registry=registry,
        )
        self.nominations = Counter(
            "plimsoll_placer_nominations",
            "Nominations of this placer's own pods that ended, by outcome: `placed` (on the nominated node), "
            "`elsewhere`, `given_up` (the room is no longer available) or `gone` (the pod).",
            ["outcome"],
            registry=registry,
        )


class RelocationMetrics:
    """Pods that were moved for others."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.pods = Counter(
            "plimsoll_placer_relocated_pods",
            "Pods that were evicted to be moved, so that a waiting pod gets a GPU.",
            registry=registry,
        )
        self.plans = Counter(
            "plimsoll_placer_relocation_plans",
            "Searches for pods to move, by outcome: `none` (no plan), `dry-run` (reported), `begun`; and rooms of "
            "replacements that did not come, as `given-up`.",
            ["outcome"],
            registry=registry,
        )


class NewsMetrics:
    """News of pods on their way to events and conditions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.waiting = Gauge(
            "plimsoll_placer_news_waiting",
            "Pods with news that no event shows yet.",
            registry=registry,
        )
        self.coalesced = Counter(
            "plimsoll_placer_news_coalesced",
            "News of a pod that newer news replaced before it was written.",
            registry=registry,
        )
        self.dropped = Counter(
            "plimsoll_placer_news_dropped",
            "News that the API server refused, or answered with errors for long.",
            registry=registry,
        )


class DriftMetrics:
    """The differences between the ledger and the API server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.bytes = Gauge(
            "plimsoll_placer_drift_bytes",
            "Bytes by which ledger and API server differed when they were last compared; 0 unless there is a bug.",
            registry=registry,
        )
        self.pods = Gauge(
            "plimsoll_placer_drift_pods",
            "Pods that the ledger and the API server counted differently, when they were last compared.",
            registry=registry,
        )
