"""Wires reader, book and senders, and owns their lives: all end together, whichever ends first."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from plimsoll.part.ending import heed_cancellation, tasks_until
from plimsoll.part.log import get_logger
from plimsoll.part.metrics import add_common
from plimsoll.part.settings import shown_url
from plimsoll.part.web import serving_health
from plimsoll_alerts.alertmanager import Sender
from plimsoll_alerts.core.alert import Alert, Labels
from plimsoll_alerts.core.book import AlertBook
from plimsoll_alerts.reader import Reader
from plimsoll_alerts.settings import PREFIX, Given

TICK_S: Final = 1.0
"""Seconds between two checks of the firing alerts, because no message marks the beginning of a node's silence."""

log = get_logger()


async def run(given: Given, stop: asyncio.Event) -> None:
    """Keep Alertmanager informed until `stop` is set. Alerts that fire then end there after four intervals.

    Raises:
        InputError: a setting cannot work; in a group where a task found that out.
    """
    book = given.book()
    reader = Reader(book, given.bus.nats_url, given.bus.nats_access)
    senders = [Sender(url, given.settings, given.labels) for url in given.urls]
    evaluator = _Evaluator(book, reader, senders)
    registry = CollectorRegistry()
    registry.register(AlertMetrics(reader, senders, lambda: evaluator.firing))
    add_common(registry, "alerts")
    address, port, variable = given.settings.http_address, given.settings.http_port, PREFIX + "HTTP_PORT"
    health = serving_health(registry, lambda: _missing(reader), address, port, variable)
    async with health, tasks_until(stop) as tasks:
        tasks.create_task(reader.run(), name="reader")
        for sender in senders:
            tasks.create_task(sender.run(), name=f"alerts to {sender.url}")
        tasks.create_task(evaluator.run(), name="evaluator")
        kinds = sorted(kind.value for kind in book.kinds)
        shown = [sender.url for sender in senders]
        log.info("watching", nats=shown_url(given.bus.nats_url), alertmanagers=shown, alerts=kinds)
    log.info("stopped", firing=len(evaluator.firing))


class _Evaluator:
    """Asks the book what fires, and shows it to the senders.

    Attributes:
        firing: the firing alerts at the last check.
    """

    def __init__(self, book: AlertBook, reader: Reader, senders: Sequence[Sender]) -> None:
        self._book, self._reader, self._senders = book, reader, senders
        self.firing: dict[Labels, Alert] = {}

    async def run(self) -> None:
        """Look for ever; nothing is shown before the stream was read, apart from a bus that is away."""
        while True:
            heed_cancellation()
            self._look()
            self._reader.changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._reader.changed.wait()

    def _look(self) -> None:
        self._reader.note_outage()
        if not (self._reader.loaded.is_set() or self._book.bus_away_since):
            return
        before, self.firing = self.firing, self._book.firing(self._reader.clock_s)
        for labels in self.firing.keys() - before.keys():
            log.warning("an alert fires", summary=self.firing[labels].summary, **dict(labels))
        for labels in before.keys() - self.firing.keys():
            log.info("an alert ended", summary=before[labels].summary, **dict(labels))
        for sender in self._senders:
            sender.show(self.firing)


def _missing(reader: Reader) -> list[str]:
    return [] if reader.loaded.is_set() else ["the stream is not read yet"]


class AlertMetrics(Collector):
    """The service's Prometheus metrics, read at each scrape: what fires, and how Alertmanager and NATS do."""

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
