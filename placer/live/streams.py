"""The live page's stream: to each reader every node once, then what changed, as server-sent events.

What always holds: a reader's state is two numbers and the names of nodes, so a reader that is slow, or stands still,
costs no more memory than that. The next piece is made when the last one was taken, from the newest state. Other tasks
run between two pieces. A reader that takes nothing for `STUCK_S` is cut off, and there are `READERS_AT_MOST`. Readers
that want one whole state, and readers of the owner's socket, have places of their own. A reader that had to prove
itself is judged again each `JUDGED_S`.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from aiohttp import web

from placer.api.access import AGAIN, CannotJudgeError
from placer.live.news import RecentNews
from placer.live.rows import LiveRows
from placer.live.waiting import WaitingSummary
from plimsoll.ids import NodeName
from plimsoll.part.errors import PlimsollError
from plimsoll.placer_api.http import Problem
from plimsoll.placer_api.live import ONCE, Status

PACE_S: Final = 0.25
"""The pause between two checks for changes. People see four changes a second; a burst of events is one message."""

ALIVE_S: Final = 10.0
"""The longest time without a message, so that the page notices a dead connection. It waits three times that."""

RETRY_MS: Final = 2000
"""The pause after which a browser connects again by itself."""

STUCK_S: Final = 60.0
"""The longest time that a reader may take for one message."""

READERS_AT_MOST: Final = 64
"""Pages that may be open at once. More are refused, as anybody who reaches the port may ask."""

ONCE_AT_MOST: Final = 32
"""Readers of one whole state at once, such as `plimsoll pods`."""

ONCE_S: Final = 60.0
"""The longest time for which such a reader may stay. It is done in a second."""

JUDGED_S: Final = 60.0
"""Seconds between two judgements of a reader while its stream is open."""

UNJUDGED_S: Final = 300.0
"""The longest time for which a stream goes on while its reader cannot be judged: people look at the page in outages
of the API server too."""

TOGETHER: Final = 16
"""Nodes of one message: some 2 ms to encode with 8 GPUs each, if all of them changed."""


@dataclass(slots=True)
class _Reader:
    """The knowledge of one reader."""

    response: web.StreamResponse
    nodes: int = 0
    news: int = 0
    removals: int = 0
    known: set[NodeName] = field(default_factory=set)
    last: dict[str, bytes] = field(default_factory=dict)
    wrote_s: float = 0.0

    async def send(self, event: str, data: bytes) -> None:
        """Write a message; JSON has no line breaks, so it is one line.

        Raises:
            ConnectionError, TimeoutError: the reader is gone, or takes nothing.
        """
        async with asyncio.timeout(STUCK_S):
            await self.response.write(b"event: " + event.encode() + b"\ndata: " + data + b"\n\n")
        self.wrote_s = asyncio.get_running_loop().time()

    async def send_changed(self, event: str, data: bytes, now_s: float, alive_s: float) -> None:
        """Write a message if it differs from the last of its kind, or nothing was written for this long."""
        if self.last.get(event) != data or now_s - self.wrote_s >= alive_s:
            self.last[event] = data
            await self.send(event, data)


@dataclass(slots=True)
class _Places:
    """The places of one kind of readers."""

    at_most: int
    kind: str
    taken: int = 0

    def refusal(self) -> web.Response | None:
        """The answer where no place is free, else None."""
        if self.taken < self.at_most:
            return None
        problem = Problem(message=f"{self.taken} {self.kind}; close one, or try again later")
        return web.Response(status=503, body=msgspec.json.encode(problem), content_type="application/json")


@dataclass(slots=True)
class _Judge:
    """Judges a reader again and again; `again` is None for a reader that everybody may be."""

    again: Callable[[], Awaitable[None]] | None
    known_s: float
    next_s: float

    async def refuses(self) -> bool:
        """Whether the reader's stream has to end."""
        now_s = asyncio.get_running_loop().time()
        if self.again is None or now_s < self.next_s:
            return False
        self.next_s = now_s + JUDGED_S
        try:
            await self.again()
        except CannotJudgeError:
            return now_s - self.known_s >= UNJUDGED_S
        except PlimsollError:
            return True
        self.known_s = now_s
        return False


