"""Eight processes, two lines, every path, and death at any moment: what then stands in the emulator's own book.

What always holds: the programs ask in whole blocks of the driver, and `limits` has the cost of their contexts, so
that words and book agree to the byte and nothing may stand past a line. The book itself remembers the most that
living processes ever held at once, so no moment goes unseen.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE, Counts, Limits
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid
from tests.hook.broker.conftest import MAIN, POD, Broker, until
from tests.hook.lib.program import LIBRARY, MIB, Node, compiled
from tests.servers.waiting import PATIENCE_S

CONTEXT_MIB: Final = 64
LINES_MIB: Final = (1024, 768)
"""The line of each GPU: eight contexts and a few hundred blocks, so that most of the time some process is refused."""

PATHS: Final = (
    "alloc", "pitch", "managed", "array", "array3d", "mipmap", "create", "map", "export", "async", "pool",
    "graph", "capture",
)  # fmt: skip
"""The paths whose every byte is counted. The program knows one more, `import`: what an importer holds after its
exporter let it go is counted nowhere yet."""

LARGEST_MIB: Final = 64


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run; the same seed draws the same programs, deaths and pauses.

    Attributes:
        seconds: how long memory is taken and given back.
        threads: the threads of each process.
        deaths_per_s: by SIGKILL; each is followed by a new process.
        is_broker_stopped: the broker stands still meanwhile, so that the dead keep their slots.
    """

    seed: int
    seconds: float
    processes: int = 8
    threads: int = 3
    paths: tuple[str, ...] = PATHS
    deaths_per_s: float = 4.0
    may_fork: bool = True
    is_broker_stopped: bool = False


@dataclass(slots=True)
class Outcome:
    """The result of a run.

    Attributes:
        over_line_bytes: how far the book's peak passed a line, 0 if never.
        peak_bytes: the book's peak, per GPU.
        left_bytes: what words and book still held after everything was given back, and after all had ended.
        tallies: per path how often it was granted and refused, in processes that were not killed.
        errors: what went wrong in a program, in its own words.
    """

    over_line_bytes: int = 0
    peak_bytes: list[int] = field(default_factory=list)
    left_bytes: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    tallies: dict[str, tuple[int, int]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list, repr=False)


