"""What people are told of a pod's fate through the API server: events and the `PodScheduled` condition.

Told by one worker behind a bounded queue, so that a slow API server never slows a decision. What always holds: a
condition is patched only on change and only if the pod is unchanged since the decision (a late `False` must not
overwrite what the bind wrote); the same news of the same pod is one event that counts, not many; what could not be
told is logged, and told again with the next attempt.
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
from plimsoll.part.errors import PlimsollError
from plimsoll.part.times import rfc3339

NOTE_CHARS: Final = 1024
"""The API's limit on an event's note."""
QUEUE_LENGTH: Final = 2000
"""News that waits; when full, the newest is dropped and logged. A pod that waits is told at its next attempt."""
REMEMBERED_EVENTS: Final = 4000


@dataclass(frozen=True, slots=True)
class News:
    """What is told of one pod.

    Attributes:
        pod: as it was when decided.
        reason: `Scheduled` or `FailedScheduling`.
        note: for people.
        condition: `reason` of a `PodScheduled: False` condition, or None if the pod was bound.
    """

    pod: Pod
    reason: str
    note: str
    condition: str | None


@dataclass(slots=True)
class _Told:
    """An event that was written, to be counted on when it happens again."""

    path: str
    count: int
    written_s: float


EventKey = tuple[PodUid, str, str]


@dataclass(slots=True)
class Recorder:
    """Tells news; `run` is its worker.

    Attributes:
        instance: which placer, for people (`reportingInstance`).
        series_every_s: how often repeats of an event are written at most; they are counted at once.
        clock: wall clock in UTC.
    """

    transport: Transport
    instance: str
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    series_every_s: float = 60.0
    _waiting: asyncio.Queue[News] = field(default_factory=lambda: asyncio.Queue(QUEUE_LENGTH))
    _told: OrderedDict[EventKey, _Told] = field(default_factory=OrderedDict)

    def tell(self, news: News) -> None:
        """Queue news; never waits."""
        try:
            self._waiting.put_nowait(news)
        except asyncio.QueueFull:
            structlog.get_logger().error("news dropped", pod=_name(news.pod), reason=news.reason)

    async def run(self) -> NoReturn:
        """Tell queued news until cancelled."""
        while True:
            news = await self._waiting.get()
            for telling in (self._tell_condition, self._tell_event):
                try:
                    await telling(news)
                except PlimsollError as error:
                    structlog.get_logger().warning(
                        "not told", pod=_name(news.pod), reason=news.reason, error=str(error)
                    )

    async def _tell_condition(self, news: News) -> None:
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
            # Both are preconditions: a pod that was bound, or made anew, since the decision is left alone.
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

    async def _tell_event(self, news: News) -> None:
        key = (PodUid(news.pod.metadata.uid), news.reason, news.note)
        told = self._told.get(key)
        if told is not None:
            told.count += 1
            if asyncio.get_running_loop().time() - told.written_s < self.series_every_s:
                return
            if await self._count_on(told):
                return
        await self._write_event(news, key)

    async def _count_on(self, told: _Told) -> bool:
        """Write how often an event happened by now; False if it is not there any more."""
        series = {"count": told.count, "lastObservedTime": rfc3339(self.clock())}
        try:
            await self.transport.patch(told.path, {"series": series}, PatchKind.MERGE)
        except NotFoundError:
            return False
        told.written_s = asyncio.get_running_loop().time()
        return True

    async def _write_event(self, news: News, key: EventKey) -> None:
        name = f"{news.pod.metadata.name}.{secrets.token_hex(8)}"
        path = f"/apis/events.k8s.io/v1/namespaces/{news.pod.metadata.namespace}/events"
        await self.transport.post(path, self._event(news, name))
        self._told[key] = _Told(f"{path}/{name}", 1, asyncio.get_running_loop().time())
        self._told.move_to_end(key)
        while len(self._told) > REMEMBERED_EVENTS:
            self._told.popitem(last=False)

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
    """A note cut to the API's limit, which counts bytes."""
    raw = note.encode()
    if len(raw) <= NOTE_CHARS:
        return note
    return raw[: NOTE_CHARS - 3].decode("utf-8", "ignore") + "..."


def _scheduled_condition(pod: Pod) -> PodCondition | None:
    return next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
