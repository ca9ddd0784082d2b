"""Reports decisions to people through the API server: events and the `PodScheduled` condition.

Several writers write the news of different pods at once, and the news of one pod in order. While pods are being bound
only one of them writes: a pod starts once it is bound, and its news may be some seconds late. A slow API server never
slows a decision: newer refusals of a pod then replace those that wait, so that each pod has a few news at most, and
a `Scheduled` is never replaced. What always holds: a condition is patched only on change, and never over a bind.
While the API server is away, news waits. News that it refuses, or answers with errors for `ERRORS_S`, is logged and
counted.
"""

import asyncio
import contextlib
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NoReturn

import msgspec

from placer.metrics import Metrics
from placer.scheduler.reporting.condition import POD_SCHEDULED, scheduled_condition
from placer.scheduler.reporting.pod_events import REMEMBERED_EVENTS, PodEvents, PodNews, cut
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod, PodCondition, decode_pod
from plimsoll.kube.transport import (
    ApiError,
    ConflictError,
    NotFoundError,
    PatchKind,
    TransientError,
    Transport,
)
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import PlimsollError
from plimsoll.part.log import get_logger

WRITERS: Final = 8
"""Writes under way at once while no pod is being bound."""
MOST_PUT_OFF: Final = 5000
"""The most pods whose news waits for binds. With more, all writers write."""
PUT_OFF_PAUSE_S: Final = 0.03
"""The pause of the one writer that writes while pods are being bound: 33 news a second at most, a twentieth of the
writes that bind. An Event takes the API server and its store longer than a Binding."""
NEWS_OF_A_POD: Final = 4
"""Different refusals of one pod that may wait."""
WRITES_OF_A_CONDITION: Final = 3
"""Attempts to patch a condition while the pod changes at the same time; the next refusal tries again."""
FORBIDDEN: Final = 403
TRIES_FORBIDDEN: Final = 8
FORBIDDEN_PAUSE_S: Final = 0.05
"""Writes of the same news that the API server may forbid, and a pause that doubles with each. They span 13 s. After
that the rights are missing."""
ERRORS_S: Final = 600.0
"""The time in seconds for which the same news is written again, although the API server answers each write with an
error of its own, such as 500. A server that recovers does so sooner. A webhook that fails for good does not, and
without a bound the news of every pod that it refused would wait for ever."""


@dataclass(slots=True)
class _Pending:
    """News that waits.

    Attributes:
        news: the news.
        count: how often it has come.
        tries: how often its writing has failed.
        since_s: when the API server first answered with an error, on the loop's clock; None if it did not.
        ending: the ending of the event's name, the same in each try.
    """

    news: PodNews
    count: int = 1
    tries: int = 0
    since_s: float | None = None
    ending: str = field(default_factory=lambda: secrets.token_hex(8))

    def may_pass(self, error: PlimsollError) -> bool:
        """Note a try that failed. Returns whether another one may succeed."""
        self.tries += 1
        if not isinstance(error, TransientError):
            return _may_pass(error) and self.tries < TRIES_FORBIDDEN
        if error.status is None:
            return True  # no answer: the API server is away
        now_s = asyncio.get_running_loop().time()
        self.since_s = now_s if self.since_s is None else self.since_s
        return now_s - self.since_s < ERRORS_S


