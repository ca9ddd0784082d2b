"""GPUs that several tenants share: a real broker, real hooked programs, emulated cards, and readings of their book.

`build/emulator/book watch` reads the book every 50 ms, also at the moment at which work begins. Each reading has
its time, and a share is always the difference of two readings ÷ the time between them, without interpolation.

A real GPU has no such book, and NVML's utilisation covers a sixth of a second or more, and the whole card. There
each tenant's kernels sum up on the device how long they ran, including the way from one queued kernel to the next
(`task/device.c`).
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
from typing import Final

from bench.hook.gpu_node import GpuNode
from bench.hook.share.figures import Track
from bench.hook.share.tenants import (
    PATIENCE_S,
    Json,
    NoAnswerError,
    RunResult,
    Tenant,
    TenantProcess,
    TenantResult,
)
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid, PodUid
from tests.hook.broker.conftest import MAIN, Broker
from tests.hook.lib.program import EMULATOR, LIBRARY, MIB, Node, compiled

WATCH_MS: Final = 50
WATCH_NS: Final = WATCH_MS * 1_000_000
AHEAD_S: Final = 0.3
"""The time from an order to its beginning. All tenants have read it by then, so they begin together."""
STARTED_S: Final = 1.0
"""The time from a later tenant's registration to its first launch, in which its program starts."""
GPU_LINE_MIB: Final = 2048
CARD_MIB: Final = 65536
CARD: Final = "card"
"""The emulated node of tenants with the library, and of their broker."""
CARDS: Final = 2
"""The GPUs of an emulated node. Most tenants use only the first GPU."""
NATIVE: Final = "native"
"""The emulated node of tenants without the library, if they run beside others with it."""


