"""Publishes decisions on the bus, as `pod.placed`, `pod.unplaceable`, `pod.foreign`, `pod.preempted` and
`pod.relocated` events.

Changes of the pool go the same way, as `pool.acquired`, `pool.released` and `pool.lost`. In their queue a reservation
pod stands in the place of the pod.

What always holds: a decision never waits for the bus. Several events are on their way at once, and the events of one
pod follow each other in order. The others wait in a bounded queue. A full queue drops its oldest event, counts and
logs that, because the placements themselves stand in the API server (or with the broker). The same fact has the same
id, so an event whose publishing timed out is stored once, even if the first attempt arrived.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

import nats.errors
from nats.js import JetStreamContext
from nats.js.api import Header, PubAck

from placer.core.plan import Plan
from placer.metrics import ServerMetrics
from plimsoll.bus.client import REQUEST_S
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import pod_subject, pool_subject
from plimsoll.envelope import encode, fact_id
from plimsoll.events import Placement, PoolChange
from plimsoll.ids import PodUid
from plimsoll.kube.models import ObjectMeta
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger
from plimsoll.part.times import rfc3339

GATHER_S: Final = 0.1
"""The pause after events were sent, in which others gather. While hundreds of pods a second are bound, events that
are sent one by one cost the placer and the bus more."""

LAST_S: Final = 1.0
"""The longest time for which the last events keep the placer from ending."""

QUEUE_EVENTS: Final = 10_000
"""The most events that wait, some 5 MiB. While the bus is away for longer, the oldest events are lost."""

AT_ONCE: Final = 64
"""The most events under way together. Sent one by one, each event would wait a turn of a busy loop for its answer."""

SOURCE: Final = "/placer"

log = get_logger()

Decided = Literal["placed", "unplaceable", "foreign", "preempted", "relocated"]


def placement(metadata: ObjectMeta, plan: Plan) -> Placement:
    """The event data for a pod that was placed."""
    return Placement(
        namespace=metadata.namespace,
        name=metadata.name,
        pod=plan.booking.pod,
        node=plan.booking.node,
        gpus={container: list(gpus) for container, gpus in plan.gpus.items()},
        policy=plan.policy,
        score=plan.score,
    )


@dataclass(frozen=True, slots=True)
class _Event:
    pod: PodUid
    subject: str
    id: str
    message: bytes


class Publisher:
    """Publishes placements while `run` runs; the other methods may be called before, after and meanwhile.

    Attributes:
        on_event: called with the id and the message of each event as it is queued.
    """

    def __init__(
        self,
        jetstream: JetStreamContext,
        metrics: ServerMetrics,
        *,
        stream: Stream = Stream(),  # noqa: B008 - frozen
        queue_events: int = QUEUE_EVENTS,
    ) -> None:
        """Publish over a connection that need not be open yet.

        Args:
            jetstream: the connection.
            metrics: counts events that were dropped.
            stream: the stream that keeps the events.
            queue_events: the most events that wait.
        """
        self._jetstream = jetstream
        self._metrics = metrics
        self._stream = stream
        self.on_event: Callable[[str, bytes], None] = lambda *_: None
        self._queue: deque[_Event] = deque(maxlen=queue_events)
        self._filled = asyncio.Event()
        self._under_way: list[_Event] = []

    def placed(self, placement: Placement) -> None:
        """Queue an event for a pod that was placed; returns at once."""
        self._queue_event("placed", placement)

    def unplaceable(self, placement: Placement) -> None:
        """Queue an event for a pod without a fit node; the same pod and reason, queued again soon, is stored once."""
        self._queue_event("unplaceable", placement)

    def foreign(self, placement: Placement) -> None:
        """Queue an event for a GPU pod that somebody else bound; the same pod, queued again soon, is stored once."""
        self._queue_event("foreign", placement)

    def preempted(self, placement: Placement) -> None:
        """Queue an event for a pod that was deleted to make room for another; returns at once."""
        self._queue_event("preempted", placement)

    def relocated(self, placement: Placement) -> None:
        """Queue an event for a pod that was evicted to be moved; returns at once."""
        self._queue_event("relocated", placement)

    def acquired(self, change: PoolChange) -> None:
        """Queue an event for a GPU that joined the pool; the same reservation and GPU is stored once."""
        self._queue_change("acquired", change)

    def released(self, change: PoolChange) -> None:
        """Queue an event for a GPU that was given back."""
        self._queue_change("released", change)

    def lost(self, change: PoolChange) -> None:
        """Queue an event for a GPU whose reservation vanished without a release."""
        self._queue_change("lost", change)

    async def run(self) -> None:
        """Publish queued events; returns only by cancellation, after those that the bus takes within `LAST_S`."""
        try:
            await self._run()
        finally:
            await self._publish_last()

    async def _run(self) -> None:
        while True:
            heed_cancellation()
            await self._filled.wait()
            left = len(self._queue)
            while left > 0 and (batch := self._next_batch()):
                self._under_way = batch
                await self._publish(batch)
                heed_cancellation()
                self._under_way = []
                left -= len(batch)
            if not self._queue:
                self._filled.clear()
            await asyncio.sleep(GATHER_S)  # later events gather

    async def _publish_last(self) -> None:
        """Publish the events under way and those in the queue; count and log those that the bus does not take."""
        # On Python 3.11.2 `asyncio.timeout` cannot end by itself in a task that was cancelled.
        sending = asyncio.create_task(self._send_last(), name="last placement events")
        await asyncio.wait([sending], timeout=LAST_S)
        sending.cancel()
        if lost := len(self._under_way) + len(self._queue):
            self._metrics.unpublished.inc(lost)
            log.warning("the placer ends, and the bus has not taken its last placement events", events=lost)

    async def _send_last(self) -> None:
        while batch := self._under_way or self._next_batch():
            self._under_way = batch
            self._under_way = list(await self._send(batch))
            if self._under_way:
                return  # the bus is away

    def _next_batch(self) -> list[_Event]:
        """Take the oldest events from the queue, up to the second event of a pod."""
        batch: dict[PodUid, _Event] = {}
        while self._queue and len(batch) < AT_ONCE and self._queue[0].pod not in batch:
            event = self._queue.popleft()
            batch[event.pod] = event
        return list(batch.values())

    def _queue_event(self, decided: Decided, placement: Placement) -> None:
        event_id = fact_id(
            decided, placement.pod, placement.node, sorted(placement.gpus.items()), placement.reason
        )
        time = rfc3339(datetime.now(UTC))
        message = encode(f"pod.{decided}", event_id, SOURCE, time, placement)
        self._put(_Event(placement.pod, pod_subject(decided), event_id, message))

    def _queue_change(self, what: str, change: PoolChange) -> None:
        event_id = fact_id("pool", what, change.reservation, change.gpu)
        message = encode(f"pool.{what}", event_id, SOURCE, rfc3339(datetime.now(UTC)), change)
        self._put(_Event(change.reservation, pool_subject(what), event_id, message))

    def _put(self, event: _Event) -> None:
        if len(self._queue) == self._queue.maxlen:
            self._metrics.unpublished.inc()
            log.warning("the queue of placement events is full, the oldest is dropped")
        self._queue.append(event)
        self._filled.set()
        self.on_event(event.id, event.message)

    async def _publish(self, events: list[_Event]) -> None:
        """Publish events together, and again those that failed, until the stream has all of them."""
        pauses = Pauses()
        while failed := await self._send(events):
            heed_cancellation()
            error = next(iter(failed.values()))
            log.warning(
                "placement events wait for the bus",
                events=len(failed),
                error=f"{type(error).__name__}: {error}",
            )
            await asyncio.sleep(pauses.next_s())
            await self._ensure_stream()
            events = list(failed)

    async def _send(self, events: list[_Event]) -> dict[_Event, Exception]:
        """Send events, all before the first answer is read; returns those without an acknowledgement in time."""
        answers: dict[_Event, asyncio.Future[PubAck]] = {}
        problem: Exception = TimeoutError("no acknowledgement in time")
        try:
            async with asyncio.timeout(REQUEST_S):
                for event in events:
                    headers = {Header.MSG_ID.value: event.id}
                    answers[event] = await self._jetstream.publish_async(
                        event.subject, event.message, headers=headers
                    )
                for answer in answers.values():
                    if not answer.done():  # nearly all come together
                        await asyncio.wait([answer])
        except nats.errors.Error as error:
            problem = error
        except TimeoutError:
            pass
        finally:
            failed = {event: why for event in events if (why := _failure(answers.get(event), problem))}
        return failed

    async def _ensure_stream(self) -> None:
        try:
            await self._stream.ensure(self._jetstream)
        except (nats.errors.Error, TimeoutError) as error:
            log.info("the stream cannot be checked yet", error=f"{type(error).__name__}: {error}")


def _failure(answer: "asyncio.Future[PubAck] | None", problem: Exception) -> Exception | None:
    """Why an event has no acknowledgement; None if it has one. A pending answer is cancelled."""
    if answer is None or answer.cancel() or answer.cancelled():  # else the client would remember it for ever
        return problem
    error = answer.exception()
    return error if isinstance(error, Exception) else None
