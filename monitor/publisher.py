"""From the outbox into the stream: every event once, in order, however often NATS or the monitor dies.

How that holds:

* An event leaves the outbox only after JetStream acknowledged it. An unacknowledged event is published again under
  the same `Nats-Msg-Id`; the server drops the second copy if it stored the first one after all.
* The server remembers an id for its duplicate window only. Before an event that has waited longer is sent (again),
  the publisher reads this node's last event in the stream: the outbox's events up to and including that one arrived.
* A batch is sent in order, several events in flight, and the next batch begins when all of it is acknowledged. Over
  one connection only a batch's tail can be lost, so order is kept. Where the server refuses one event and takes a
  later one (a full disk), they may swap; readers drop the late one by (`epoch`, `seq`).
* The client library buffers nothing while disconnected: the outbox alone decides what is sent.
* NATS refuses events under a former name of this node. The monitor drops such an event, because it would hold up all
  events behind it. It also drops an event that is larger than NATS takes.
* Before the first event of a run is sent, the epoch passes every epoch of this node in the stream. A start reads only
  the messages that no earlier run has seen.
"""

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import Header, PubAck
from nats.js.errors import NotFoundError

from monitor.foreign import ForeignReport, StreamPosition, greatest_epoch, read_foreign
from monitor.outbox.database import StoredEntry
from monitor.outbox.store import Store, StoreError
from plimsoll.bus.access import BusAccess
from plimsoll.bus.client import BusClient
from plimsoll.bus.stream import LOST_PINGS, PING_S, Stream
from plimsoll.bus.subjects import STREAM, node_token, reports_of
from plimsoll.envelope import decode_event
from plimsoll.ids import NodeName
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage, cause_of
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.part.settings import PREFIX, shown_url

BATCH: Final = 64
"""Events in flight at once: enough to hide the round trip to the server, few enough to send again cheaply."""

ACK_S: Final = 10.0
"""A server on a busy disk acknowledges within a second; after this time an acknowledgement counts as lost."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
"""Bounds of the pauses between attempts, in seconds; they double, with jitter, so that a cluster's monitors do not
all return at once."""

HEADER_BYTES: Final = 256
"""Bytes that a message has besides its event: the stream's name and the id, in headers."""

MARGIN_S: Final = 60.0
"""The duplicate window counts as shorter by this, because server and node read different clocks."""

_REFUSED: Final = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)

log = get_logger()


class _LostError(Exception):
    """Not everything was acknowledged: try again."""


@dataclass(frozen=True, slots=True)
class StreamTarget:
    """The server and the node to publish for, the stream to make if it is missing, and the credentials' files."""

    url: str
    node: NodeName
    stream: Stream
    access: BusAccess = field(default_factory=BusAccess)


@dataclass(frozen=True, slots=True)
class PublisherListeners:
    """The callbacks of the publisher.

    Attributes:
        own_epoch: the epoch of this run's reports.
        known_epoch: called once, before the first event of this run is published, with the greatest epoch of this
            node in the stream.
        foreign: called with each report that another monitor publishes under this node's name meanwhile.
    """

    own_epoch: Callable[[], int]
    known_epoch: Callable[[int], Awaitable[None]]
    foreign: Callable[[ForeignReport], None]


@dataclass(frozen=True, slots=True)
class _Limits:
    """The longest message that NATS takes, and what to change so that it takes longer ones."""

    most_bytes: int
    remedy: str


def _limits(of_server: int, of_stream: int | None) -> _Limits:
    """The smaller of both limits; a stream without one has None, or -1."""
    if of_stream is not None and 0 < of_stream < of_server:
        remedy = f"raise the stream's, now {of_stream} bytes: `nats stream edit {STREAM} --max-msg-size=-1`"
        return _Limits(of_stream, remedy)
    return _Limits(of_server, f"give NATS's max_payload, now {of_server} bytes, its default of 1 MB or more")


