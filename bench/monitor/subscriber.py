"""A subscriber of our own: plain NATS, as a stranger's program would be, and the whole stream read afterwards."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import nats
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig

from plimsoll.bus.subjects import EVENTS, STREAM
from plimsoll.envelope import decode_event, decode_report
from plimsoll.events import Report, Task
from plimsoll.ids import ProcessKey

FETCH: Final = 256
ANSWER_S: Final = 30.0
"""The server may have just restarted, on a busy machine."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message as it arrived.

    Attributes:
        at_ns: CLOCK_MONOTONIC in nanoseconds; 0 for a message that was read from the stream afterwards.
        size_bytes: subject, headers and body.
    """

    at_ns: int
    subject: str
    body: bytes
    size_bytes: int

    @property
    def what(self) -> str:
        """The kind of event, such as `task.started`."""
        return ".".join(self.subject.split(".")[2:4])

    @property
    def id(self) -> str:
        """The event's id."""
        return decode_event(self.body).id

    @property
    def report(self) -> Report | None:
        """The report; None for an event that carries no state."""
        return (
            decode_report(self.body) if self.what.startswith("task.") or self.what == "node.state" else None
        )

    @property
    def task(self) -> Task | None:
        """The task of a task event; None for any other event."""
        report = self.report
        return None if report is None else report.task


def _arrival(message: Msg, at_ns: int) -> Arrival:
    headers = sum(len(name) + len(text) + 4 for name, text in (message.headers or {}).items())
    size_bytes = len(message.subject) + headers + len(message.data)
    return Arrival(at_ns, message.subject, message.data, size_bytes)


@dataclass(slots=True)
class Subscriber:
    """Notes each message, and the first moment of each task's facts.

    Attributes:
        arrivals: everything that came, in order.
        moments: per process and fact (`started`, `loaded`, `exited`), when each came, in nanoseconds of
            CLOCK_MONOTONIC.
        noticed: called after each task event.
    """

    arrivals: list[Arrival] = field(default_factory=list)
    moments: dict[tuple[ProcessKey, str], list[int]] = field(default_factory=dict)
    noticed: list[Callable[[], None]] = field(default_factory=list)

    async def take(self, message: Msg) -> None:
        """Take a message in."""
        arrival = _arrival(message, time.monotonic_ns())
        self.arrivals.append(arrival)
        if not arrival.what.startswith("task.") or (task := arrival.task) is None:
            return
        fact = (task.process, arrival.what.removeprefix("task."))
        self.moments.setdefault(fact, []).append(arrival.at_ns)
        for call in self.noticed:
            call()

    def forget(self) -> None:
        """Begin anew: the kernel gives a pid again after some ten thousand processes."""
        self.arrivals.clear()
        self.moments.clear()

    def times(self, process: ProcessKey, what: str) -> list[int]:
        """When a process's events of a kind came."""
        return self.moments.get((process, what), [])


@asynccontextmanager
async def subscribed(url: str) -> AsyncIterator[Subscriber]:
    """Subscribe to every event until the context ends."""
    subscriber = Subscriber()
    async with connected(url) as client:
        await client.subscribe(EVENTS, cb=subscriber.take)
        await client.flush()
        yield subscriber


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    """A client until the context ends; it returns after each restart of the server."""
    pause_s: Any = 0.05  # nats-py says int, and only sleeps it
    client = await nats.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=pause_s, error_cb=_ignore)
    try:
        yield client
    finally:
        await client.close()


async def _ignore(_: Exception) -> None:
    """The server is killed on purpose."""


async def read_stream(client: Client) -> list[Arrival]:
    """The whole stream, in order.

    Raises:
        nats.errors.Error: the server does not answer.
    """
    jetstream = client.jetstream(timeout=ANSWER_S)
    count = (await jetstream.stream_info(STREAM)).state.messages
    config = ConsumerConfig(ack_policy=AckPolicy.NONE, mem_storage=True, inactive_threshold=ANSWER_S)
    consumer = await jetstream.add_consumer(STREAM, config)
    subscription = await jetstream.pull_subscribe_bind(consumer=consumer.name, stream=STREAM)
    arrivals: list[Arrival] = []
    while len(arrivals) < count:
        arrivals += [_arrival(message, 0) for message in await subscription.fetch(FETCH, timeout=ANSWER_S)]
    await subscription.unsubscribe()
    return arrivals