@dataclass(slots=True)
class SharedNode:
    """A node with a broker."""

    broker: Broker
    folder: Path
    gpu: GpuNode | None
    _nodes: dict[str, Node] = field(default_factory=dict)

    def node(self, name: str = CARD) -> Node | GpuNode:
        """An emulated node, always with the same UUIDs; with `--gpu` this machine."""
        if self.gpu:
            return self.gpu
        if name not in self._nodes:
            self._nodes[name] = emulated(self.folder, name)
        return self._nodes[name]

    async def register(self, tenant: Tenant) -> PodUid:
        """Register a tenant's container."""
        pod = PodUid(str(uuid.uuid4()))
        line_mib = GPU_LINE_MIB if self.gpu else tenant.line_mib
        lines = tuple(
            Line(
                gpu=GpuUuid(self.node().uuids[gpu]),
                line_bytes=line_mib * MIB,
                share_pct=tenant.request_pct,
                limit_pct=tenant.limit_pct,
            )
            for gpu in tenant.gpus
        )
        container = ContainerLines(name=MAIN, lines=lines)
        await self.broker.client.register(
            Register(pod=pod, namespace="bench", name=tenant.name, containers=(container,))
        )
        return pod

    def environment(
        self, pod: PodUid | None, node: Node | GpuNode, gpus: Sequence[int] = (0,)
    ) -> dict[str, str]:
        """The environment of a program in a pod's container; None for one without the library."""
        visible = {} if self.gpu else {"CUDA_VISIBLE_DEVICES": ",".join(node.uuids[gpu] for gpu in gpus)}
        container = {}
        if pod:
            container = {
                LIMITS_DIR_VARIABLE: str(self.broker.limits_dir(pod)),
                COUNTS_DIR_VARIABLE: str(self.broker.counts_dir(pod)),
            }
        return node.environment(visible, container, preload=str(LIBRARY) if pod else None)

    @contextlib.asynccontextmanager
    async def started(
        self, pod: PodUid | None, node: Node | GpuNode, gpus: Sequence[int] = (0,)
    ) -> AsyncIterator[TenantProcess]:
        """A program in a pod's container, ready to work; None for one without the library."""
        process = TenantProcess(
            await asyncio.create_subprocess_exec(
                compiled("share_task"), *(["gpu"] if self.gpu else []), env=self.environment(pod, node, gpus),
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
    async def watched(self, gpu: int = 0, card: str = CARD) -> AsyncIterator[list[Json]]:
        """The readings of one GPU's book as they come; none on a real GPU."""
        lines: list[Json] = []
        if self.gpu:
            yield lines
            return
        watcher = await asyncio.create_subprocess_exec(
            EMULATOR / "book", "watch", str(gpu), str(WATCH_MS),
            env=self.node(card).environment(preload=None), stdout=asyncio.subprocess.PIPE, limit=1 << 20,
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

    async def run(
        self, tenants: Sequence[Tenant], seconds: float, *, is_hooked: bool = True, card: str = CARD
    ) -> RunResult:
        """Let tenants work beside each other. The programs of all that begin at once are ready before that.

        A later tenant is registered and started a second before it begins, and each ends as soon as it is done.

        Raises:
            ExceptionGroup: of `NoAnswerError`, where one did not do its work.
        """
        first = sum(not tenant.begin_s for tenant in tenants)
        ready = asyncio.Barrier(first + 1)
        begin: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def stay(tenant: Tenant) -> Json:
            if tenant.begin_s:
                await asyncio.sleep((await begin - time.monotonic_ns()) / 1e9 + tenant.begin_s - STARTED_S)
            pod = await self.register(tenant) if is_hooked else None
            async with self.started(pod, self.node(card), tenant.gpus) as process:
                if not tenant.begin_s:
                    await ready.wait()
                span_ns = _span(tenant, await begin, seconds)
                return await process.work(tenant.work, *span_ns)

        gpus = sorted({gpu for tenant in tenants for gpu in tenant.gpus})
        async with contextlib.AsyncExitStack() as stack:
            books = {gpu: await stack.enter_async_context(self.watched(gpu, card)) for gpu in gpus}
            group = await stack.enter_async_context(asyncio.TaskGroup())
            stays = [group.create_task(stay(tenant), name=tenant.name) for tenant in tenants]
            async with asyncio.timeout(PATIENCE_S):
                await ready.wait()
            begin.set_result(_when(time.monotonic_ns() + int(AHEAD_S * 1e9)))
            await asyncio.wait(stays)
        result = tuple(
            TenantResult(
                tenant, answer, tuple(track_of(answer, books[gpu], *answer["pids"]) for gpu in tenant.gpus)
            )
            for tenant, answer in zip(tenants, (task.result() for task in stays), strict=True)
        )
        return RunResult(begin.result(), begin.result() + int(seconds * 1e9), result, os.getloadavg()[0])

    async def side_by_side(self, tenants: Sequence[Tenant], seconds: float) -> tuple[RunResult, RunResult]:
        """Run the same tenants without and with the library at once, so that the machine is as busy for both.

        On a real GPU one after the other.
        """
        if self.gpu:
            native = await self.run(tenants, seconds, is_hooked=False)
            return native, await self.run(tenants, seconds)
        async with asyncio.TaskGroup() as group:
            without = group.create_task(self.run(tenants, seconds, is_hooked=False, card=NATIVE))
            hooked = group.create_task(self.run(tenants, seconds))
        return without.result(), hooked.result()


def _when(earliest_ns: int) -> int:
    """A moment at which the book is read."""
    return -(-earliest_ns // WATCH_NS) * WATCH_NS


def _span(tenant: Tenant, begin_ns: int, seconds: float) -> tuple[int, int]:
    end_s = seconds if tenant.end_s is None else tenant.end_s
    return begin_ns + int(tenant.begin_s * 1e9), begin_ns + int(end_s * 1e9)


def track_of(answer: Json, book: Sequence[Json], *pids: int) -> Track:
    """The time of a tenant's processes by one GPU's book, else by the tenant's own sum.

    Raises:
        NoAnswerError: the book never showed any of them.
    """
    if not book:
        return Track(*zip(*answer["samples"], strict=True))
    times: list[int] = []
    sums: list[int] = []
    for line in book:
        if shown := [process["busy_ns"] for process in line["processes"] if process["pid"] in pids]:
            times.append(line["time_ns"])
            sums.append(sum(shown))
    if not times:
        raise NoAnswerError(f"the book never showed any of the processes {pids}")
    return Track(times, sums)


def emulated(folder: Path, name: str) -> Node:
    """A node in a folder of its own."""
    own = folder / name
    own.mkdir()
    return Node(own, gpu_count=CARDS, memory_mib=CARD_MIB, context_mib=64)


@contextlib.asynccontextmanager
async def shared_node(folder: Path, gpu: GpuNode | None, **settings: str) -> AsyncIterator[SharedNode]:
    """A broker with some settings, over a new folder within `folder`.

    It reads its node's NVML, as brokers do: charges are corrected by it.
    """
    own = folder / uuid.uuid4().hex[:8]
    own.mkdir()
    card = None if gpu else emulated(own, CARD)
    driver = card.environment(preload=None) if card else None
    broker = Broker(own / "root", {"log_level": "warning", **settings}, driver)
    try:
        await broker.start()
        yield SharedNode(broker, own, gpu, {CARD: card} if card else {})
    finally:
        await broker.close()


def broker_cpu_s(broker: Broker) -> float:
    """The CPU time that a broker's process has used."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settings_of(quantum_ms: int | None) -> Mapping[str, str]:
    """The constant for a broker with one quantum; None for the default."""
    return {} if quantum_ms is None else {"shares": f"quantum_ms={quantum_ms}"}