class Publisher:
    """Empties the outbox into JetStream. `run` it as a task, and `wake` it when something was stored."""

    _listeners: PublisherListeners

    def __init__(self, target: StreamTarget, store: Store) -> None:
        """Publish `store`'s events to `target`."""
        self._target = target
        self._store = store
        self._options: dict[str, Any] = {}
        self._epoch_checked = False
        # None once reports of another monitor may have been missed: then the next start reads on from the last one.
        self._position: StreamPosition | None = None
        self._scanned = StreamPosition()  # where this run began
        self._wakened = asyncio.Event()
        self._reachable: bool | None = None
        self._outage = Outage(log.warning)
        self._disk = Outage(log.error)
        self._in_flight: list[asyncio.Future[PubAck]] = []
        self.dropped_count = 0
        """The events that were dropped because NATS takes them under no circumstances."""
        self._refused: set[str] = set()  # subjects under former names, which this user may not publish

    @property
    def is_reachable(self) -> bool | None:
        """Whether NATS takes events; None before the first attempt has ended."""
        return self._reachable

    def wake(self) -> None:
        """Publish now: events were stored."""
        self._wakened.set()

    async def run(self, listeners: PublisherListeners) -> None:
        """Publish for ever. Cancelling keeps unacknowledged events for the next start."""
        self._listeners = listeners
        self._options = await asyncio.to_thread(self._target.access.options)
        # We make the client before it connects: `nats.connect`, cancelled meanwhile, would leave a connection open.
        client, pauses = BusClient(), Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        try:
            while True:
                heed_cancellation()
                try:
                    if client.is_closed:
                        client = BusClient()
                    if not client.is_connected and not client.is_reconnecting:
                        await self._connect(client)
                    await self._publish(client)
                except StoreError as error:  # NATS has the events by now, or they still wait
                    self._disk.failed("published events stay on disk, and are published again", str(error))
                    await self._pause(pauses.next_s())
                except (_LostError, nats.errors.Error, OSError, TimeoutError) as error:
                    if self._reachable:
                        pauses.reset()
                    self._unreachable(error)
                    await self._pause(pauses.next_s())
        finally:
            # No drain: the outbox holds every event that the client holds.
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                async with asyncio.timeout(ACK_S):
                    await client.close()

    async def _connect(self, client: Client) -> None:
        await client.connect(
            self._target.url.split(","),
            name=f"plimsoll-monitor-{self._target.node}",
            max_reconnect_attempts=-1,
            reconnect_time_wait=random.uniform(0.2, 0.6),  # type: ignore[arg-type]  # noqa: S311 - jitter; only slept and compared
            connect_timeout=5,
            ping_interval=PING_S,
            max_outstanding_pings=LOST_PINGS,
            pending_size=0,
            no_echo=True,
            error_cb=self._failed,
            disconnected_cb=self._disconnected,
            reconnected_cb=self._reconnected,
            **self._options,
        )
        for subject in reports_of(self._target.node):
            await client.subscribe(subject, cb=self._received)

    async def _received(self, message: Msg) -> None:
        """Take in a message of this node that somebody else published."""
        report = read_foreign(message.data)
        if report is None or not self._epoch_checked:  # before that, our own epoch may pass it
            return
        if report.epoch == self._listeners.own_epoch():  # our own message, from the earlier connection
            return
        if self._position is not None:
            # An acknowledgement may have overtaken this report. So the next start reads from where this one began.
            self._position = None
            await self._store.remove((), self._scanned)
        self._listeners.foreign(report)

    async def _disconnected(self) -> None:
        """Give up the events in flight: they will not be acknowledged any more."""
        self._position = None
        self._give_up()

    def _give_up(self) -> None:
        for ack in self._in_flight:
            ack.cancel()

    async def _reconnected(self) -> None:
        self._wakened.set()

    async def _failed(self, error: Exception) -> None:
        """Log an error of the client's own: a failed attempt among many, or a permission that we lack."""
        if "permissions violation for subscription" in str(error).lower():
            self._position = None
            remedy = "allow this user to subscribe to the node's reports, as the chart does"
            effect = "another monitor under this node's name is not noticed"
            log.warning("NATS does not let us subscribe", effect=effect, error=str(error), remedy=remedy)
            return
        refused = _REFUSED.search(str(error))
        if refused is not None and refused[1].rpartition(".")[2] != node_token(self._target.node):
            self._refused.add(refused[1].lower())
            self._give_up()
            return
        self._unreachable(error)

    async def _drop_refused(self, batch: tuple[StoredEntry, ...], limits: _Limits) -> tuple[StoredEntry, ...]:
        """Drop the events that NATS takes under no circumstances; returns the others."""
        former = [entry for entry in batch if entry.subject.lower() in self._refused]
        rest = [entry for entry in batch if entry not in former]
        large = [entry for entry in rest if len(entry.body) + HEADER_BYTES > limits.most_bytes]
        if former:
            problem = "events under a former name of this node were dropped: NATS takes no such event from this user"
            await self._drop(former, problem, remedy="none is needed")
        if large:
            problem = "events were dropped: NATS takes no message so large"
            await self._drop(large, problem, remedy=limits.remedy)
        return tuple(entry for entry in rest if entry not in large)

    async def _drop(self, entries: list[StoredEntry], problem: str, remedy: str) -> None:
        await self._store.remove(entry.number for entry in entries)
        self.dropped_count += len(entries)
        subjects = sorted({entry.subject for entry in entries})
        log.error(problem, dropped=len(entries), subjects=subjects, remedy=remedy)

    async def _pause(self, seconds: float) -> None:
        """Wait; a reconnection ends the pause early."""
        self._wakened.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wakened.wait()

    async def _publish(self, client: Client) -> None:
        """Publish until something fails, over one JetStream context."""
        # A context of our own: futures of lost acknowledgements would pile up in a lasting one.
        jetstream = client.jetstream(timeout=ACK_S)
        found = await self._target.stream.ensure(jetstream)
        if not self._epoch_checked:
            await self._pass_epochs(client, jetstream, str(found.created))
            self._epoch_checked = True
        limits = _limits(client.max_payload, found.config.max_msg_size)
        await self._resume(jetstream, found.config.duplicate_window or 0.0)
        self._reached()
        while True:
            heed_cancellation()
            self._wakened.clear()
            batch = await self._store.oldest(BATCH)
            if batch:
                await self._send(jetstream, await self._drop_refused(batch, limits))
                self._disk.ended()
            else:
                await self._wakened.wait()

    async def _resume(self, jetstream: JetStreamContext, window_s: float) -> None:
        """Find the events that the stream already holds, where they are older than its duplicate window."""
        batch = await self._store.oldest(BATCH)
        old = bool(batch) and time.time() - batch[0].stored_s > window_s - MARGIN_S
        if not old:
            return
        last = await self._last(jetstream)
        if not last:
            return
        try:
            event = decode_event(last)
        except InputError as error:
            log.warning("the node's last event in the stream is not ours", error=str(error))
            return
        arrived = [entry.number for entry in batch if entry.id == event.id]
        if arrived:
            await self._store.remove(entry.number for entry in batch if entry.number <= arrived[0])

    async def _pass_epochs(self, client: Client, jetstream: JetStreamContext, stream: str) -> None:
        """Pass every epoch of this node in the stream, whoever published it.

        Args:
            client: connected.
            jetstream: the JetStream context of this client.
            stream: when the stream was made; a position in another one means nothing.
        """
        known = await self._store.position()
        if known.stream != stream:
            known = StreamPosition(stream)
        position: StreamPosition | None = None
        try:
            epoch, seq = await greatest_epoch(client, self._target.node, known.seq)
            epoch = max(epoch, known.epoch)
            position = StreamPosition(stream, seq, epoch)
        except NotFoundError:
            log.warning("the stream gives no messages directly: only its last epoch is known", stream=STREAM)
            last = read_foreign(await self._last(jetstream))
            epoch = last.epoch if last is not None else 0
        if epoch:
            await self._listeners.known_epoch(epoch)
        self._position = position
        self._scanned = position or self._scanned

    async def _last(self, jetstream: JetStreamContext) -> bytes:
        """This node's newest event in the stream; empty if there is none."""
        try:
            message = await jetstream.get_last_msg(STREAM, f"plimsoll.v1.*.*.{node_token(self._target.node)}")
        except NotFoundError:
            return b""
        return message.data or b""

    async def _send(self, jetstream: JetStreamContext, batch: tuple[StoredEntry, ...]) -> None:
        self._in_flight = acks = list[asyncio.Future[PubAck]]()
        try:
            async with asyncio.timeout(ACK_S):
                for entry in batch:
                    headers = {Header.MSG_ID.value: entry.id}
                    acks.append(
                        await jetstream.publish_async(
                            entry.subject, entry.body, stream=STREAM, headers=headers
                        )
                    )
                if acks:
                    await asyncio.wait(acks)
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise _LostError(str(error) or "no acknowledgement in time") from error
        finally:
            numbers = [entry.number for entry, ack in zip(batch, acks, strict=False) if _stored(ack)]
            if numbers:
                if self._position is not None:
                    seqs = (ack.result().seq for ack in acks if _stored(ack))
                    seq, epoch = max(self._position.seq, *seqs), self._listeners.own_epoch()
                    self._position = replace(self._position, seq=seq, epoch=max(self._position.epoch, epoch))
                await self._store.remove(numbers, self._position)
        if lost := [ack for ack in acks if not _stored(ack)]:
            raise _LostError("the connection was lost" if lost[0].cancelled() else str(lost[0].exception()))

    def _reached(self) -> None:
        if self._reachable is not True:
            self._reachable = True
            self._outage.ended()
            log.info("publishing", url=shown_url(self._target.url), waiting=self._store.waiting_count)

    def _unreachable(self, error: Exception) -> None:
        """Log each cause of an outage once, not at each attempt."""
        if self._reachable is False and isinstance(error, (_LostError, ConnectionResetError)):
            return  # these follow from the cause, which is logged
        self._reachable = False
        self._outage.failed(
            "events wait on disk until NATS answers",
            cause_of(error, f"{PREFIX}NATS_URL"),
            url=shown_url(self._target.url),
            waiting=self._store.waiting_count,
        )


def _stored(ack: "asyncio.Future[PubAck]") -> bool:
    """Whether the server acknowledged; an acknowledgement still awaited is given up."""
    if not ack.done():
        ack.cancel()
    return not ack.cancelled() and ack.exception() is None
