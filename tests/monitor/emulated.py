"""An emulated node with programs on it, for tests of the monitor over the emulated driver."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from monitor.processes import read_process
from plimsoll.ids import ProcessKey
from tests.monitor.harness import EMULATOR
from tests.servers.waiting import PATIENCE_S

GIB, MIB = 1024**3, 1024**2
GPU_0 = "GPU-5a1c0d2e-0000-0000-0000-000000000001"
GPU_1 = "GPU-5a1c0d2e-0000-0000-0000-000000000002"
NODE = f"""
sample = 20ms
copy = 256Mi
[gpu 0]
uuid = {GPU_0}
model = NVIDIA L4
memory = 24Gi
reserved = 512Mi
context = 300Mi
[gpu 1]
uuid = {GPU_1}
memory = 16Gi
reserved = 256Mi
context = 300Mi
"""


def write_node(directory: Path) -> dict[str, str]:
    """Describe the node in `directory`; returns the environment of programs on it."""
    path = directory / "node.conf"
    path.write_text(NODE)
    return {"PLIMSOLL_EMULATOR": str(path), "LD_LIBRARY_PATH": str(EMULATOR)}


class Program:
    """A CUDA program that obeys commands on its standard input; see `program.py`."""

    def __init__(self, child: asyncio.subprocess.Process, process: ProcessKey) -> None:
        self._child = child
        self.process = process

    async def do(self, line: str) -> None:
        """Send a command, and wait until the program has carried it out."""
        assert self._child.stdin is not None
        self._child.stdin.write(line.encode() + b"\n")
        await self.done()

    async def done(self) -> None:
        """Wait for the program's answer."""
        assert self._child.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await self._child.stdout.readline() == b"ok\n"

    async def kill(self) -> None:
        """End the program by SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._child.kill()
        await self._child.wait()


@contextlib.asynccontextmanager
async def program(
    environment: Mapping[str, str], gpu: int = 0, at_once: Sequence[str] = ()
) -> AsyncIterator[Program]:
    """A program with a context on one GPU, killed when the context ends.

    Args:
        environment: its environment.
        gpu: the index of its GPU.
        at_once: commands about memory that directly follow the context: a test that sends them may stand still
            meanwhile for so long that the task counts as loaded.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("program.py")),
        str(gpu),
        *at_once,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PATH": os.environ["PATH"], **environment},
    )
    process = read_process(child.pid)
    assert process is not None
    started = Program(child, process)
    try:
        await started.done()
        yield started
    finally:
        await started.kill()


async def book(environment: Mapping[str, str], *arguments: str) -> None:
    """Change the emulated node's records to cause an event that a real node has by itself.

    See `build/emulator/book`.
    """
    tool = await asyncio.create_subprocess_exec(
        str(EMULATOR / "book"), *arguments, env={"PATH": os.environ["PATH"], **environment}
    )
    assert await tool.wait() == 0