@dataclass(slots=True)
class Recorder:
    """Writes news while `run` runs.

    Attributes:
        transport: the connection to the API server.
        instance: the name of this placer, for people (`reportingInstance`).
        clock: the wall clock in UTC.
        metrics: counts news.
        series_every_s: the shortest time between two writes of an event's count, in seconds. Repeats count at once.
        most_put_off: see `MOST_PUT_OFF`.
    """

    transport: Transport
    instance: str
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    metrics: Metrics = field(default_factory=Metrics)
    series_every_s: float = 60.0
    most_put_off: int = MOST_PUT_OFF
    _binds: int = 0
    _at_once: asyncio.Event = field(default_factory=asyncio.Event)  # set while all writers may write
    _waiting: dict[PodUid, deque[_Pending]] = field(default_factory=dict)
    _ready: asyncio.Queue[PodUid] = field(default_factory=asyncio.Queue)  # the keys of `_waiting`, in turn
    _events: PodEvents = field(init=False)
    _conditions: OrderedDict[PodUid, tuple[str | None, str]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self._events = PodEvents(self.transport, self.instance, self.clock, self.series_every_s)
        self._at_once.set()

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Let most news wait while a pod is being bound, which matters more and uses the same API server."""
        self._binds += 1
        self._regulate()
        try:
            yield
        finally:
            self._binds -= 1
            self._regulate()

    def record(self, news: PodNews) -> None:
        """Queue news; returns at once."""
        uid = PodUid(news.pod.metadata.uid)
        waiting = self._waiting.get(uid)
        if waiting is None:
            self._waiting[uid] = deque([_Pending(news)])
            self._ready.put_nowait(uid)
            self._regulate()
            return
        last = waiting[-1] if waiting else None
        if last is not None and (last.news.reason, last.news.note) == (news.reason, news.note):
            last.news, last.count = news, last.count + 1
            return
        waiting.append(_Pending(news))
        refusals = [one for one in waiting if one.news.condition is not None]
        if len(refusals) > NEWS_OF_A_POD:
            waiting.remove(refusals[0])
            self.metrics.news.coalesced.inc()

    async def run(self) -> None:
        """Write queued news; returns only by cancellation."""
        async with asyncio.TaskGroup() as group:
            for number in range(WRITERS):
                group.create_task(self._write_in_turn(first=number == 0), name=f"kube: record {number}")

    def _regulate(self) -> None:
        """Note how many pods have news, and whether it waits for binds."""
        self.metrics.news.waiting.set(len(self._waiting))
        if self._binds and len(self._waiting) <= self.most_put_off:
            self._at_once.clear()
        else:
            self._at_once.set()

    async def _write_in_turn(self, *, first: bool) -> NoReturn:
        pauses = Pauses()
        while True:
            heed_cancellation()
            if not first:
                await self._at_once.wait()
            elif not self._at_once.is_set():
                await asyncio.sleep(PUT_OFF_PAUSE_S)  # binds go first
            uid = await self._ready.get()
            # The news is taken out, because newer news may replace the news that waits. Meanwhile no other writer
            # gets this pod.
            pending = self._waiting[uid].popleft()
            try:
                await self._write(pending, is_last=not self._waiting[uid])
            except PlimsollError as error:
                if pending.may_pass(error):
                    await self._put_back(uid, pending, error, pauses)
                    continue
                self._drop(pending, error)
            else:
                pauses.reset()
            self._go_on(uid)

    async def _put_back(self, uid: PodUid, pending: _Pending, error: PlimsollError, pauses: Pauses) -> None:
        """Let news wait for another try; returns after a pause while the API server is away."""
        get_logger().warning("news waits", pod=pending.news.pod.full_name, error=str(error))
        self._waiting[uid].appendleft(pending)
        if isinstance(error, TransientError):
            await asyncio.sleep(pauses.next_s())  # the API server is away
            self._ready.put_nowait(uid)
        else:  # perhaps forbidden in this namespace alone, so news of other pods goes on
            pause_s = FORBIDDEN_PAUSE_S * 2**pending.tries
            asyncio.get_running_loop().call_later(pause_s, self._ready.put_nowait, uid)

    def _drop(self, pending: _Pending, error: PlimsollError) -> None:
        """Count and log news that cannot be written."""
        self.metrics.news.dropped.inc()
        get_logger().warning(
            "news not written",
            pod=pending.news.pod.full_name,
            reason=pending.news.reason,
            error=str(error),
        )

    def _go_on(self, uid: PodUid) -> None:
        """Let the next news of a pod be written in its turn, if there is any."""
        if self._waiting[uid]:
            self._ready.put_nowait(uid)
        else:
            del self._waiting[uid]
            self._regulate()

    async def _write(self, pending: _Pending, *, is_last: bool) -> None:
        """Write an event, and before it the condition, unless that of newer news follows at once.

        Raises:
            ApiError: the API server is away, or refuses the event. The same again does no harm.
        """
        refused: PlimsollError | None = None
        if pending.news.condition is not None and is_last:
            try:
                await self._write_condition(pending.news, pending.news.condition)
            except ApiError as error:
                if _may_pass(error):
                    raise
                refused = error
        await self._events.write(pending.news, pending.count, pending.ending)
        if refused is not None:
            raise refused

    async def _write_condition(self, news: PodNews, reason: str) -> None:
        uid, info = PodUid(news.pod.metadata.uid), (reason, cut(news.note))
        pod: Pod | None = news.pod
        for _ in range(WRITES_OF_A_CONDITION):
            if pod is None or pod.metadata.uid != uid or pod.spec.nodeName:
                return  # gone or bound since the decision
            known = scheduled_condition(pod)
            stands = known is not None and (known.status, known.reason, known.message) == ("False", *info)
            # The pod may have been read before the last write.
            if stands and self._conditions.get(uid, info) == info:
                return
            try:
                await self._patch_condition(pod, known, info)
            except ConflictError:
                pod = await self._read(news.pod)
                self._conditions.pop(uid, None)
            except NotFoundError:
                return
            else:
                self._conditions[uid] = info
                if len(self._conditions) > REMEMBERED_EVENTS:
                    self._conditions.popitem(last=False)
                return
        get_logger().info("the pod changes too often for its condition", pod=news.pod.full_name)

    async def _patch_condition(self, pod: Pod, known: PodCondition | None, info: tuple[str, str]) -> None:
        condition: dict[str, object] = {
            "type": POD_SCHEDULED,
            "status": "False",
            "reason": info[0],
            "message": info[1],
        }
        if known is None or known.status != "False":
            condition["lastTransitionTime"] = self.clock().strftime("%Y-%m-%dT%H:%M:%SZ")
        body = {
            # Both are preconditions: a pod that was bound, or created anew, since it was read is left alone.
            "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resourceVersion},
            "status": {"conditions": [condition]},
        }
        await self.transport.patch(f"{pod.path}/status", body, PatchKind.STRATEGIC)

    async def _read(self, pod: Pod) -> Pod | None:
        try:
            return decode_pod(await self.transport.get(pod.path))
        except NotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise TransientError(f"{pod.path} cannot be read: {error}") from error


def _may_pass(error: PlimsollError) -> bool:
    """Whether the same write may succeed later: a server refuses all until it has read its roles."""
    return isinstance(error, TransientError) or (isinstance(error, ApiError) and error.status == FORBIDDEN)
