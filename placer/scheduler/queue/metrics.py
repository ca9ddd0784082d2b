"""The metrics of the queue, read when Prometheus asks."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from placer.scheduler.queue.queue import Queue


@dataclass(frozen=True, slots=True)
class QueuedPods:
    """A collector of Prometheus: the pods that wait by state, and the unschedulable ones by cause.

    It may run beside the event loop, in another thread; counts that change meanwhile may then not add up.
    """

    queue: Queue

    def collect(self) -> Iterator[Metric]:
        """See `prometheus_client.registry.Collector`."""
        places = GaugeMetricFamily(
            "plimsoll_placer_waiting_pods",
            "Pods without a node, by place: `fresh` (never tried), `retry`, `deciding`, `binding`, `backoff`,"
            " `parked` (fit nowhere) or `given_up` (malformed).",
            labels=["place"],
        )
        counts: Counter[str] = Counter()
        for state, count in self.queue.counts.items():
            counts[state.label] += count
        for label, count in counts.items():
            places.add_metric([label], count)
        yield places
        causes = GaugeMetricFamily(
            "plimsoll_placer_parked_pods",
            "Parked pods by cause: `memory`, `memories` (of several containers, or best-effort), `share`, "
            "`occupancy`, `gpus`, `pool`, `resources`, `node`, `rules` or `volumes`; a pod may have several, "
            "and one that waits for its claims has none.",
            labels=["cause"],
        )
        for cause, count in self.queue.unschedulable.counts_by_cause.items():
            causes.add_metric([str(cause.name).lower()], count)
        yield causes