@dataclass(slots=True)
class Streams:
    """Serves readers until `close`.

    Attributes:
        rows: the nodes.
        waiting: the pods without a node.
        news: the events.
        version: Plimsoll's.
        missing: names what keeps the placer from its work now.
        leads: whether this placer is the one that places.
    """

    rows: LiveRows
    waiting: WaitingSummary
    news: RecentNews
    version: str
    missing: Callable[[], Sequence[str]]
    leads: Callable[[], bool]
    _port: _Places = field(default_factory=lambda: _Places(READERS_AT_MOST, "pages are open already"))
    _once: _Places = field(default_factory=lambda: _Places(ONCE_AT_MOST, "readers are being answered"))
    _owner: _Places = field(
        default_factory=lambda: _Places(READERS_AT_MOST, "readers are at this socket already")
    )
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    def close(self) -> None:
        """End all streams soon. Browsers connect again by themselves, to a placer that serves."""
        self._closing.set()

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answer a reader until it hangs up, or has one whole state if it asks for `ONCE`.

        Where too many read, it is refused.
        """
        is_once = ONCE in request.query
        return await self._serve(request, self._once if is_once else self._port, is_once=is_once)

    async def serve_owner(self, request: web.Request) -> web.StreamResponse:
        """Answer a reader of the owner's socket likewise."""
        return await self._serve(request, self._owner, is_once=ONCE in request.query)

    async def _serve(self, request: web.Request, places: _Places, *, is_once: bool) -> web.StreamResponse:
        refusal = places.refusal()
        if refusal is not None:
            return refusal
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream",
                "Cache-Control": "no-store",
                "X-Accel-Buffering": "no",  # a proxy would hold messages back
                "X-Content-Type-Options": "nosniff",
            }
        )
        now_s = asyncio.get_running_loop().time()
        judge = _Judge(request.get(AGAIN), now_s, now_s + JUDGED_S)
        places.taken += 1
        try:
            await response.prepare(request)
            if request.method != "HEAD":
                # The reader hung up, or stands still.
                with contextlib.suppress(ConnectionError, TimeoutError):
                    async with asyncio.timeout(ONCE_S if is_once else None):
                        await self._stream(_Reader(response), judge, is_once=is_once)
        finally:
            places.taken -= 1
        return response

    async def _stream(self, reader: _Reader, judge: _Judge, *, is_once: bool) -> None:
        await reader.response.write(f"retry: {RETRY_MS}\n\n".encode())
        await self._send_status(reader)
        await self._send_nodes(reader)
        await reader.send("synced", b"null")
        while not self._closing.is_set():
            await self._send_nodes(reader)
            await self._send_gone(reader)
            await self._send_news(reader)
            await reader.send_changed("waiting", await self.waiting.read(), 0.0, ALIVE_S)
            await self._send_status(reader)
            if is_once or await judge.refuses():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), PACE_S)

    async def _send_status(self, reader: _Reader) -> None:
        status = Status(
            version=self.version, leads=self.leads(), missing=tuple(self.missing()), nodes=len(self.rows)
        )
        now_s = asyncio.get_running_loop().time()
        await reader.send_changed("status", msgspec.json.encode(status), now_s, ALIVE_S)

    async def _send_nodes(self, reader: _Reader) -> None:
        upto = self.rows.number
        changed = self.rows.changed_since(reader.nodes)
        for start in range(0, len(changed), TOGETHER):
            piece = [(node, self.rows.row(node)) for node in changed[start : start + TOGETHER]]
            bodies = [body for _, body in piece if body is not None]
            reader.known.update(node for node, body in piece if body is not None)
            if bodies:
                await reader.send("nodes", b"[" + b",".join(bodies) + b"]")
            await asyncio.sleep(0)  # decisions and watches run between two pieces
        reader.nodes = upto

    async def _send_gone(self, reader: _Reader) -> None:
        if reader.removals == self.rows.removals:
            return
        reader.removals = self.rows.removals
        gone = sorted(node for node in reader.known if node not in self.rows)
        reader.known.difference_update(gone)
        if gone:
            await reader.send("gone", msgspec.json.encode(gone))

    async def _send_news(self, reader: _Reader) -> None:
        upto = self.news.number
        news = self.news.since(reader.news)
        reader.news = upto
        if news:
            await reader.send("news", msgspec.json.encode(news))
