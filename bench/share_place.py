"""A GPU that several tenants share: a real broker, real hooked programs, an emulated card, and its book read beside.

The book is read by `build/emulator/book watch` every 50 ms, also at the moment at which work begins. Each line says
when it was taken, and a share is always the difference of two lines over the time between them: nothing is
interpolated.

On a real GPU nobody keeps such a book, and NVML's utilisation is of a sixth of a second and more, and of the whole
card. There each tenant's kernels add up on the device how long they stood there, with the way from one queued kernel
to the next, and how long they worked (`hook_share_task.c`). What is missing is the time in which a launch was on its
way to the GPU, some microseconds where each is waited for (`sync`), or queued behind another process: while Plimsoll
hands the GPU over that is the drain of the one before, a few ms a turn; without Plimsoll, the whole of the others'
slices.
"""

import asyncio
import contextlib
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.gpu_node import GpuNode
from bench.share_figures import Track
from plimsoll.brokerwire import ContainerLines, Line, Register
from plimsoll.layout import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.names import GpuUuid, PodUid
from tests.hook.broker.conftest import MAIN, Broker
from tests.hook.lib.conftest import compile_c
from tests.hook.lib.program import EMULATOR, LIBRARY, MIB, Node

SOURCE: Final = Path(__file__).parent / "hook_share_task.c"
LINKED: Final = [f"-L{EMULATOR}", "-l:libcuda.so.1", "-lpthread"]
WATCH_MS: Final = 50
WATCH_NS: Final = WATCH_MS * 1_000_000
AHEAD_S: Final = 0.3
"""From the order to its beginning: all have read it by then, so that they begin together."""
ARRIVAL_S: Final = 1.0
"""From a later tenant's registration to its first launch: its program starts meanwhile."""
PATIENCE_S: Final = 60.0
LINE_BYTES: Final = 512 * MIB
GPU_LINE_BYTES: Final = 2048 * MIB
CARD_MIB: Final = 65536
GRAPHS: Final = ((100_000, 50), (1_000_000, 10), (1_000_000_000, 2))
"""Kernels up to so many nanoseconds: so many in a graph."""

Json = dict[str, Any]


class NoAnswerError(Exception):
    """A tenant ended, or was not done long after it should have been."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a tenant does: one of the modes of `hook_share_task`, with kernels of one length."""

    mode: str
    kernel_ns: int

    @property
    def graph_kernels(self) -> int:
        """Kernels in one launch of a graph; more of short ones."""
        if self.mode != "graph":
            return 1
        return next(kernels for longest_ns, kernels in GRAPHS if self.kernel_ns <= longest_ns)

    @property
    def launch_ns(self) -> int:
        """What one launch puts on the GPU; it cannot be cut."""
        return self.kernel_ns * self.graph_kernels

    @property
    def name(self) -> str:
        """For example `async/20us`."""
        return f"{self.mode}/{kernel_name(self.kernel_ns)}"


def kernel_name(kernel_ns: int) -> str:
    """For example `20us`."""
    return f"{kernel_ns // 1000}us" if kernel_ns < 1_000_000 else f"{kernel_ns // 1_000_000}ms"


@dataclass(frozen=True, slots=True)
class Tenant:
    """A container of one process; it works from `begin_s` to `end_s` of the run, None for the run's end."""

    name: str
    work: Work
    request_pct: int = 0
    limit_pct: int = 100
    begin_s: float = 0.0
    end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """What one tenant did, by itself and by the book."""

    tenant: Tenant
    answer: Json
    track: Track

    @property
    def throughput(self) -> float:
        """Kernels a second, until the last was done."""
        took_ns: int = self.answer["ended_ns"] - self.answer["began_ns"]
        return float(self.answer["kernels"]) * 1e9 / took_ns


@dataclass(frozen=True, slots=True)
class Run:
    """One run of some tenants beside each other."""

    begin_ns: int
    end_ns: int
    tenants: tuple[Told, ...]
    load: float
    """The machine's load average at the end."""


