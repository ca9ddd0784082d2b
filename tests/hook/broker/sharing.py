"""Containers that share an emulated card under a real broker, with programs that fail if they wait too long.

A share is the part of the time in which a GPU executed a program's kernels, from the emulator's book.
"""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from plimsoll.broker.pages import (
    COUNTS_DIR_VARIABLE,
    GATE_NAME,
    GATE_STATES,
    GATE_STEP,
    LIMITS_DIR_VARIABLE,
    Gate,
)
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid, PodUid
from tests.hook.broker.conftest import MAIN, Broker
from tests.hook.lib.program import EMULATOR, LIBRARY, MIB, Node, compiled
from tests.servers.waiting import PATIENCE_S

STRETCH_S: Final = 2.0
TRIES: Final = 5
LINE_BYTES: Final = 4096 * MIB


@dataclass(frozen=True, slots=True)
class Looked:
    """One reading of the book: for each process, its nanoseconds on the GPU, spinning kernels included."""

    time_ns: tuple[int, ...]
    ran_ns: Mapping[tuple[int, int], int]
    launches: Mapping[tuple[int, int], int]

    def share(self, earlier: "Looked", pid: int, gpu: int = 0) -> float:
        """The part of the time since an earlier reading in which a GPU executed a process's work."""
        gained_ns = self.ran_ns.get((pid, gpu), 0) - earlier.ran_ns.get((pid, gpu), 0)
        return gained_ns / (self.time_ns[gpu] - earlier.time_ns[gpu])


class Restless:
    """One running program."""

    def __init__(self, process: asyncio.subprocess.Process, what: str) -> None:
        self._process = process
        self._what = what
        self.pid = process.pid

    async def finish(self) -> int:
        """Wait until the program ends without an error; returns the number of its rounds."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                told, complaints = await self._process.communicate()
        except TimeoutError:
            pytest.fail(f"{self._what} never ended")
        assert self._process.returncode == 0, (
            f"{self._what} exited with {self._process.returncode}: {complaints.decode()}"
        )
        word, rounds = told.decode().split("\n")[-2].split()
        assert word == "ok"
        return int(rounds)

    def signal(self, number: int) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    async def end(self) -> None:
        """End the program by SIGKILL if it still runs."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()


