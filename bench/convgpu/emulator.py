"""ConVGPU's experiment in small.

Only the GPU is simulated; broker, hooked processes and waits are real. The run has one emulated card, one draw of
containers, and time `SPEED` times as fast. Each wait policy runs under a broker of its own. Every container is
registered when it arrives. Its program then requests its whole line in one piece, and the call blocks in the
library until it is granted.

The bench reports the card's capacity to the broker once, in the monitor's place, so that waits are for the
paper's sizes to the byte. Contexts (2 MiB here) come on top.
"""

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hook.broker.core.ids import ContainerKey
from hook.broker.files.shared import SharedFiles
from plimsoll.broker.client import BrokerClient
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Measured, MeasuredGpu, Register
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.native import EMULATOR, HOOK_LIBRARY, ROOT
from plimsoll.quantity import MIB
from plimsoll_cli.demo.cluster import READY, require_built
from plimsoll_cli.demo.servers import ServerKind, running
from simulator.convgpu.workload import USABLE_BYTES
from simulator.core.replay import Container, Stay, WorkloadReplay

SPEED: Final = 10.0
"""Five seconds between arrivals become half a second, far longer than a broker's turn."""
CONTEXT_MIB: Final = 2
CONTEXTS_MIB: Final = 128
PATIENCE_S: Final = 120.0
GPU: Final = GpuUuid("GPU-c0417b0a-0000-4000-8000-000000000000")
MAIN: Final = ContainerName("main")


class NotRunError(Exception):
    """A program did not start."""


@dataclass(frozen=True, slots=True)
class Scene:
    """An emulated node with a broker."""

    root: Path
    node_file: Path
    broker: BrokerClient


@dataclass(frozen=True, slots=True)
class Guest:
    """A container that has not arrived yet; its program is started and waits for its turn."""

    container: Container
    pod: PodUid
    process: asyncio.subprocess.Process

    @property
    def registration(self) -> Register:
        """The registration of its line."""
        line = Line(gpu=GPU, line_bytes=self.container.line_bytes)
        lines = ContainerLines(name=MAIN, lines=(line,))
        return Register(pod=self.pod, namespace="bench", name=self.container.name, containers=(lines,))

    async def line(self) -> str:
        """The next line of the program's output."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await self.process.stdout.readline()).decode()

    def go(self) -> None:
        """Let the program use the GPU."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"go\n")


async def measure(policy: str, containers: Sequence[Container]) -> WorkloadReplay:
    """Run the containers under one wait policy; times are those of the paper's clock.

    A container that was refused memory, or died, counts as refused.

    Raises:
        NotRunError: a program did not start.
    """
    async with scene(policy) as node, contextlib.AsyncExitStack() as ends:
        guests = [await ends.enter_async_context(started(node, one)) for one in containers]
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            stays = [
                group.create_task(_stay(guest, node.broker, began_s), name=guest.pod) for guest in guests
            ]
        return WorkloadReplay(tuple(stay.result() for stay in stays))


async def _stay(guest: Guest, broker: BrokerClient, began_s: float) -> Stay:
    due_s = began_s + guest.container.arrives_s / SPEED
    await asyncio.sleep(due_s - time.monotonic())
    await broker.register(guest.registration)
    guest.go()
    times = json.loads(await guest.line() or "{}")
    await guest.process.wait()
    await broker.unregister(guest.pod)
    if "has_s" not in times:
        return Stay(guest.container, refused=True)
    return Stay(guest.container, (times["has_s"] - began_s) * SPEED, (times["ended_s"] - began_s) * SPEED)


@contextlib.asynccontextmanager
async def scene(policy: str) -> AsyncIterator[Scene]:
    """A node with one card and a broker that overcommits it, for the length of a block."""
    await asyncio.to_thread(require_built)
    with tempfile.TemporaryDirectory(prefix="plimsoll-convgpu-") as folder:
        root, node_file = Path(folder) / "broker", Path(folder) / "node.conf"
        memory_mib = USABLE_BYTES // MIB + CONTEXTS_MIB
        lines = ("[gpu 0]", f"uuid = {GPU}", f"memory = {memory_mib}Mi", f"context = {CONTEXT_MIB}Mi", "")
        await asyncio.to_thread(node_file.write_text, "\n".join(lines))
        settings = {"ROOT": str(root), "OVERCOMMIT": "true", "WAIT_POLICY": policy}
        kind = ServerKind(
            name="broker",
            scheme="http",
            ready=READY["broker"],
            program=lambda: Path(sys.executable),
            arguments=lambda *_: ("-m", "hook.broker"),
            environment={
                "PYTHONPATH": str(ROOT),
                **{f"PLIMSOLL_BROKER_{name}": value for name, value in settings.items()},
            },
        )
        async with running(kind, Path(folder) / "log"), BrokerClient(root) as broker:
            card = MeasuredGpu(gpu=GPU, usable_bytes=USABLE_BYTES, used_bytes=0)
            await broker.measure(Measured(began_ns=time.monotonic_ns(), gpus=(card,), processes=()))
            yield Scene(root, node_file, broker)


@contextlib.asynccontextmanager
async def started(node: Scene, container: Container) -> AsyncIterator[Guest]:
    """Start a container's program up to the wait for its turn; the program ends with the block."""
    pod = PodUid(str(uuid.uuid4()))
    files, key = SharedFiles(node.root), ContainerKey(pod, MAIN)
    words = {"memory-mib": container.line_bytes // MIB, "run-s": container.runs_s / SPEED}
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "bench.convgpu.task",
            *(f"--{name}={value}" for name, value in words.items()),
        ),
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PLIMSOLL_EMULATOR": str(node.node_file),
            "LD_LIBRARY_PATH": str(EMULATOR),
            "LD_PRELOAD": str(HOOK_LIBRARY),
            LIMITS_DIR_VARIABLE: str(files.limits_dir(key)),
            COUNTS_DIR_VARIABLE: str(files.counts_path(key).parent),
        },
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        guest = Guest(container, pod, process)
        if await guest.line() != "ready\n":
            raise NotRunError(f"{container.name} did not start")
        yield guest
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
