"""An independent watch of one namespace: when each pod appeared, and when it had a node.

The watch is the benchmark's own code over a connection of its own. Times are those at which its process received the
events, on one clock.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import msgspec

from bench.placer.servers import Servers, session

PATIENCE_S: Final = 300.0
"""The longest time without any progress before a round counts as failed."""
LOOK_S: Final = 0.02
"""The pause between two readings of the counts. All times are those of the watch, so no figure depends on the
pause."""


class StuckError(Exception):
    """A scheduler made no progress for a long time; the message holds how far it came."""


class _Meta(msgspec.Struct):
    name: str = ""
    resourceVersion: str = ""  # noqa: N815 - the API's name


class _Spec(msgspec.Struct):
    nodeName: str | None = None  # noqa: N815 - the API's name


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


class _Event(msgspec.Struct):
    type: str
    object: _Pod


@dataclass(slots=True)
class BindWatch:
    """The pods that the watch showed.

    Attributes:
        seen_s: the time at which each pod appeared.
        bound_s: the time at which each pod had a node, in the order of binding.
        node: the node of each bound pod.
        on_first: called at the first bind.
        version: of the last change that the watch showed.
    """

    seen_s: dict[str, float] = field(default_factory=dict)
    bound_s: dict[str, float] = field(default_factory=dict)
    node: dict[str, str] = field(default_factory=dict)
    on_first: Callable[[], None] = lambda: None
    version: str = ""

    def take(self, line: bytes, now_s: float) -> None:
        """Take one line of the watch."""
        event = _EVENTS.decode(line)
        if event.type not in ("ADDED", "MODIFIED"):
            return
        self.version = event.object.metadata.resourceVersion
        name, node = event.object.metadata.name, event.object.spec.nodeName
        self.seen_s.setdefault(name, now_s)
        if node and name not in self.bound_s:
            if not self.bound_s:
                self.on_first()
            self.bound_s[name] = now_s
            self.node[name] = node

    def span_s(self) -> float:
        """The time from the first bind to the last one, in seconds."""
        times = self.bound_s.values()
        return max(times) - min(times)

    def waits_ms(self, names: Sequence[str]) -> list[float]:
        """How long each of these pods was pending, in milliseconds, by the watch."""
        return [(self.bound_s[name] - self.seen_s[name]) * 1000 for name in names]

    async def until_seen(self, count: int) -> None:
        """Wait until this many pods appeared; raises `StuckError` when no more come."""
        await _until(lambda: len(self.seen_s), count, "seen")

    async def until_bound(self, count: int, patience_s: float = PATIENCE_S) -> None:
        """Wait until this many pods have a node; raises `StuckError` when no more come for `patience_s`."""
        await _until(lambda: len(self.bound_s), count, "bound", patience_s)


_EVENTS: Final = msgspec.json.Decoder(_Event)


async def _until(number: Callable[[], int], count: int, what: str, patience_s: float = PATIENCE_S) -> None:
    loop = asyncio.get_running_loop()
    last, since_s = -1, loop.time()
    while (now := number()) < count:
        if now != last:
            last, since_s = now, loop.time()
        elif loop.time() - since_s > patience_s:
            raise StuckError(f"{now} of {count} pods {what}, no more for {patience_s:.0f} s")
        await asyncio.sleep(LOOK_S)


@contextlib.asynccontextmanager
async def watching(servers: Servers, namespace: str) -> AsyncIterator[BindWatch]:
    """Watch a namespace's pods until the context ends, from the pods that exist on."""
    binds, path = BindWatch(), f"/api/v1/namespaces/{namespace}/pods?watch=1"
    async with session(servers.plane) as http, _opened(http, path) as answer:
        task = asyncio.create_task(_watch(http, path, answer, binds), name=f"watch {namespace}")
        try:
            yield binds
        finally:
            assert not task.done(), "the watch ended by itself"
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.asynccontextmanager
async def _opened(http: aiohttp.ClientSession, path: str) -> AsyncIterator[aiohttp.ClientResponse]:
    async with http.get(path, timeout=aiohttp.ClientTimeout(total=None)) as answer:
        answer.raise_for_status()
        yield answer


async def _watch(
    http: aiohttp.ClientSession, path: str, first: aiohttp.ClientResponse, binds: BindWatch
) -> None:
    """Follow a watch, and the next ones: the API server ends that of a client which was slow for a moment."""
    await _follow(first.content, binds)
    while True:
        async with _opened(http, f"{path}&resourceVersion={binds.version}") as answer:
            await _follow(answer.content, binds)


async def _follow(content: aiohttp.StreamReader, binds: BindWatch) -> None:
    loop = asyncio.get_running_loop()
    rest = b""
    while chunk := await content.readany():
        now_s = loop.time()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            binds.take(line, now_s)
