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
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.hook.gpu_node import GpuNode
from bench.hook.memory.costs import CORES, HAMMER_S, PAIRS, PROCESSES, REPORTED, Compared, MemoryCosts
from bench.hook.memory.hooked_node import HookedNode, hooked_node
from tests.hook.lib.hammer import Outcome, Plan, hammering
from tests.hook.lib.program import Node

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
QUIET_S: Final = 0.03
"""The pause after a start until the broker has handled its messages. The next start must find both cores free."""


async def alone(here: HookedNode, commands: list[str]) -> dict[str, Compared]:
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


async def together(here: HookedNode, command: str) -> Compared:
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


async def start_once(here: HookedNode, node: Node | GpuNode, *, is_hooked: bool) -> float:
    """Milliseconds from before the fork to after cuInit and the first context."""
    began_ns = time.monotonic_ns()
    process = await here.spawn(node, "start", is_hooked=is_hooked)
    took_ms = (await process.number() - began_ns) / 1e6
    await process.end()
    await asyncio.sleep(QUIET_S)
    return took_ms


async def starts(here: HookedNode, live: int, count: int) -> Compared:
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
    async with hammering(folder) as container:
        outcome = await container.run(Plan(seed=int(time.time()), seconds=HAMMER_S))
    assert not outcome.errors, outcome.errors[0]
    return outcome


async def measure(folder: Path, hammer_folder: Path, gpu: GpuNode | None) -> MemoryCosts:
    """Run all measurements, which takes three minutes."""
    pairs = {f"pair {name} {size} {TURN_MS}": (name, size) for name, size in PAIRS}
    launches = {f"launch {name} {TURN_MS}": name for name in LAUNCHES}
    async with hooked_node(folder, gpu) as here:
        single = await alone(here, [*pairs, *launches])
        eight = await together(here, f"pair {REPORTED[0]} {REPORTED[1]} {TURN_MS}")
        crowd, count = (GPU_LIVE, GPU_STARTS) if gpu else (LIVE, STARTS)
        started = {live: await starts(here, live, count) for live in (0, crowd)}
    return MemoryCosts(
        pairs={pair: single[command] for command, pair in pairs.items()},
        eight=eight,
        launches={name: single[command] for command, name in launches.items()},
        starts=started,
        outcome=None if gpu else await hammer(hammer_folder),
        gpu=gpu,
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
