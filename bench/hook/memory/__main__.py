"""The cost of the memory line, and a check that it holds: allocations, launches, starts, and a minute of the hammer.

Processes with and without the preload library take turns within one run, a few milliseconds each. The library's
cost is the median over the turns of hooked less native. The emulated driver's own cost, shown beside it, falls
out, and so does most of the machine's other load. A real broker writes the lines and gets the processes'
messages.

For eight processes on one line, all eight are alive and hold slots and words, but only as many hammer at a time
as the machine has cores: more would measure the run queue. Each has an emulated card of its own of the same
identity, so that they meet in the container's words and not in the emulator's one lock.

With `--gpu` the same runs on this machine's first GPU, whose driver's own cost falls out likewise. All processes
then share the one card. Fewer are alive, as each context takes half a GiB, and the hammer, which compares the
emulator's book with the line, is left out.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.hook.gpu_node import GpuNode
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import GpuUuid
from tests.hook.broker.conftest import MAIN, POD, Broker
from tests.hook.lib.conftest import compile_c
from tests.hook.lib.hammer import SOURCES, Outcome, Plan, hammering
from tests.hook.lib.program import EMULATOR, LIBRARY, MIB, Node

SOURCE: Final = Path(__file__).parent / "program.c"
LINKED: Final = [f"-L{EMULATOR}", "-l:libcuda.so.1", "-lpthread"]

PAIRS: Final = (
    ("cuMemAlloc", 512),
    ("cuMemAlloc", 2 * MIB),
    ("cuMemAllocAsync", 2 * MIB),
    ("cuMemCreate", 2 * MIB),
)
REPORTED: Final = PAIRS[0]
"""The pair whose native cost includes no system call of the emulator, so it has the least noise."""
LAUNCHES: Final = ("cuLaunchKernel", "cuGraphLaunch")

TURNS: Final = 150
TURN_MS: Final = 8
PAIRS_OF_PROCESSES: Final = 10
"""The addresses of a process's code and data change each of its launches by some nanoseconds."""
STARTS: Final = 150
GPU_STARTS: Final = 30
"""A real driver needs half a second or more for each start."""
LIVE: Final = 100
GPU_LIVE: Final = 8
PROCESSES: Final = 8
CORES: Final = len(os.sched_getaffinity(0))
HAMMER_S: Final = 60.0
PATIENCE_S: Final = 120.0
QUIET_S: Final = 0.03
"""The pause after a start until the broker has handled its messages. The next start must find both cores free."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Alternating turns of native and hooked processes, all in the same unit."""

    native: list[float]
    hooked: list[float]

    @property
    def added(self) -> float:
        """The median of each hooked turn less the native one beside it."""
        return statistics.median(
            hooked - native for native, hooked in zip(self.native, self.hooked, strict=True)
        )

    def row(self, name: str, unit: str, scale: float = 1.0) -> str:
        """One line of the table; the last two columns are the quartiles of the added cost."""
        differences = [(h - n) * scale for n, h in zip(self.native, self.hooked, strict=True)]
        low, middle, high = statistics.quantiles(differences, n=4)
        native, hooked = (statistics.median(side) * scale for side in (self.native, self.hooked))
        return f"{name:<44}{unit:>3} {native:>10.3f}{hooked:>10.3f}{middle:>10.3f}{low:>10.3f}{high:>10.3f}"


class Process:
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


class Place:
    """A container under a real broker, and emulated nodes whose first cards have one identity."""

    def __init__(self, folder: Path, broker: Broker, program: Path, gpu: GpuNode | None) -> None:
        self._folder, self._broker, self._program = folder, broker, program
        self._gpu = gpu

    def node(self, name: str) -> Node | GpuNode:
        """An emulated node of one card; with `--gpu` this machine."""
        if self._gpu:
            return self._gpu
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return Node(folder, gpu_count=1, memory_mib=65536, context_mib=64)

    async def spawn(self, node: Node | GpuNode, *arguments: str, is_hooked: bool) -> Process:
        """Start one process."""
        container = {
            LIMITS_DIR_VARIABLE: str(self._broker.limits_dir()),
            COUNTS_DIR_VARIABLE: str(self._broker.counts_dir()),
        }
        environment = node.environment(container, preload=str(LIBRARY) if is_hooked else None)
        return Process(
            await asyncio.create_subprocess_exec(
                self._program, *arguments,
                env=environment, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )
        )  # fmt: skip

    async def vacant(self) -> None:
        """Wait until the broker has cleared the slots of all processes that ended."""
        await self._broker.until_vacant()


