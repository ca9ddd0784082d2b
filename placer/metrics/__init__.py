"""The placer's metrics, in a registry of their own. `app.py` makes them once and passes them to each part."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from placer.metrics.decisions import DecisionMetrics
from placer.metrics.kube import (
    BindMetrics,
    DriftMetrics,
    EvictionMetrics,
    LeaseMetrics,
    NewsMetrics,
    PreemptionMetrics,
    QueueMetrics,
    RelocationMetrics,
)
from placer.metrics.reports import ReportMetrics
from plimsoll.part.metrics import add_common


class ServerMetrics:
    """NATS and Redis, and what the placer writes there."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.nats_up = Gauge(
            "plimsoll_placer_nats_up",
            "1 while the placer is connected to NATS, else 0.",
            registry=registry,
        )
        self.redis_up = Gauge(
            "plimsoll_placer_redis_up",
            "0 while the placer that leads cannot write to Redis, else 1.",
            registry=registry,
        )
        self.refills = Counter(
            "plimsoll_placer_refills", "Times the list in Redis was filled.", registry=registry
        )
        self.unpublished = Counter(
            "plimsoll_placer_unpublished",
            "Placement events dropped from a full queue, or at the end; above 0, NATS was away for long.",
            registry=registry,
        )


class Metrics:
    """Counters, gauges and histograms by subject; every name begins with `plimsoll_placer_`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        add_common(self.registry, "placer")
        self.servers = ServerMetrics(self.registry)
        self.reports = ReportMetrics(self.registry)
        self.decisions = DecisionMetrics(self.registry)
        self.lease = LeaseMetrics(self.registry)
        self.queue = QueueMetrics(self.registry)
        self.binds = BindMetrics(self.registry)
        self.evictions = EvictionMetrics(self.registry)
        self.preemption = PreemptionMetrics(self.registry)
        self.relocation = RelocationMetrics(self.registry)
        self.news = NewsMetrics(self.registry)
        self.drift = DriftMetrics(self.registry)