class Process:
    """One running `hook_share_task`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def line(self, patience_s: float = PATIENCE_S) -> str:
        """The next line that it prints.

        Raises:
            NoAnswerError: it ended, or printed nothing in time.
        """
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(patience_s):
                text = (await self._process.stdout.readline()).decode()
        except TimeoutError:
            raise NoAnswerError(f"process {self.pid} said nothing in {patience_s:.0f} s") from None
        if not text:
            raise NoAnswerError(f"process {self.pid} ended with {await self._process.wait()}")
        return text

    def order(self, command: str) -> None:
        """Give it a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())

    async def work(self, work: Work, begin_ns: int, end_ns: int) -> Json:
        """Have it work at some time to come; returns its answer."""
        self.order(f"{work.mode} {work.kernel_ns} {begin_ns} {end_ns} {work.graph_kernels}")
        answer: Json = json.loads(await self.line((end_ns - time.monotonic_ns()) / 1e9 + PATIENCE_S))
        return answer

    async def end(self) -> None:
        """Let it go, by force if it does not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@dataclass(slots=True)
class Place:
    """A node with one GPU and a broker."""

    broker: Broker
    program: Path
    folder: Path
    gpu: GpuNode | None
    _nodes: dict[str, Node] = field(default_factory=dict)

    def node(self, name: str = "card") -> Node | GpuNode:
        """An emulated node of one card, always of the same UUID; this machine where its own GPU is measured."""
        if self.gpu:
            return self.gpu
        if name not in self._nodes:
            folder = self.folder / name
            folder.mkdir()
            self._nodes[name] = Node(folder, gpu_count=1, memory_mib=CARD_MIB, context_mib=64)
        return self._nodes[name]

    async def register(self, tenant: Tenant) -> PodUid:
        """Lay out a tenant's container."""
        pod = PodUid(str(uuid.uuid4()))
        line = Line(
            gpu=GpuUuid(self.node().uuids[0]),
            line_bytes=GPU_LINE_BYTES if self.gpu else LINE_BYTES,
            share_pct=tenant.request_pct,
            limit_pct=tenant.limit_pct,
        )
        lines = ContainerLines(name=MAIN, lines=(line,))
        await self.broker.client.register(
            Register(pod=pod, namespace="bench", name=tenant.name, containers=(lines,))
        )
        return pod

    @contextlib.asynccontextmanager
    async def started(self, pod: PodUid | None, node: Node | GpuNode) -> AsyncIterator[Process]:
        """A program in a pod's container, ready to work; None for one without the library."""
        container = {}
        if pod:
            container = {
                LIMITS_DIR_VARIABLE: str(self.broker.limits_dir(pod)),
                COUNTS_DIR_VARIABLE: str(self.broker.counts_dir(pod)),
            }
        process = Process(
            await asyncio.create_subprocess_exec(
                self.program, *(["gpu"] if self.gpu else []),
                env=node.environment(container, preload=str(LIBRARY) if pod else None),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 24,
            )
        )  # fmt: skip
        try:
            await process.line()
            yield process
        finally:
            await process.end()
            if pod:
                await self.broker.client.unregister(pod)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[list[Json]]:
        """The lines of the book, as they come; none on a real GPU."""
        lines: list[Json] = []
        if self.gpu:
            yield lines
            return
        watcher = await asyncio.create_subprocess_exec(
            EMULATOR / "book", "watch", "0", str(WATCH_MS),
            env=self.node().environment(preload=None), stdout=asyncio.subprocess.PIPE, limit=1 << 20,
        )  # fmt: skip
        assert watcher.stdout is not None

        async def collect(stream: asyncio.StreamReader) -> None:
            async for line in stream:
                lines.append(json.loads(line))  # noqa: PERF401 - read while they come

        collecting = asyncio.create_task(collect(watcher.stdout), name="the book's lines")
        try:
            yield lines
        finally:
            collecting.cancel()
            await asyncio.wait([collecting])
            watcher.kill()
            await watcher.wait()

    async def run(self, tenants: Sequence[Tenant], seconds: float, *, is_hooked: bool = True) -> Run:
        """Have tenants work beside each other; the programs of all that begin at once are ready before that.

        Who begins later is registered and started a second before, and all leave as soon as they are done.

        Raises:
            ExceptionGroup: of `NoAnswerError`, where one did not do its work.
        """
        first = sum(not tenant.begin_s for tenant in tenants)
        ready = asyncio.Barrier(first + 1)
        begin: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def stay(tenant: Tenant) -> tuple[Json, int]:
            if tenant.begin_s:
                await asyncio.sleep((await begin - time.monotonic_ns()) / 1e9 + tenant.begin_s - ARRIVAL_S)
            pod = await self.register(tenant) if is_hooked else None
            async with self.started(pod, self.node()) as process:
                if not tenant.begin_s:
                    await ready.wait()
                span_ns = _span(tenant, await begin, seconds)
                return await process.work(tenant.work, *span_ns), process.pid

        async with self.watched() as book, asyncio.TaskGroup() as group:
            stays = [group.create_task(stay(tenant), name=tenant.name) for tenant in tenants]
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()
            begin.set_result(_when(time.monotonic_ns() + int(AHEAD_S * 1e9)))
            await asyncio.wait(stays)
        told = tuple(
            Told(tenant, answer, _track(answer, book, pid))
            for tenant, (answer, pid) in zip(tenants, (task.result() for task in stays), strict=True)
        )
        return Run(begin.result(), begin.result() + int(seconds * 1e9), told, os.getloadavg()[0])


def _when(earliest_ns: int) -> int:
    """A moment at which the book is read."""
    return -(-earliest_ns // WATCH_NS) * WATCH_NS


def _span(tenant: Tenant, begin_ns: int, seconds: float) -> tuple[int, int]:
    end_s = seconds if tenant.end_s is None else tenant.end_s
    return begin_ns + int(tenant.begin_s * 1e9), begin_ns + int(end_s * 1e9)


def _track(answer: Json, book: Sequence[Json], pid: int) -> Track:
    if not book:
        return Track(*zip(*answer["samples"], strict=True))
    rows = [
        (line["time_ns"], process["unfinished_ns"], process["busy_ns"])
        for line in book
        for process in line["processes"]
        if process["pid"] == pid
    ]
    times, unfinished, busy = zip(*rows, strict=True)
    return Track(times, unfinished, busy)


def compiled(folder: Path) -> Path:
    """The tenants' program."""
    program = folder / "hook_share_task"
    compile_c([SOURCE], program, LINKED)
    return program


@contextlib.asynccontextmanager
async def place(program: Path, folder: Path, gpu: GpuNode | None, **settings: str) -> AsyncIterator[Place]:
    """A broker with some settings, over a folder of its own within one that is there."""
    own = folder / uuid.uuid4().hex[:8]
    own.mkdir()
    broker = Broker(own / "root", {"log_level": "warning", **settings})
    try:
        await broker.start()
        yield Place(broker, program, own, gpu)
    finally:
        await broker.close()


def broker_cpu_s(broker: Broker) -> float:
    """CPU time that a broker's process has had."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settings_of(quota_ms: int | None) -> Mapping[str, str]:
    """Settings that hold the quota at one length; None for the default, which adapts."""
    if quota_ms is None:
        return {}
    names = ("share_quota_ms", "share_quota_least_ms", "share_quota_most_ms")
    return dict.fromkeys(names, str(quota_ms))