@contextlib.asynccontextmanager
async def place(folder: Path, gpu: GpuNode | None) -> AsyncIterator[Place]:
    """A broker that registered one container with a roomy line, and the program."""
    program = folder / "hook_memory"
    compile_c([SOURCE], program, LINKED)
    broker = Broker(folder / "root", {})
    try:
        await broker.start()
        here = Place(folder, broker, program, gpu)
        uuid = GpuUuid(here.node("alone").uuids[0])
        lines = ContainerLines(name=MAIN, lines=(Line(gpu=uuid, line_bytes=32768 * MIB),))
        await broker.client.register(Register(pod=POD, namespace="bench", name="cost", containers=(lines,)))
        yield here
    finally:
        await broker.close()


async def alone(here: Place, commands: list[str]) -> dict[str, Compared]:
    """One native and one hooked process take turns at each command; then two new ones, and so on."""
    node = here.node("alone")
    compared = {command: Compared([], []) for command in commands}
    for _ in range(PAIRS_OF_PROCESSES):
        sides = [await here.spawn(node, is_hooked=is_hooked) for is_hooked in (False, True)]
        for process in sides:
            await process.number()
        for _ in range(TURNS // PAIRS_OF_PROCESSES):
            for command, into in compared.items():
                into.native.append(await sides[0].ask(command))
                into.hooked.append(await sides[1].ask(command))
        for process in sides:
            await process.end()
    await here.vacant()
    return compared


async def together(here: Place, command: str) -> Compared:
    """Eight hooked processes on one line and as many native ones; as many work at a time as there are cores."""
    nodes = [here.node(f"card-{number}") for number in range(PROCESSES)]
    sides = [[await here.spawn(node, is_hooked=is_hooked) for node in nodes] for is_hooked in (False, True)]
    for process in sides[0] + sides[1]:
        await process.number()
    compared = Compared([], [])
    for turn in range(TURNS):
        at_once = [(turn * CORES + number) % PROCESSES for number in range(min(CORES, PROCESSES))]
        for side, into in zip(sides, (compared.native, compared.hooked), strict=True):
            into.append(statistics.fmean(await asyncio.gather(*(side[at].ask(command) for at in at_once))))
    for process in sides[0] + sides[1]:
        await process.end()
    await here.vacant()
    return compared


async def start_once(here: Place, node: Node | GpuNode, *, is_hooked: bool) -> float:
    """Milliseconds from before the fork to after cuInit and the first context."""
    began_ns = time.monotonic_ns()
    process = await here.spawn(node, "start", is_hooked=is_hooked)
    took_ms = (await process.number() - began_ns) / 1e6
    await process.end()
    await asyncio.sleep(QUIET_S)
    return took_ms


async def starts(here: Place, live: int, count: int) -> Compared:
    """Starts beside this many live hooked processes, alternately native and hooked."""
    node = here.node(f"starts-{live}")
    holders = []
    for _ in range(live):
        holders.append(await here.spawn(node, "start", is_hooked=True))
        await holders[-1].number()
    compared = Compared([], [])
    for _ in range(count):
        compared.native.append(await start_once(here, node, is_hooked=False))
        compared.hooked.append(await start_once(here, node, is_hooked=True))
    for holder in holders:
        await holder.end()
    await here.vacant()
    return compared


async def hammer(folder: Path) -> Outcome:
    """Run all operations at once for a minute."""
    program = folder / "program"
    compile_c([*SOURCES], program, LINKED)
    async with hammering(folder, program) as container:
        outcome = await container.run(Plan(seed=int(time.time()), seconds=HAMMER_S))
    assert not outcome.errors, outcome.errors[0]
    return outcome


@dataclass(frozen=True, slots=True)
class Measured:
    """All results, by measurement."""

    pairs: dict[tuple[str, int], Compared]
    eight: Compared
    launches: dict[str, Compared]
    starts: dict[int, Compared]
    outcome: Outcome | None
    """None on a GPU, which has no book."""
    gpu: GpuNode | None

    @property
    def launch(self) -> str:
        """The launching function with the higher added cost."""
        return max(self.launches, key=lambda name: self.launches[name].added)

    def show(self) -> None:
        """Print a table for people."""
        print(f"{'medians of turns, and quartiles of added':<48}", end="")
        print(*(f"{title:>10}" for title in ("native", "hooked", "added", "p25", "p75")), sep="")
        for (name, size), compared in self.pairs.items():
            print(compared.row(f"{name} and free, {size} bytes", "us", 0.001))
        print(self.eight.row(f"{REPORTED[0]}, {PROCESSES} on one line, {CORES} at once", "us", 0.001))
        for name, compared in self.launches.items():
            print(compared.row(name, "ns"))
        for live, compared in self.starts.items():
            print(compared.row(f"start to first context beside {live} live", "ms"))
        print(f"the launch reported is {self.launch}; the pair, {REPORTED[0]} of {REPORTED[1]} bytes")
        if self.outcome:
            killed, tallies = self.outcome.kills, self.outcome.tallies
            print(f"hammer: {HAMMER_S:.0f} s, {killed} killed; granted and refused by who lived to the end:")
            print("  ".join(f"{path} {yes}/{no}" for path, (yes, no) in tallies.items() if yes + no))

    def result(self) -> dict[str, float | str]:
        """The last output line."""
        return {
            "pair_added_us_p50_1proc": round(self.pairs[REPORTED].added / 1000, 3),
            "pair_added_us_p50_8proc": round(self.eight.added / 1000, 3),
            "launch_added_ns": round(self.launches[self.launch].added, 1),
            "startup_ms_p50": round(self.starts[0].added, 2),
            **{
                f"startup_ms_p50_{live}live": round(compared.added, 2)
                for live, compared in self.starts.items()
                if live
            },
            **self._where(),
            "machine": f"{platform.machine()} {platform.system()} {platform.release()}",
            "cores": CORES,
            "load": round(os.getloadavg()[0], 2),
            "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        }

    def _where(self) -> dict[str, float | str]:
        if self.gpu:
            return {"gpu": self.gpu.name, "driver": self.gpu.driver}
        assert self.outcome is not None
        return {
            "hammer_kills": self.outcome.kills,
            "hammer_over_line_bytes": self.outcome.over_line_bytes,
            "hammer_left_bytes": sum(map(abs, self.outcome.left_bytes.values())),
        }


async def measure(folder: Path, hammer_folder: Path, gpu: GpuNode | None) -> Measured:
    """Run all measurements, which takes three minutes."""
    pairs = {f"pair {name} {size} {TURN_MS}": (name, size) for name, size in PAIRS}
    launches = {f"launch {name} {TURN_MS}": name for name in LAUNCHES}
    async with place(folder, gpu) as here:
        single = await alone(here, [*pairs, *launches])
        eight = await together(here, f"pair {REPORTED[0]} {REPORTED[1]} {TURN_MS}")
        crowd, count = (GPU_LIVE, GPU_STARTS) if gpu else (LIVE, STARTS)
        started = {live: await starts(here, live, count) for live in (0, crowd)}
    return Measured(
        {pair: single[command] for command, pair in pairs.items()},
        eight,
        {name: single[command] for command, name in launches.items()},
        started,
        None if gpu else await hammer(hammer_folder),
        gpu,
    )


async def main(*, is_gpu: bool) -> int:
    """Measure, print the results, and end with one JSON line."""
    with (
        tempfile.TemporaryDirectory(prefix="plimsoll-hook-memory-") as folder,
        tempfile.TemporaryDirectory(prefix="plimsoll-hammer-") as hammer_folder,
    ):
        measured = await measure(Path(folder), Path(hammer_folder), GpuNode() if is_gpu else None)
    measured.show()
    print(json.dumps(measured.result()))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.hook.memory", description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", action="store_true", help="measure on this machine's first GPU")
    sys.exit(asyncio.run(main(is_gpu=parser.parse_args().gpu)))
