"""The events about pods that people read in the cluster: one for each news of a pod, with a count.

What always holds: the same news of the same pod is one event, as long as it is remembered.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from plimsoll.contract import SCHEDULER_NAME
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.names import fitted_name
from plimsoll.kube.transport import ConflictError, NotFoundError, PatchKind, TransientError, Transport
from plimsoll.part.times import rfc3339

NOTE_BYTES: Final = 1024
"""The API's limit on an event's note. Conditions and placement events are cut at the same length."""

REMEMBERED_EVENTS: Final = 4000
"""Events whose repeats are counted; the oldest is dropped first, and its repeat becomes a new event."""

ACTIONS: Final = {
    "Scheduled": "Binding",
    "FailedScheduling": "Scheduling",
    "Preempted": "DefaultPreemption",
    "NominationGivenUp": "Scheduling",
    "RelocationPlanned": "Relocator",
    "Relocated": "Relocator",
    "Resized": "Resizing",
    "HeldByNothing": "Reporting",
    "LinePassed": "Reporting",
    "Evicted": "Evicting",
    "EvictionRefused": "Evicting",
}
"""The action of an event, by its reason; the first three as kube-scheduler has them."""

NORMAL: Final = frozenset({"Scheduled", "Preempted", "RelocationPlanned", "Relocated", "Resized"})
"""The reasons of events that are no warnings."""


@dataclass(frozen=True, slots=True)
class PodNews:
    """News of one pod.

    Attributes:
        pod: the pod as the decision read it.
        reason: one of `ACTIONS`.
        note: the text for people.
        condition: the `reason` of a `PodScheduled: False` condition; None for a pod that has a node.
        related: for a victim of preemption, or a pod that moves, the pod that gets its room.
    """

    pod: Pod
    reason: str
    note: str
    condition: str | None
    related: Pod | None = None


@dataclass(slots=True)
class _WrittenEvent:
    """An event that was written, whose count rises when it happens again."""

    path: str
    count: int
    written_s: float


EventKey = tuple[PodUid, str, str]


@dataclass(slots=True)
class PodEvents:
    """Writes events about pods, one write at a time for each pod.

    Attributes:
        transport: the connection to the API server.
        instance: the name of this placer, for people (`reportingInstance`).
        clock: the wall clock in UTC.
        series_every_s: the shortest time between two writes of an event's count, in seconds. Repeats count at once.
    """

    transport: Transport
    instance: str
    clock: Callable[[], datetime]
    series_every_s: float
    _written: OrderedDict[EventKey, _WrittenEvent] = field(default_factory=OrderedDict)

    async def write(self, news: PodNews, count: int, ending: str) -> None:
        """Write an event, or that it happened again.

        Args:
            news: the news that the event reports.
            count: how often it has come since it was last written.
            ending: the ending of the event's name; the same in each try, so that an event is written once.

        Raises:
            ApiError: the API server is away, or refuses the event. The same again does no harm.
        """
        key = (PodUid(news.pod.metadata.uid), news.reason, news.note)
        written = self._written.get(key)
        if written is None:
            await self._write_new(news, ending, key, count)
            return
        written.count += count
        if asyncio.get_running_loop().time() - written.written_s < self.series_every_s:
            return
        try:
            is_there = await self._write_count(written)
        except TransientError:
            written.count -= count  # this news is counted again when it is written
            raise
        if not is_there:
            await self._write_new(news, ending, key, 1)

    async def _write_count(self, event: _WrittenEvent) -> bool:
        """Write how often an event happened; False if the API server has deleted the event."""
        series = {"count": event.count, "lastObservedTime": rfc3339(self.clock())}
        try:
            await self.transport.patch(event.path, {"series": series}, PatchKind.MERGE)
        except NotFoundError:
            return False
        event.written_s = asyncio.get_running_loop().time()
        return True

    async def _write_new(self, news: PodNews, ending: str, key: EventKey, count: int) -> None:
        name = fitted_name(f"{news.pod.metadata.name}.{ending}")
        path = f"/apis/events.k8s.io/v1/namespaces/{news.pod.metadata.namespace}/events"
        event = self._event(news, name)
        if count > 1:
            event["series"] = {"count": count, "lastObservedTime": event["eventTime"]}
        with contextlib.suppress(ConflictError):  # an earlier attempt arrived
            await self.transport.post(path, event)
        self._written[key] = _WrittenEvent(f"{path}/{name}", count, asyncio.get_running_loop().time())
        self._written.move_to_end(key)
        while len(self._written) > REMEMBERED_EVENTS:
            self._written.popitem(last=False)

    def _event(self, news: PodNews, name: str) -> dict[str, Any]:
        meta = news.pod.metadata
        event: dict[str, Any] = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": meta.namespace},
            "eventTime": rfc3339(self.clock()),
            "type": "Normal" if news.reason in NORMAL else "Warning",
            "reason": news.reason,
            "action": ACTIONS[news.reason],
            "note": cut(news.note),
            "regarding": _reference(news.pod),
            "reportingController": SCHEDULER_NAME,
            "reportingInstance": self.instance,
        }
        if news.related is not None:
            event["related"] = _reference(news.related)
        return event


def cut(note: str) -> str:
    """Cut a text for people to the API's limit, which counts bytes."""
    raw = note.encode()
    if len(raw) <= NOTE_BYTES:
        return note
    return raw[: NOTE_BYTES - 3].decode("utf-8", "ignore") + "..."


def _reference(pod: Pod) -> dict[str, str]:
    meta = pod.metadata
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": meta.namespace,
        "name": meta.name,
        "uid": meta.uid,
        "resourceVersion": meta.resourceVersion,
    }
