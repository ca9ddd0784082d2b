"""A container under a real broker, and the processes that repeat one operation in it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from bench.hook.gpu_node import GpuNode
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid
from tests.hook.broker.conftest import MAIN, POD, Broker
from tests.hook.lib.program import LIBRARY, MIB, Node, compiled

PATIENCE_S: Final = 120.0


class MemoryProcess:
    """One running `program.c`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def number(self) -> float:
        """The next number that the process prints."""
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            return float(await self._process.stdout.readline())

    async def ask(self, command: str) -> float:
        """Let the process measure something; returns its result."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{command}\n".encode())
        return await self.number()

    async def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(PATIENCE_S):
            await self._process.wait()


class HookedNode:
    """A container under a real broker, and emulated nodes whose first cards have one identity."""

    def __init__(self, folder: Path, broker: Broker, gpu: GpuNode | None) -> None:
        self._folder, self._broker = folder, broker
        self._gpu = gpu

    def node(self, name: str) -> Node | GpuNode:
        """An emulated node of one card; with `--gpu` this machine."""
        if self._gpu:
            return self._gpu
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return Node(folder, gpu_count=1, memory_mib=65536, context_mib=64)

    async def spawn(self, node: Node | GpuNode, *arguments: str, is_hooked: bool) -> MemoryProcess:
        """Start one process."""
        container = {
            LIMITS_DIR_VARIABLE: str(self._broker.limits_dir()),
            COUNTS_DIR_VARIABLE: str(self._broker.counts_dir()),
        }
        environment = node.environment(container, preload=str(LIBRARY) if is_hooked else None)
        return MemoryProcess(
            await asyncio.create_subprocess_exec(
                compiled("hook_memory"), *arguments,
                env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )
        )  # fmt: skip

    async def vacant(self) -> None:
        """Wait until the broker has cleared the slots of all processes that ended."""
        await self._broker.until_vacant()


@contextlib.asynccontextmanager
async def hooked_node(folder: Path, gpu: GpuNode | None) -> AsyncIterator[HookedNode]:
    """A broker that registered one container with a roomy line, and the program."""
    broker = Broker(folder / "root", {})
    try:
        await broker.start()
        here = HookedNode(folder, broker, gpu)
        uuid = GpuUuid(here.node("alone").uuids[0])
        lines = ContainerLines(name=MAIN, lines=(Line(gpu=uuid, line_bytes=32768 * MIB),))
        await broker.client.register(Register(pod=POD, namespace="bench", name="cost", containers=(lines,)))
        yield here
    finally:
        await broker.close()
