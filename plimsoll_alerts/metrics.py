"""The service's Prometheus metrics: what fires, and how Alertmanager and NATS do."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll_alerts.alertmanager import Sender
from plimsoll_alerts.core.alert import Alert, Labels
from plimsoll_alerts.reader import Reader


class AlertMetrics(Collector):
    """Reads everything at each scrape."""

    def __init__(
        self, reader: Reader, senders: Sequence[Sender], firing: Callable[[], Mapping[Labels, Alert]]
    ) -> None:
        """Show these counters; `firing` gives the alerts that fire now."""
        self._reader, self._senders, self._firing = reader, senders, firing

    def collect(self) -> Iterable[Metric]:
        """See `Collector`."""
        return (self._alerts(), *self._posts(), *self._events())

    def _alerts(self) -> Metric:
        firing = GaugeMetricFamily(
            "plimsoll_alerts_firing", "Alerts that fire now, by name.", labels=("alertname",)
        )
        for name, count in sorted(Counter(dict(labels)["alertname"] for labels in self._firing()).items()):
            firing.add_metric((name,), count)
        return firing

    def _posts(self) -> tuple[Metric, ...]:
        """The posts to each Alertmanager, and the alerts that wait for it."""
        posts = CounterMetricFamily(
            "plimsoll_alerts_posts", "Posts to Alertmanager, by outcome.", labels=("alertmanager", "outcome")
        )
        waiting = GaugeMetricFamily(
            "plimsoll_alerts_waiting",
            "Alerts whose present state Alertmanager has not taken yet.",
            labels=("alertmanager",),
        )
        dropped = CounterMetricFamily(
            "plimsoll_alerts_dropped", "Ends of alerts that were dropped unsent.", labels=("alertmanager",)
        )
        up = GaugeMetricFamily(
            "plimsoll_alerts_alertmanager_up",
            "1 if the last post was taken, else 0.",
            labels=("alertmanager",),
        )
        for one in self._senders:
            posts.add_metric((one.url, "taken"), one.posts)
            posts.add_metric((one.url, "failed"), one.failures)
            waiting.add_metric((one.url,), one.delivery.waiting)
            dropped.add_metric((one.url,), one.delivery.dropped)
            if one.is_up is not None:
                up.add_metric((one.url,), float(one.is_up))
        return posts, waiting, dropped, up

    def _events(self) -> tuple[Metric, ...]:
        """Whether the stream of events can be read, and the events that were damaged."""
        silent = GaugeMetricFamily(
            "plimsoll_alerts_bus_away_seconds",
            "Seconds for which the stream has been unreadable; 0 while it is readable.",
            value=self._reader.silent_s(),
        )
        damaged = CounterMetricFamily(
            "plimsoll_alerts_damaged_events", "Events that could not be read.", value=self._reader.damaged
        )
        return silent, damaged
