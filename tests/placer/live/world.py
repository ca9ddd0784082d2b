"""A live page in this process: the real server, rows and stream, over reports and bookings that a test makes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from placer.api.access import Access
from placer.api.http import Api, serving_port
from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.live.pods import PodName
from placer.live.wiring import LivePage, live_page
from placer.metrics import Metrics
from plimsoll.bus.client import BusClient
from plimsoll.events import Gpu, NodeState, Phase, Task
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.placer_api.live import LIVE_PATH, WaitingPod
from plimsoll.quantity import GIB
from tests.placer.states import reader_of
from tests.servers.waiting import PATIENCE_S

T = TypeVar("T")


@dataclass(slots=True)
class Pods:
    """A front end's pods, as the test says: each front end has a test of its own."""

    names: dict[PodUid, PodName] = field(default_factory=dict)
    without_node: list[WaitingPod] = field(default_factory=list)

    def name_of(self, uid: PodUid) -> PodName | None:
        """The name that the test gave."""
        return self.names.get(uid)

    def waiting(self) -> Iterator[WaitingPod]:
        """The pods that the test lets wait."""
        yield from tuple(self.without_node)


@dataclass(slots=True)
class World:
    """A placer's view, and its page.

    Attributes:
        missing: what the placer says that it lacks.
        page: the parts of the page.
    """

    decider: Decider
    pods: Pods
    missing: list[str]
    page: LivePage

    def report(self, state: NodeState) -> None:
        """Take a node's report in."""
        assert self.decider.reports.apply(state)

    def book(self, pod: str, node: str, gpu: str, gib: int, *, share_pct: int = 0, name: str = "") -> None:
        """Promise a pod memory and time of a GPU."""
        uid = PodUid(pod)
        self.pods.names[uid] = PodName("team", name or pod)
        size = gib * GIB
        grant = Grant(ContainerName("main"), GpuUuid(gpu), size, share_pct, 100, whole=False, line_bytes=size)
        self.decider.ledger.book(Booking(uid, NodeName(node), (grant,)))


async def world(*states: NodeState) -> World:
    """A placer's view with these reports. Its bus is not connected: a test hands events over itself."""
    decider = Decider(ReportView(), Ledger(), Metrics())
    for state in states:
        decider.reports.apply(state)
    pods, missing = Pods(), list[str]()
    page = await live_page(
        BusClient(), decider, sources=lambda: [pods], missing=lambda: missing, leads=lambda: True
    )
    return World(decider, pods, missing, page)


@contextlib.asynccontextmanager
async def serving(
    made: World, access: Access | None = None, address: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """Serve a world's page until the context ends, to readers that `access` allows; gives its URL."""
    reader = reader_of(made.decider)
    api = Api(reader.rows, reader, tuple, lambda: made.missing, made.decider.metrics.registry, page=made.page)
    async with serving_port(api, address, 0, access) as opened:
        yield f"http://{address}:{opened}"


@dataclass(slots=True)
class Detour:
    """An address that stays, before a server that goes and comes.

    Attributes:
        url: the address.
        to: the URL of the server; None while there is none, and connections are closed at once.
    """

    url: str = ""
    to: str | None = None
    _open: set[asyncio.StreamWriter] = field(default_factory=set)

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Take connections until the context ends."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            self.cut()

    def cut(self) -> None:
        """Break all connections."""
        for writer in tuple(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            if self.to is not None:
                port = urlsplit(self.to).port
                behind, to_server = await asyncio.open_connection("127.0.0.1", port)
                self._open.add(to_server)
                await asyncio.gather(_pass(reader, to_server), _pass(behind, writer))
                self._open.discard(to_server)
        finally:
            self._open.discard(writer)
            writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


def loading(pod: str, uuid: str, gib: int, phase: Phase = Phase.LOADED) -> Task:
    """A task of a pod."""
    size = gib * GIB
    return Task(
        pid=1,
        start_ticks=1,
        gpu=GpuUuid(uuid),
        phase=phase,
        used_bytes=size,
        peak_bytes=size,
        pod=PodUid(pod),
    )


def card(uuid: str, *tasks: Task, index: int = 0, model: str = "NVIDIA L4", ratio: float = 1.0) -> Gpu:
    """A GPU of 24 GiB."""
    return Gpu(
        uuid=GpuUuid(uuid),
        index=index,
        model=model,
        usable_bytes=24 * GIB,
        used_bytes=sum(task.used_bytes for task in tasks),
        idle_pct=75.0,
        overcommit_ratio=ratio,
        tasks=tasks,
    )


def state(node: str, *gpus: Gpu, seq: int = 1) -> NodeState:
    """A node's report."""
    return NodeState(node=NodeName(node), epoch=1, seq=seq, time="2026-01-01T00:00:00Z", gpus=gpus)


class Stream:
    """The messages of a stream, as a program reads them."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, bytes]:
        """The next message: its kind and its data."""
        kind = ""
        async with asyncio.timeout(PATIENCE_S):
            while line := await self._response.content.readline():
                name, _, value = line.strip().partition(b": ")
                if name == b"event":
                    kind = value.decode()
                elif name == b"data":
                    return kind, value
        raise AssertionError("the stream has ended")

    async def until(self, wanted: str) -> tuple[dict[str, int], bytes]:
        """Read up to a message of this kind: the number of messages of each kind before it, and its data."""
        before: dict[str, int] = {}
        while True:
            kind, data = await self.next()
            if kind == wanted:
                return before, data
            before[kind] = before.get(kind, 0) + 1

    async def ended(self) -> None:
        """Read until the server ends the stream."""
        async with asyncio.timeout(PATIENCE_S):
            while await self._response.content.readline():
                pass


@contextlib.asynccontextmanager
async def reading(url: str) -> AsyncIterator[Stream]:
    """A reader of the stream at a page's URL."""
    async with (
        aiohttp.ClientSession(read_bufsize=1 << 22) as session,
        session.get(url + LIVE_PATH) as response,
    ):
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        yield Stream(response)


def decoded(data: bytes, kind: type[T]) -> T:
    """A message's data."""
    return msgspec.json.decode(data, type=kind)
