"""The metrics of decisions, and the promises that followed from them."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from placer.core.holders import GpuKey
from placer.core.ledger import Ledger
from plimsoll.ids import PodUid

DECISION_BUCKETS_S: Final = (
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
)
POLICY_BUCKETS_S: Final = (0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1)


class DecisionMetrics:
    """Decisions on pods: their outcomes, their time, and what they read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.made = Counter(
            "plimsoll_placer_decisions", "Decisions made, by outcome.", ["outcome"], registry=registry
        )
        self.seconds = Histogram(
            "plimsoll_placer_decision_seconds",
            "Time of a decision, from candidates to booking.",
            buckets=DECISION_BUCKETS_S,
            registry=registry,
        )
        self.policy_seconds = Histogram(
            "plimsoll_placer_policy_seconds",
            "Time in which a policy compared places for one pod; the event loop stands still meanwhile.",
            ["policy"],
            buckets=POLICY_BUCKETS_S,
            registry=registry,
        )
        self.nodes_read = Counter(
            "plimsoll_placer_nodes_read",
            "Nodes that decisions have read; per decision they do not grow with the cluster.",
            registry=registry,
        )
        self.gpus_read = Counter(
            "plimsoll_placer_gpus_read",
            "GPUs that decisions have read, and groups of GPUs that they passed over; per decision they do not grow "
            "with the cluster.",
            registry=registry,
        )
        self.learned_owners = Gauge(
            "plimsoll_placer_learned_owners",
            "Workloads whose pods' needs the placer has learned.",
            registry=registry,
        )


@dataclass(frozen=True, slots=True)
class PromisedGpus:
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
class PromisedNamespaces:
    """A collector likewise: the promises in each namespace, which a ResourceQuota does not know after a resize.

    Attributes:
        ledger: the bookings.
        namespace_of: the namespace of a pod, or None; read from another thread.
    """

    ledger: Ledger
    namespace_of: Callable[[PodUid], str | None]

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        promised_bytes: defaultdict[str, int] = defaultdict(int)
        share_pct: defaultdict[str, int] = defaultdict(int)
        for booking in tuple(self.ledger.bookings()):
            namespace = self.namespace_of(booking.pod)
            if namespace is None or not booking.grants:
                continue
            for gpu in {grant.gpu for grant in booking.grants}:
                promise = self.ledger.promise(booking, gpu)
                promised_bytes[namespace] += promise.expected_bytes
                share_pct[namespace] += promise.share_pct
        memory = GaugeMetricFamily(
            "plimsoll_placer_namespace_promised_bytes",
            "GPU memory promised to the pods of a namespace, resizes, percentages and best effort included; absent "
            "where none is.",
            labels=["namespace"],
        )
        share = GaugeMetricFamily(
            "plimsoll_placer_namespace_promised_share_ratio",
            "Compute time promised to the pods of a namespace, in GPUs; absent where none is.",
            labels=["namespace"],
        )
        for namespace, count_bytes in promised_bytes.items():
            memory.add_metric([namespace], count_bytes)
        for namespace, pct in share_pct.items():
            share.add_metric([namespace], pct / 100)
        yield memory
        yield share