@dataclass(slots=True)
class Card:
    """An emulated node of two GPUs with a broker."""

    broker: Broker
    node: Node
    _programs: list[Restless] = field(default_factory=list)

    async def register(
        self, request: int, limit: int = 100, gpus: Sequence[int] = (0,), *, whole: bool = False
    ) -> PodUid:
        """Register a container."""
        pod = PodUid(str(uuid.uuid4()))
        lines = tuple(
            Line(
                gpu=GpuUuid(self.node.uuids[gpu]),
                line_bytes=LINE_BYTES,
                share_pct=request,
                limit_pct=limit,
            )
            for gpu in gpus
        )
        container = ContainerLines(name=MAIN, lines=lines, whole=whole)
        await self.broker.client.register(
            Register(pod=pod, namespace="default", name="restless", containers=(container,))
        )
        return pod

    async def start(self, pod: PodUid, what: str, seconds: float, gpus: Sequence[int] = (0,)) -> Restless:
        """Start a program of a sort in a container."""
        return await self.run(pod, gpus, compiled("restless"), what, str(seconds))

    async def run(self, pod: PodUid, gpus: Sequence[int], path: Path, *arguments: str) -> Restless:
        """Start any program in a container."""
        environment = self.node.environment(
            {
                LIMITS_DIR_VARIABLE: str(self.broker.limits_dir(pod)),
                COUNTS_DIR_VARIABLE: str(self.broker.counts_dir(pod)),
                "CUDA_VISIBLE_DEVICES": ",".join(self.node.uuids[gpu] for gpu in gpus),
            },
            preload=str(LIBRARY),
        )
        process = await asyncio.create_subprocess_exec(
            path, *arguments, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        program = Restless(process, arguments[0])
        self._programs.append(program)
        return program

    async def look(self) -> Looked:
        """Read the book."""
        reader = await asyncio.create_subprocess_exec(
            EMULATOR / "book", env=self.node.environment(preload=None), stdout=asyncio.subprocess.PIPE
        )
        told, _ = await reader.communicate()
        gpus: list[dict[str, Any]] = json.loads(told)["gpus"]
        rows = [(process, gpu["index"]) for gpu in gpus for process in gpu["processes"]]
        return Looked(
            tuple(gpu["time_ns"] for gpu in gpus),
            {(process["pid"], gpu): process["busy_ns"] + process["spun_ns"] for process, gpu in rows},
            {(process["pid"], gpu): process["launches"] for process, gpu in rows},
        )

    async def until(self, holds: Callable[[Looked], bool], what: str) -> Looked:
        """Wait until a reading of the book meets a condition."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    looked = await self.look()
                    if holds(looked):
                        return looked
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"not reached in {PATIENCE_S} s: {what}")

    async def at_work(self, *programs: Restless, gpu: int = 0) -> Looked:
        """Wait until each of these programs has launched anew."""
        before = await self.look()
        return await self.until(
            lambda now: all(
                now.launches.get((one.pid, gpu), 0) > before.launches.get((one.pid, gpu), 0)
                for one in programs
            ),
            "all programs at work",
        )

    async def during(self, seconds: float) -> tuple[Looked, Looked]:
        """Read the book before and after a span of time."""
        before = await self.look()
        await asyncio.sleep(seconds)
        return before, await self.look()

    async def until_shared(self, holds: Callable[[Looked, Looked], bool], what: str) -> None:
        """Wait until a span shows these shares. Work that was queued behind an open gate is paid back first."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not holds(*await self.during(STRETCH_S)):
                    pass
        except TimeoutError:
            pytest.fail(f"not reached in {PATIENCE_S} s: {what}")

    async def until_had(self, attempt: Callable[[], Awaitable[float]], least: float) -> None:
        """Repeat until a program had more than this share.

        A busy machine sometimes keeps all programs from the GPU.
        """
        seen: list[float] = []
        while not seen or seen[-1] <= least:
            assert len(seen) < TRIES, f"never more than {least}: {seen}"
            seen.append(await attempt())

    def gate(self, pod: PodUid) -> Gate:
        """A container's gate file on disk."""
        return Gate.from_buffer_copy((self.broker.limits_dir(pod) / GATE_NAME).read_bytes())

    def state(self, pod: PodUid) -> int:
        """The gate's state: open, metered or shut."""
        return int(self.gate(pod).word) & GATE_STATES

    def changes(self, pod: PodUid) -> int:
        """The number of changes of the gate."""
        return int(self.gate(pod).word) // GATE_STEP

    async def until_state(self, pod: PodUid, state: int) -> None:
        """Wait until the gate has this state."""

        async def says() -> bool:
            return self.state(pod) == state

        await wait(says, f"gate in state {state}")

    async def close(self) -> None:
        """End all programs and the broker."""
        for program in self._programs:
            await program.end()
        await self.broker.close()


async def wait(holds: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait for a state with frequent checks."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            while not await holds():  # noqa: ASYNC110 - the state is another process's
                await asyncio.sleep(0.001)
    except TimeoutError:
        pytest.fail(f"not reached in {PATIENCE_S} s: {what}")


@contextlib.asynccontextmanager
async def card(folder: Path, **settings: str) -> AsyncIterator[Card]:
    """A node and a broker."""
    node = Node(folder, gpu_count=2, memory_mib=65536, context_mib=64)
    here = Card(Broker(folder / "root", {"audit_s": "3600"} | settings), node)
    try:
        await here.broker.start()
        yield here
    finally:
        await here.close()
