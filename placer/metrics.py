"""The placer's metrics, in a registry of their own. `app.py` makes them once and passes them to each part."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics


class Metrics:
    """Counters, gauges and histograms; every name begins with `plimsoll_placer_`."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.reports = Counter(
            "plimsoll_placer_reports", "Reports taken in.", ["outcome"], registry=self.registry
        )
        self.refills = Counter(
            "plimsoll_placer_refills", "Times the list in Redis was filled.", registry=self.registry
        )
        self.unpublished = Counter(
            "plimsoll_placer_unpublished",
            "Placement events dropped from a full queue.",
            registry=self.registry,
        )
        self.decisions = Counter(
            "plimsoll_placer_decisions", "Decisions made.", ["outcome"], registry=self.registry
        )
        self.decision_seconds = Histogram(
            "plimsoll_placer_decision_seconds",
            "Time of a decision, from candidates to booking.",
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5),
            registry=self.registry,
        )
        self.nodes = Gauge("plimsoll_placer_nodes", "Nodes that have reported.", registry=self.registry)
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
        self.drift_bytes = Gauge(
            "plimsoll_placer_drift_bytes",
            "Bytes by which ledger and API server differed, over all GPUs, when they were last compared.",
            registry=self.registry,
        )
        self.drift_pods = Gauge(
            "plimsoll_placer_drift_pods",
            "Pods that the ledger counted otherwise than the API server, when they were last compared.",
            registry=self.registry,
        )
