"""A faithful local image of one kind of object: list, then watch, for ever, whatever the network does.

Neither the generated client's watch nor any other Python client's survives all of these: a stream that ends at once,
a half-open connection, 410, and a proxy's HTML. What always holds here: every object that was added is deleted
exactly once, also if it vanished between two watches (a new list is compared with the known objects). An object that
cannot be read is logged by name and stops nothing. Requests to an unhealthy server come ever more slowly.
"""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final, Generic, NoReturn, Protocol, TypeVar

import msgspec

from plimsoll.kube.models import Named, ObjectMeta, Page
from plimsoll.kube.pages import pieces
from plimsoll.kube.transport import ApiError, GoneError, Query, TransientError, Transport, status_error
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

PAGE_SIZE: Final = 500
"""client-go's page size: a page decodes in about 10 ms, so the loop is never blocked for long."""
LONGEST_RETRY_AFTER_S: Final = 120.0
"""The longest pause that a server's `Retry-After` can cause."""
QUIET_S: Final = 0.2
"""The time that `catch_up` gives a watch to report its version. In a busy cluster the next change shows that."""


class KubeObject(Protocol):
    """An object that can be watched."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""


T = TypeVar("T", bound=KubeObject)
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Added(Generic[T]):
    """An object is new."""

    item: T


@dataclass(frozen=True, slots=True)
class Modified(Generic[T]):
    """A known object changed; `old` is its last known form."""

    item: T
    old: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """A known object is gone; `item` is its last known form."""

    item: T


@dataclass(frozen=True, slots=True)
class Synced:
    """A whole list was taken in: every existing object was emitted."""


Change = Added[T] | Modified[T] | Deleted[T] | Synced


@dataclass(frozen=True, slots=True)
class Timing:
    """The timeouts and pauses of a reflector.

    Attributes:
        watch_s: the server ends a watch after a random time in this range, so that the watches of many clients do
            not all return at once.
        read_deadline_s: a watch silent for longer counts as half-open. The server sends a bookmark about every
            minute.
        first_pause_s, longest_pause_s: bounds of the pause after a failure, see `Pauses`.
        healthy_after_s: a stream that lived this long resets the count of failures.
        live_after_s: a watch counts as live from its first event on. A watch without an event counts as live once
            it has been open for this long, because nothing may happen in a quiet cluster.
    """

    watch_s: tuple[float, float] = (240.0, 480.0)
    read_deadline_s: float = 150.0
    first_pause_s: float = 0.6
    longest_pause_s: float = 30.0
    healthy_after_s: float = 5.0
    live_after_s: float = 1.0

    def pauses(self) -> Pauses:
        """The pauses between attempts."""
        return Pauses(self.first_pause_s, self.longest_pause_s)


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Readable(msgspec.Struct, Generic[T], frozen=True):
    """An event whose object has the kind that is watched: decoded in one pass."""

    type: str
    object: T


@dataclass(slots=True)
class Reflector(Generic[T]):
    """Watches one collection and emits each change.

    Attributes:
        transport: the transport to the API server.
        path: the collection (`/api/v1/pods`).
        kind: the model to decode into.
        emit: called with each change in order, from within `run`; must not block. Its exceptions end `run`.
        query: selectors (`fieldSelector`, `labelSelector`), or nothing.
    """

    transport: Transport
    path: str
    kind: type[T]
    emit: Callable[[Change[T]], None]
    query: Query = ()
    timing: Timing = Timing()
    _known: dict[Key, T] = field(default_factory=dict)
    _version: str = ""  # where the next watch begins; empty: list first
    _pauses: Pauses = field(init=False)
    _is_healthy: bool = False  # the last watch lived long enough
    _logged: str = ""  # the last failure in the log
    _opened_s: float | None = None  # when the open watch was opened, or -inf once it has delivered an event
    _current_s: float = -math.inf  # when a list or a live watch last showed the present state
    _moved: asyncio.Event = field(default_factory=asyncio.Event)
    _turn: asyncio.Timeout | None = None  # of a watch or the pause after it; None during a list
    _readable: msgspec.json.Decoder[_Readable[T]] = field(init=False)

    def __post_init__(self) -> None:
        self._pauses = self.timing.pauses()
        self._readable = msgspec.json.Decoder(_Readable[self.kind])  # type: ignore[name-defined]

    async def run(self) -> NoReturn:
        """List and watch until cancelled. Failures of the server are logged, and then retried."""
        while True:
            heed_cancellation()
            self._turn = turn = asyncio.timeout(None)
            try:
                async with turn:
                    await self._list_and_watch()
            except TimeoutError:
                if not turn.expired():
                    raise
                self._version = ""  # `_refresh` wants a list now
                self._pauses.reset()

    def broken_s(self) -> float:
        """Seconds since a list ended or a live watch broke; 0 while a watch is live, infinite before the first list.

        A watch that opens and ends again without any event is not live, see `Timing.live_after_s`.
        """
        now_s = asyncio.get_running_loop().time()
        return 0.0 if self._is_live(now_s) else now_s - self._current_s

    async def catch_up(self, version: int | None = None) -> None:
        """Return once each change was emitted that the API server had stored when this was called.

        A watch on which nothing happens does not show how far it is; the collection is then listed again. Retries
        until the API server answers. Only one task may call this at a time.

        Args:
            version: the resourceVersion of a change of this collection: only the changes up to this one matter.
        """
        newest = await self._newest() if version is None else version
        while not await self._passes(newest):
            self._refresh()

    async def _list_and_watch(self) -> None:
        pause_s = 0.0
        # Each attempt counts as a failure until it has proved healthy: a stream that ends at once, without an
        # error, must not be opened again in a tight loop.
        self._is_healthy = False
        is_listed = not self._version
        try:
            if is_listed:
                await self._list()
            await self._watch()
        except GoneError as error:
            self._version = ""
            self._log(error)
            if not is_listed:
                return  # A server that has restarted answers the first watch so. A pause would only delay the list.
        except ApiError as error:
            pause_s = getattr(error, "retry_after_s", None) or 0.0
            self._log(error)
        least_s = 0.0 if self._is_healthy else self._pauses.next_s()
        # The server may have asked for a longer pause in `Retry-After`.
        await asyncio.sleep(max(least_s, min(pause_s, LONGEST_RETRY_AFTER_S)))

    async def _newest(self) -> int:
        """The version of the whole collection as the API server has it now."""
        pauses = self.timing.pauses()
        while True:
            heed_cancellation()
            try:
                page = await self._page("", limit=1)
            except ApiError as error:
                self._log(error)
                await asyncio.sleep(pauses.next_s())  # the API server is away
            else:
                return int(page.metadata.resourceVersion)

    async def _passes(self, version: int) -> bool:
        """Wait for `QUIET_S` at most until everything up to this version was emitted."""
        try:
            async with asyncio.timeout(QUIET_S):
                while not (self._version and int(self._version) >= version):
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True

    def _refresh(self) -> None:
        """End the watch, or the pause before the next one, and list anew. A list under way goes on."""
        if self._turn is not None and not self._turn.expired():
            self._turn.reschedule(asyncio.get_running_loop().time())

    def _log(self, error: ApiError) -> None:
        """Log a failure, unless it is the same as the last one, or the client has logged it for all requests."""
        is_news = str(error) != self._logged
        self._logged = str(error)
        if is_news and not error.is_logged:
            get_logger().warning("watch interrupted", path=self.path, error=str(error))

    async def _list(self) -> None:
        """Take in the whole collection and emit its differences from the known objects."""
        turn, self._turn = self._turn, None
        try:
            await self._list_pages()
        finally:
            self._turn = turn

    async def _list_pages(self) -> None:
        present: set[Key] = set()
        version, more = "", ""
        while True:
            page = await self._page(more)
            for piece in pieces(page.items or ()):
                for document in piece:
                    self._take_listed(document, present)
                await asyncio.sleep(0)  # other tasks run between two pieces
            version, more = page.metadata.resourceVersion, page.metadata.more
            if not more:
                break
        for key in self._known.keys() - present:
            self.emit(Deleted(self._known.pop(key)))
        self._version = version
        self._current_s = asyncio.get_running_loop().time()
        self.emit(Synced())
        self._moved.set()

    async def _page(self, more: str, limit: int = PAGE_SIZE) -> Page:
        query = [*self.query, ("limit", str(limit))]
        if more:
            query.append(("continue", more))
        body = await self.transport.get(self.path, query)
        try:
            return msgspec.json.decode(body, type=Page)
        except msgspec.MsgspecError as error:
            raise TransientError(f"list {self.path}: no list came, but {body[:80]!r}") from error

    def _take_listed(self, document: msgspec.Raw, present: set[Key]) -> None:
        item = self._decoded(document, present)
        if item is not None:
            self._take(item)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        query = [
            *self.query,
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", self._version),
            ("timeoutSeconds", str(round(random.uniform(*self.timing.watch_s)))),  # noqa: S311 - jitter, no secret
        ]
        async with self.transport.stream(self.path, query, self.timing.read_deadline_s) as lines:
            self._opened_s = opened_s = loop.time()
            try:
                await self._follow(lines)
            finally:
                self._closed(opened_s, loop.time())

    def _closed(self, opened_s: float, now_s: float) -> None:
        """Take in that a watch is not open any more."""
        if self._is_live(now_s):
            self._current_s = now_s
        self._opened_s = None
        if now_s - opened_s >= self.timing.healthy_after_s:
            self._is_healthy, self._logged = True, ""
            self._pauses.reset()

    def _is_live(self, now_s: float) -> bool:
        return self._opened_s is not None and now_s - self._opened_s >= self.timing.live_after_s

    async def _follow(self, lines: AsyncIterator[bytes]) -> None:
        async for line in lines:
            try:
                readable = self._readable.decode(line)
            except msgspec.MsgspecError:
                self._take_line(line)
                continue
            if readable.type in ("ADDED", "MODIFIED"):  # as nearly all are
                self._take(readable.object)
                self._passed(readable.object.metadata.resourceVersion)
            else:
                self._take_line(line)

    def _take_line(self, line: bytes) -> None:
        """Take any event in: also a bookmark, an error, and an object that cannot be read."""
        try:
            event = msgspec.json.decode(line, type=_Event)
        except msgspec.MsgspecError as error:
            raise TransientError(f"watch {self.path}: no event, but {line[:80]!r}") from error
        if event.type == "ERROR":
            raise status_error(event.object, f"watch {self.path}")
        if event.type not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
            raise TransientError(f"watch {self.path}: unknown event {event.type!r}")
        named = self._named(event.object)
        if event.type == "DELETED":
            self._drop(_key(named))
        elif event.type != "BOOKMARK" and (item := self._decoded(event.object, set())) is not None:
            self._take(item)
        self._passed(named.resourceVersion)

    def _passed(self, version: str) -> None:
        """Note an event that was taken in; if an exception came before, the next watch delivers it again."""
        self._version = version or self._version
        self._opened_s = -math.inf  # the watch has shown that it delivers events
        self._moved.set()

    def _decoded(self, document: msgspec.Raw, present: set[Key]) -> T | None:
        """Decode an object and add its key to `present`. An unreadable one is logged by name, and gives None."""
        try:
            item = msgspec.json.decode(document, type=self.kind)
        except msgspec.MsgspecError as error:
            named = self._named(document)
            present.add(_key(named))  # the object exists: its known form stays
            get_logger().error(
                "object cannot be read",
                path=self.path,
                namespace=named.namespace,
                name=named.name,
                error=str(error),
            )
            return None
        present.add(_key(item.metadata))
        return item

    def _named(self, document: msgspec.Raw) -> ObjectMeta:
        try:
            return msgspec.json.decode(document, type=Named).metadata
        except msgspec.MsgspecError as error:
            raise TransientError(f"{self.path}: no object, but {bytes(document)[:80]!r}") from error

    def _take(self, item: T) -> None:
        key = _key(item.metadata)
        old = self._known.get(key)
        if old is not None and old.metadata.uid != item.metadata.uid:
            # Between two watches the object was deleted, and another was made under the same name.
            self.emit(Deleted(self._known.pop(key)))
            old = None
        self._known[key] = item
        if old is None:
            self.emit(Added(item))
        elif old.metadata.resourceVersion != item.metadata.resourceVersion:
            self.emit(Modified(item, old))

    def _drop(self, key: Key) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self.emit(Deleted(known))


def _key(named: ObjectMeta) -> Key:
    return (named.namespace, named.name)