class Hammerer:
    """One running `hammer`."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process = process
        self._errors = errors

    async def kill(self) -> None:
        """End it by SIGKILL, wherever it is."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    @property
    def has_ended(self) -> bool:
        """It is gone, though nobody killed it."""
        return self._process.returncode is not None

    def complaint(self) -> str:
        """How it ended, and what it said."""
        return f"exit status {self._process.returncode}: {self._errors.read_text(errors='replace')[-2000:]}"

    async def settled(self) -> dict[str, list[int]] | None:
        """Wait until it has given everything back; its tallies, None if it ended instead."""
        assert self._process.stdout is not None
        line = (await self._process.stdout.readline()).decode()
        if not line.startswith("settled "):
            await self._process.wait()
            return None
        tallies: dict[str, list[int]] = json.loads(line.removeprefix("settled "))
        return tallies

    async def end(self) -> int:
        """Let it go; its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return await self._process.wait()


class Hammering:
    """A container under a real broker on an emulated node, and the processes in it."""

    def __init__(self, folder: Path, program: Path, preload: Sequence[Path], extra: dict[str, str]) -> None:
        self._folder = folder
        self._program = program
        self._node = Node(folder, gpu_count=len(LINES_MIB), memory_mib=4096, context_mib=CONTEXT_MIB)
        self._broker = Broker(folder / "root", {})
        self._environment = extra | {"LD_PRELOAD": ":".join(map(str, preload))}
        self._started = 0

    async def __aenter__(self) -> Self:
        await self._broker.start()
        lines = tuple(
            Line(gpu=GpuUuid(uuid), line_bytes=line_mib * MIB)
            for uuid, line_mib in zip(self._node.uuids, LINES_MIB, strict=True)
        )
        container = ContainerLines(name=MAIN, lines=lines)
        await self._broker.client.register(
            Register(pod=POD, namespace="default", name="hammer", containers=(container,))
        )
        tell_context_bytes(self._broker.limits_dir() / "limits", CONTEXT_MIB * MIB)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._broker.close()

    async def spawn(self, seed: int, seconds: float, plan: Plan) -> Hammerer:
        """Start one process."""
        self._started += 1
        errors = self._folder / f"errors-{self._started}"
        place = {
            LIMITS_DIR_VARIABLE: str(self._broker.limits_dir()),
            COUNTS_DIR_VARIABLE: str(self._broker.counts_dir()),
        }
        environment = self._node.environment(place, self._environment)
        if not plan.may_fork:
            environment["HAMMER_NO_FORK"] = "1"
        numbers = (str(seed), f"{seconds:.3f}", str(plan.threads), str(LARGEST_MIB))
        with errors.open("wb") as error_file:
            process = await asyncio.create_subprocess_exec(
                self._program, *numbers, *plan.paths,
                env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=error_file,
            )  # fmt: skip
        return Hammerer(process, errors)

    async def run(self, plan: Plan) -> Outcome:
        """Hammer, settle, end, and look."""
        chance = random.Random(plan.seed)  # noqa: S311 - a dice, not a secret
        outcome = Outcome()
        end_s = time.monotonic() + plan.seconds
        if plan.is_broker_stopped:
            os.kill(self._broker.pid, signal.SIGSTOP)
        running = [
            await self.spawn(chance.randrange(1 << 20), plan.seconds, plan) for _ in range(plan.processes)
        ]
        try:
            while (left_s := end_s - time.monotonic()) > 0:
                await asyncio.sleep(min(left_s, chance.expovariate(plan.deaths_per_s)))
                at = chance.randrange(plan.processes)
                if running[at].has_ended:
                    outcome.errors.append(running[at].complaint())
                await running[at].kill()
                outcome.kills += 1
                left_s = max(0.1, end_s - time.monotonic())
                running[at] = await self.spawn(chance.randrange(1 << 20), left_s, plan)
            if plan.is_broker_stopped:
                os.kill(self._broker.pid, signal.SIGCONT)
            async with asyncio.timeout(PATIENCE_S):
                await self._settle(running, outcome)
        finally:
            for process in running:
                await process.kill()
        self._look(outcome)
        return outcome

    async def _settle(self, running: list[Hammerer], outcome: Outcome) -> None:
        for process in running:
            tallies = await process.settled()
            if tallies is None:
                outcome.errors.append(process.complaint())
                continue
            for path, (granted, refused) in tallies.items():
                before = outcome.tallies.get(path, (0, 0))
                outcome.tallies[path] = (before[0] + granted, before[1] + refused)
        # The dead are the broker's to clear, the living have given everything back themselves.
        await until(self._has_only(len(running)), "the slots of all dead processes are cleared")
        outcome.left_bytes |= self._left("living")
        for process in running:
            if await process.end() != 0:
                outcome.errors.append(process.complaint())
        await until(self._has_only(0), "all slots are cleared")
        outcome.left_bytes |= self._left("ended")

    def _has_only(self, count: int) -> Callable[[], Awaitable[bool]]:
        async def is_so() -> bool:
            return len(self._broker.owners()) <= count

        return is_so

    def _left(self, when: str) -> dict[str, int]:
        """Words and memory that are not 0; a word that was taken below 0 shows so."""
        counts: Counts = self._broker.counts()
        words = {
            f"{when}: slot {number} of {slot.owner:x}, gpu {gpu}": ctypes.c_int64(used_bytes).value
            for number, slot in enumerate(counts.slots)
            for gpu, used_bytes in enumerate(slot.used_bytes)
        }
        book = {
            f"{when}: book, gpu {gpu}": int(held["used_bytes"])
            for gpu, held in enumerate(self._node.book()["gpus"])
        }
        return {where: left_bytes for where, left_bytes in (words | book).items() if left_bytes}

    def _look(self, outcome: Outcome) -> None:
        outcome.peak_bytes = [int(gpu["peak_bytes"]) for gpu in self._node.book()["gpus"]]
        for peak_bytes, line_mib in zip(outcome.peak_bytes, LINES_MIB, strict=True):
            outcome.over_line_bytes = max(outcome.over_line_bytes, peak_bytes - line_mib * MIB)


def tell_context_bytes(limits_path: Path, context_bytes: int) -> None:
    """Write into a container's limits what a context costs, as the broker does once that was measured."""
    with limits_path.open("r+b") as file:
        limits = Limits.from_buffer_copy(file.read())
        for gpu in limits.gpus:
            gpu.context_bytes = context_bytes
        limits.generation += 2
        file.seek(0)
        file.write(bytes(limits))


@contextlib.asynccontextmanager
async def hammering(
    folder: Path,
    program: Path | None = None,
    preload: Sequence[Path] = (LIBRARY,),
    extra: dict[str, str] | None = None,
) -> AsyncIterator[Hammering]:
    """A broker, a node and a registered container, for the length of a block."""
    async with Hammering(folder, program or compiled("hammer"), preload, extra or {}) as container:
        yield container
