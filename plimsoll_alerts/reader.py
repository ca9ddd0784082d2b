"""Reads the stream into the book: first what it keeps of each node, then what comes.

What always holds: the book is whole before the first alert is sent (`loaded`). Each message is read at least once, in
the stream's order, also over restarts of NATS. Where messages were dropped unread, or the stream was made anew, what
it keeps is read again. The service only reads: it makes no stream, and acknowledges nothing.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DeliverPolicy, StreamInfo
from nats.js.errors import APIError

from plimsoll.bus.access import BusAccess
from plimsoll.bus.client import BusClient, connect
from plimsoll.bus.consumers import BATCH, kept_messages, reading
from plimsoll.bus.subjects import REPORTS, STREAM
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage, cause_of
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import SHOWN_CHARS, InputError
from plimsoll.part.log import get_logger
from plimsoll.part.times import rfc3339
from plimsoll_alerts.core.book import AlertBook, StreamPlace

NEWEST: Final = (*REPORTS, "plimsoll.v1.node.foreign.*")
"""The last message of each subject says what holds now."""

LIMITS: Final = tuple(f"plimsoll.v1.limit.{what}.*" for what in ("violated", "unenforced", "resized"))
"""A node has one subject for all its containers, so all messages that the stream keeps are read."""

IDLE_S: Final = 2.0
"""Seconds that a request for messages waits on the server. After a request without a message, the reader checks that
the consumer exists. A server that was killed has lost the request, so this also bounds a wait in vain."""

STEP_S: Final = 3 * IDLE_S
"""The most seconds that count between two answers of NATS: a process that stood still for longer knows nothing of
the time between."""

AWAY_S: Final = 60.0
"""Seconds without an answer after which `bus.away` fires: NATS restarts, and chooses a leader, in less."""

log = get_logger()

_ERRORS: Final = (nats.errors.Error, APIError, OSError, TimeoutError)


class Reader:
    """Fills a book. `run` it as a task.

    Attributes:
        loaded: set once the book has what the stream keeps.
        changed: set after each batch of messages; the owner clears it.
        damaged: messages that could not be read.
    """

    def __init__(self, book: AlertBook, url: str, access: BusAccess) -> None:
        """Read from the NATS servers at `url` into `book`."""
        self._book = book
        self._url, self._access = url, access
        self._clock_s = 0.0  # runs while NATS answers
        self._answered_s: float | None = None  # the last answer, on the loop's clock; None after a failure
        self._away_s: float | None = None  # the first failure since, likewise
        self._away_since = ""
        self._after = 0  # the number of the last message that was read, in this stream
        self._base = 0  # added to numbers, so that those of a stream made anew are greater than any before
        self._stream = ""  # when it was made
        self._outage = Outage(log.warning)
        self.loaded = asyncio.Event()
        self.changed = asyncio.Event()
        self.damaged = 0

    @property
    def clock_s(self) -> float:
        """The time now, see `plimsoll_alerts.core.book`."""
        return self._clock_s

    def silent_s(self) -> float:
        """Seconds since NATS answered last; 0 while it does."""
        return 0.0 if self._away_s is None else asyncio.get_running_loop().time() - self._away_s

    def note_outage(self) -> None:
        """Tell the book how NATS does; call it before the book is asked."""
        self._book.bus_away_since = self._away_since if self.silent_s() > AWAY_S else ""

    async def run(self) -> None:
        """Read for ever."""
        self._failed_at()
        options = await asyncio.to_thread(self._access.options)
        client, pauses = BusClient(), Pauses()
        try:
            await connect(client, self._url, "plimsoll-alerts", options)
            while True:
                heed_cancellation()
                try:
                    await self._read(client, pauses)
                except _ERRORS as error:
                    self._failed_at()
                    self._outage.failed(
                        "the events cannot be read; alerts stay as they are",
                        cause_of(error, "PLIMSOLL_NATS_URL"),
                    )
                    await asyncio.sleep(pauses.next_s())
        finally:
            with contextlib.suppress(*_ERRORS):
                await client.close()

    async def _read(self, client: Client, pauses: Pauses) -> None:
        jetstream = client.jetstream()
        info = await jetstream.stream_info(STREAM)
        self._answered()
        if self._must_load(info):
            await self._load(jetstream, info)
        config = reading((*NEWEST, *LIMITS), DeliverPolicy.BY_START_SEQUENCE, self._after + 1)
        consumer = await jetstream.add_consumer(STREAM, config)
        subscription = await jetstream.pull_subscribe_bind(consumer=consumer.name, stream=STREAM)
        while True:
            heed_cancellation()
            try:
                messages = await subscription.fetch(BATCH, timeout=IDLE_S)
            except TimeoutError:
                await jetstream.consumer_info(STREAM, consumer.name)  # raises where the server has lost it
                self._answered()
                continue
            self._answered()
            pauses.reset()
            await self._take([(message, self._clock_s) for message in messages])
            self._after = max([self._after, *(_seq(message) for message in messages)])

    def _must_load(self, info: StreamInfo) -> bool:
        if not self.loaded.is_set() or str(info.created) != self._stream:
            return True
        dropped = info.state.first_seq - self._after - 1
        if info.state.messages and dropped > 0:
            log.warning(
                "events were dropped from the stream unread; what it keeps is read again", most=dropped
            )
        return dropped > 0

    async def _load(self, jetstream: JetStreamContext, info: StreamInfo) -> None:
        """Read what the stream keeps."""
        base = self._base
        if self._stream and str(info.created) != self._stream:
            log.warning("the stream was made anew; alerts stay until nodes report")
            base += self._after
        newest = await _kept(jetstream, NEWEST, DeliverPolicy.LAST_PER_SUBJECT)
        limits = await _kept(jetstream, LIMITS, DeliverPolicy.ALL)
        self._stream, self._after, self._base = str(info.created), info.state.last_seq, base
        # NATS worked when it stored the newest message; how long it worked since then is not known.
        last = max((message.metadata.timestamp for message in newest), default=None)

        def stored_s(message: Msg) -> float:
            return self._clock_s - (last - message.metadata.timestamp).total_seconds() if last else 0.0

        await self._take([(message, stored_s(message)) for message in (*newest, *limits)])
        self.loaded.set()
        log.info("what the stream keeps is read", last_reports=len(newest), limit_events=len(limits))

    async def _take(self, messages: Sequence[tuple[Msg, float]]) -> None:
        for number, (message, at_s) in enumerate(messages):
            if number % BATCH == BATCH - 1:
                await asyncio.sleep(0)  # other tasks run between two batches of a long list
            try:
                self._book.take(message.data, StreamPlace(self._base + _seq(message), at_s), time.time())
            except InputError as error:
                self.damaged += 1
                log.warning(
                    "a damaged event is skipped", subject=message.subject, problem=str(error)[:SHOWN_CHARS]
                )
        if messages:
            self.changed.set()

    def _answered(self) -> None:
        """NATS answered now."""
        now_s = asyncio.get_running_loop().time()
        if self._answered_s is not None:
            self._clock_s += min(now_s - self._answered_s, STEP_S)
        elif self._outage.is_on:
            log.info("the events are read again")
        self._outage.ended()
        self._answered_s, self._away_s = now_s, None

    def _failed_at(self) -> None:
        """NATS did not answer."""
        self._answered_s = None
        if self._away_s is None:
            self._away_s = asyncio.get_running_loop().time()
            self._away_since = rfc3339(datetime.now(UTC))


async def _kept(jetstream: JetStreamContext, subjects: Sequence[str], policy: DeliverPolicy) -> list[Msg]:
    return [message async for message in kept_messages(jetstream, subjects, policy, IDLE_S)]


def _seq(message: Msg) -> int:
    return message.metadata.sequence.stream
