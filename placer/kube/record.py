"""Reports decisions to people through the API server: events and the `PodScheduled` condition.

One worker behind a bounded queue writes them, so that a slow API server never slows a decision. What always holds: a
condition is patched only on change, and only if the pod is unchanged since the decision (a late `False` must not
overwrite what the bind wrote). The same news of the same pod is one event with a count, not many. News that could not
be written is logged, and written again with the next attempt.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NoReturn

import structlog

from plimsoll.contract import SCHEDULER_NAME
from plimsoll.ids import PodUid
from plimsoll.kube.client import ConflictError, NotFoundError, PatchKind, Transport
from plimsoll.kube.models import Pod, PodCondition
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import PlimsollError
from plimsoll.part.times import rfc3339

NOTE_CHARS: Final = 1024
"""The API's limit on an event's note."""
QUEUE_LENGTH: Final = 2000
"""News that may wait. A full queue drops and logs the newest; a waiting pod gets its news at the next attempt."""
REMEMBERED_EVENTS: Final = 4000
"""Events whose repeats are counted; the oldest is dropped first, and its repeat becomes a new event."""


@dataclass(frozen=True, slots=True)
class News:
    """News of one pod.

    Attributes:
        pod: the pod as the decision read it.
        reason: `Scheduled` or `FailedScheduling`.
        note: the text for people.
        condition: the `reason` of a `PodScheduled: False` condition, or None if the pod was bound.
    """

    pod: Pod
    reason: str
    note: str
    condition: str | None


@dataclass(slots=True)
class _WrittenEvent:
    """An event that was written, whose count rises when it happens again."""

    path: str
    count: int
    written_s: float


EventKey = tuple[PodUid, str, str]


@dataclass(slots=True)
class Recorder:
    """Writes news; `run` is its worker.

    Attributes:
        transport: the connection to the API server.
        instance: the name of this placer, for people (`reportingInstance`).
        clock: the wall clock in UTC.
        series_every_s: the shortest time between two writes of an event's count, in seconds. Repeats count at once.
    """

    transport: Transport
    instance: str
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    series_every_s: float = 60.0
    _waiting: asyncio.Queue[News] = field(default_factory=lambda: asyncio.Queue(QUEUE_LENGTH))
    _written: OrderedDict[EventKey, _WrittenEvent] = field(default_factory=OrderedDict)

    def record(self, news: News) -> None:
        """Queue news; returns at once."""
        try:
            self._waiting.put_nowait(news)
        except asyncio.QueueFull:
            structlog.get_logger().error("news dropped", pod=_name(news.pod), reason=news.reason)

    async def run(self) -> NoReturn:
        """Write queued news until cancelled."""
        while True:
            heed_cancellation()
            news = await self._waiting.get()
            for write in (self._write_condition, self._write_event):
                try:
                    await write(news)
                except PlimsollError as error:
                    structlog.get_logger().warning(
                        "news not written", pod=_name(news.pod), reason=news.reason, error=str(error)
                    )

    async def _write_condition(self, news: News) -> None:
        if news.condition is None:
            return
        known = _scheduled_condition(news.pod)
        if known is not None and (known.status, known.reason, known.message) == (
            "False",
            news.condition,
            news.note,
        ):
            return
        condition: dict[str, object] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": news.condition,
            "message": news.note,
        }
        if known is None or known.status != "False":
            condition["lastTransitionTime"] = self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        meta = news.pod.metadata
        body = {
            # Both are preconditions: a pod that was bound, or created anew, since the decision is left alone.
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resourceVersion},
            "status": {"conditions": [condition]},
        }
        path = f"/api/v1/namespaces/{meta.namespace}/pods/{meta.name}/status"
        try:
            await self.transport.patch(path, body, PatchKind.STRATEGIC)
        except (ConflictError, NotFoundError) as error:
            structlog.get_logger().info(
                "pod changed since the decision", pod=_name(news.pod), error=str(error)
            )

    async def _write_event(self, news: News) -> None:
        key = (PodUid(news.pod.metadata.uid), news.reason, news.note)
        written = self._written.get(key)
        if written is not None:
            written.count += 1
            if asyncio.get_running_loop().time() - written.written_s < self.series_every_s:
                return
            if await self._write_count(written):
                return
        await self._write_new_event(news, key)

    async def _write_count(self, event: _WrittenEvent) -> bool:
        """Write how often an event happened; False if the API server has deleted the event."""
        series = {"count": event.count, "lastObservedTime": rfc3339(self.clock())}
        try:
            await self.transport.patch(event.path, {"series": series}, PatchKind.MERGE)
        except NotFoundError:
            return False
        event.written_s = asyncio.get_running_loop().time()
        return True

    async def _write_new_event(self, news: News, key: EventKey) -> None:
        name = f"{news.pod.metadata.name}.{secrets.token_hex(8)}"
        path = f"/apis/events.k8s.io/v1/namespaces/{news.pod.metadata.namespace}/events"
        await self.transport.post(path, self._event(news, name))
        self._written[key] = _WrittenEvent(f"{path}/{name}", 1, asyncio.get_running_loop().time())
        self._written.move_to_end(key)
        while len(self._written) > REMEMBERED_EVENTS:
            self._written.popitem(last=False)

    def _event(self, news: News, name: str) -> dict[str, Any]:
        meta = news.pod.metadata
        scheduled = news.condition is None
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": meta.namespace},
            "eventTime": rfc3339(self.clock()),
            "type": "Normal" if scheduled else "Warning",
            "reason": news.reason,
            "action": "Binding" if scheduled else "Scheduling",
            "note": truncated(news.note),
            "regarding": {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": meta.namespace,
                "name": meta.name,
                "uid": meta.uid,
                "resourceVersion": meta.resourceVersion,
            },
            "reportingController": SCHEDULER_NAME,
            "reportingInstance": self.instance,
        }


def truncated(note: str) -> str:
    """Cut a note to the API's limit, which counts bytes."""
    raw = note.encode()
    if len(raw) <= NOTE_CHARS:
        return note
    return raw[: NOTE_CHARS - 3].decode("utf-8", "ignore") + "..."


def _scheduled_condition(pod: Pod) -> PodCondition | None:
    return next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
