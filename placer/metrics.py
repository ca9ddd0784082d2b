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
        self.nodes_read = Counter(
            "plimsoll_placer_nodes_read", "Nodes that decisions have read.", registry=self.registry
        )
        self.gpus_read = Counter(
            "plimsoll_placer_gpus_read",
            "GPUs that decisions have read, and groups of GPUs that they passed over.",
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
        self.nodes = Gauge("plimsoll_placer_nodes", "Nodes that have reported.", registry=self.registry)
