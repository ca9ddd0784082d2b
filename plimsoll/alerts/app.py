"""Wires reader, book and senders, and owns their lives: all end together, whichever ends first."""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry

from plimsoll.alerts.alertmanager import Sender
from plimsoll.alerts.core.alert import Alert, Labels
from plimsoll.alerts.core.book import AlertBook
from plimsoll.alerts.metrics import AlertMetrics
from plimsoll.alerts.reader import Reader
from plimsoll.alerts.settings import PREFIX, Given
from plimsoll.part.ending import heed_cancellation, tasks_until
from plimsoll.part.log import get_logger
from plimsoll.part.metrics import add_common
from plimsoll.part.settings import shown_url
from plimsoll.part.web import serving_health

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
    board = _Board(book, reader, senders)
    registry = CollectorRegistry()
    registry.register(AlertMetrics(reader, senders, lambda: board.firing))
    add_common(registry, "alerts")
    address, port, variable = given.settings.http_address, given.settings.http_port, PREFIX + "HTTP_PORT"
    health = serving_health(registry, lambda: _missing(reader), address, port, variable)
    async with health, tasks_until(stop) as tasks:
        tasks.create_task(reader.run(), name="reader")
        for sender in senders:
            tasks.create_task(sender.run(), name=f"alerts to {sender.url}")
        tasks.create_task(board.run(), name="board")
        kinds = sorted(kind.value for kind in book.kinds)
        shown = [sender.url for sender in senders]
        log.info("watching", nats=shown_url(given.bus.nats_url), alertmanagers=shown, alerts=kinds)
    log.info("stopped", firing=len(board.firing))


class _Board:
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
