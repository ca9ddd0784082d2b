"""The metrics of the nodes' reports, and the unhealthy GPUs that the last ones name."""

from collections import Counter as Counts
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric

from plimsoll.events import NodeState
from plimsoll.gpu_events import HealthClass
from plimsoll.ids import NodeName


class ReportMetrics:
    """Reports of nodes, and the nodes that have reported or are silent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.taken = Counter(
            "plimsoll_placer_reports",
            "Reports taken in, by outcome: `applied`, `stale` (not newer than the last one), `stateless` (one of "
            "many events at once) or `damaged`.",
            ["outcome"],
            registry=registry,
        )
        self.late = Counter(
            "plimsoll_placer_late_reports",
            "Reports of a node that were older than its newest one; many of them mean two monitors of one name.",
            ["node"],
            registry=registry,
        )
        self.last = Gauge(
            "plimsoll_placer_last_report_timestamp_seconds",
            "When the node reported last, in seconds since 1970; `time()` less this is the report's age.",
            ["node"],
            registry=registry,
        )
        self.nodes = Gauge("plimsoll_placer_nodes", "Nodes that have reported.", registry=registry)
        self.silent_nodes = Gauge(
            "plimsoll_placer_silent_nodes",
            "Nodes that are no candidates because they have not reported for too long.",
            registry=registry,
        )
        self.node_silent = Gauge(
            "plimsoll_placer_node_silent",
            "1 while the node is no candidate because it has not reported for too long, else 0.",
            ["node"],
            registry=registry,
        )

    def forget_node(self, node: NodeName) -> None:
        """Drop the series of a node; an unknown one is no error."""
        self.late.remove_by_labels({"node": node})
        self.last.remove_by_labels({"node": node})
        self.node_silent.remove_by_labels({"node": node})


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
