"""The last events of the cluster in a few words, for the live page.

What always holds: no decision reads them, and their number is bounded. Events are read as they come, not from the
stream, so those from before the placer's start, or of a time without NATS, are not known. Reports, which carry the
events of tasks, come from the placer's intake.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import msgspec
import nats.errors
from msgspec import Struct
from nats.aio.client import Client
from nats.aio.msg import Msg

from placer.live.pods import PodName
from plimsoll.envelope import TYPE_PREFIX, CloudEvent, decode_event, fact_id
from plimsoll.events import Report, Task
from plimsoll.ids import PodUid
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger
from plimsoll.placer_api.live import News
from plimsoll.quantity import format_bytes

KEPT: Final = 200
"""Events that are kept, some 100 KiB, and shown at most."""

LONGEST_TEXT: Final = 300
"""The most characters of an event's text."""

PENDING_AT_MOST: Final = 10_000
"""Events that may wait to be read; the client library drops more."""

TOGETHER: Final = 64
"""Events that are read before other tasks run: some 2 ms."""

AGAIN_S: Final = 1.0
"""The pause in seconds after events could not be read: NATS is away."""

SUBJECTS: Final = ("plimsoll.v1.limit.*.*", "plimsoll.v1.gpu.*.*", "plimsoll.v1.pod.*", "plimsoll.v1.pool.*")

log = get_logger()


class _About(Struct, frozen=True):
    """The object that an event in `SUBJECTS` is about, and why, as far as a line needs it."""

    node: str | None = None
    pod: PodUid | None = None
    namespace: str = ""
    name: str = ""
    reason: str = ""
    container: str = ""


class _Figures(Struct, frozen=True):
    """The figures of an event in `SUBJECTS`, likewise."""

    requested_bytes: int = 0
    used_bytes: int = 0
    line_bytes: int = 0
    free_bytes: int = 0
    waited_s: float = 0.0
    share_pct: int = 0
    used_pct: float = 0.0
    short: bool = False
    index: int | None = None
    health: str = ""
    conditions: tuple[dict[str, object], ...] = ()


class RecentNews:
    """The events, the oldest first.

    Attributes:
        number: that of the last event; each has a number of its own.
    """

    def __init__(self, client: Client, name_of: Callable[[PodUid], PodName | None]) -> None:
        self.number = 0
        self._client, self._name_of = client, name_of
        # By id. A message of this placer is decoded once somebody wants it.
        self._kept: OrderedDict[str, tuple[int, News | bytes]] = OrderedDict()

    async def run(self) -> NoReturn:
        """Read events until cancelled."""
        events: asyncio.Queue[Msg] = asyncio.Queue(PENDING_AT_MOST)

        async def put(message: Msg) -> None:
            if not events.full():
                events.put_nowait(message)

        for subject in SUBJECTS:
            await self._subscribe(subject, put)
        read = 0
        while True:
            heed_cancellation()
            self.note(bytes((await events.get()).data))
            read += 1
            if read % TOGETHER == 0:
                await asyncio.sleep(0)  # decisions and watches run between two pieces

    def since(self, number: int) -> list[News]:
        """The events after this number, the oldest first."""
        wanted = [(event_id, at, known) for event_id, (at, known) in self._kept.items() if at > number]
        found: list[News] = []
        for event_id, at, known in wanted:
            news = self._read(known) if isinstance(known, bytes) else known
            if news is not None:
                self._kept[event_id] = (at, news)
                found.append(news)
        return found

    def note(self, message: bytes) -> None:
        """Take an event in; one that is damaged, or there already, changes nothing."""
        news = self._read(message)
        if news is not None:
            self._keep(news.id, news)

    def note_own(self, event_id: str, message: bytes) -> None:
        """Take in an event about a pod or the pool that this placer publishes, and read it once it is wanted."""
        self._keep(event_id, message)

    def _read(self, message: bytes) -> News | None:
        """An event in a few words; None for a damaged one."""
        try:
            event = decode_event(message)
            about = msgspec.json.decode(event.data, type=_About)
            figures = msgspec.json.decode(event.data, type=_Figures)
        except (InputError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None  # the stream's own readers report damage
        what = event.type.removeprefix(TYPE_PREFIX).removesuffix(".v1")
        name = PodName(about.namespace, about.name) if about.name else self._named(about.pod)
        return News(
            id=event.id,
            time=event.time,
            what=what,
            node=about.node or "",
            namespace=name.namespace,
            name=name.name,
            text=_cut(_text(what, event, about, figures)),
        )

    def note_report(self, report: Report) -> None:
        """Take the event of a task in; a report without one changes nothing."""
        task = report.task
        if task is None:
            return
        fact = fact_id(report.state.node, task.pid, task.start_ticks, task.gpu, task.phase, report.state.time)
        name = self._named(task.pod)
        self._keep(
            fact,
            News(
                id=fact,
                time=report.state.time,
                what=f"task.{task.phase.value}",
                node=report.state.node,
                namespace=name.namespace,
                name=name.name,
                text=_cut(_task_text(task, report)),
            ),
        )

    def _named(self, pod: PodUid | None) -> PodName:
        return (self._name_of(pod) if pod is not None else None) or PodName("", "")

    def _keep(self, event_id: str, news: News | bytes) -> None:
        if event_id in self._kept:
            return
        self.number += 1
        self._kept[event_id] = (self.number, news)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    async def _subscribe(self, subject: str, put: Callable[[Msg], Awaitable[None]]) -> None:
        while True:
            heed_cancellation()
            try:
                await self._client.subscribe(subject, cb=put, pending_msgs_limit=PENDING_AT_MOST)
            except nats.errors.Error as error:
                log.warning("events cannot be read, retrying", error=f"{type(error).__name__}: {error}")
                await asyncio.sleep(AGAIN_S)
            else:
                return


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def _task_text(task: Task, report: Report) -> str:
    index = next((gpu.index for gpu in report.state.gpus if gpu.uuid == task.gpu), None)
    where = f"GPU {index}" if index is not None else task.gpu
    whose = "" if task.pod is not None else f", process {task.pid} of no pod"
    most = f", at most {format_bytes(task.peak_bytes)}" if task.peak_bytes > task.used_bytes else ""
    size = f"{format_bytes(task.used_bytes)} " if task.used_bytes else ""
    return f"{size}on {where}{most}{whose}"


def _text(what: str, event: CloudEvent, about: _About, data: _Figures) -> str:
    size, line, used = map(format_bytes, (data.requested_bytes, data.line_bytes, data.used_bytes))
    match what:
        case "limit.denied":
            text = f"{about.container}: {size} more were refused; it holds {used} of {line}"
        case "limit.paused":
            text = f"{about.container}: waits for {size}"
        case "limit.resumed":
            text = f"{about.container}: got {size} after {data.waited_s:.1f} s"
        case "limit.violated" | "limit.unenforced":
            text = f"{about.container}: holds {used} of {line}"
        case "limit.resized":
            text = f"{about.container}: its line is {line} and {data.share_pct} % of time now"
        case "limit.unmet":
            text = f"{about.container}: got {data.used_pct:.0f} of {data.share_pct} % of time"
        case "gpu.health":
            cause = str(data.conditions[0].get("text", "")) if data.conditions else ""
            text = f"GPU {data.index} is {data.health}" + (f": {cause}" if cause else "")
        case "gpu.pressure":
            free = format_bytes(data.free_bytes)
            text = f"{event.subject or 'GPU'}: {free} free, " + ("short" if data.short else "enough again")
        case "pod.placed":
            text = "placed here"
        case _:
            return about.reason
    return f"{text} ({about.reason})" if about.reason else text
