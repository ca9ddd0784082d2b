"""How soon a fact is an event: from the program's call into the driver to a subscriber's message.

Programs start, load, load again, and are killed, some at once, on a node with settled tasks. A delay counts from just
before the call that puts the fact into the emulator's book, so the measured delay is never too short:

* start: the call that makes the context;
* loaded and reload: the allocation after which memory stands still, so the settle time of the monitor is part of it;
* exit: the kill signal.
"""

import asyncio
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.measures.percentile import percentile
from bench.monitor.monitored_node import GPUS, Json, MonitoredNode
from plimsoll.ids import ProcessKey

FIRST_MIB, MORE_MIB = 800, 500
"""The sizes of a program's load, and of its later rise: far above the 64 MiB at which a rise is a reload."""

SEED = 14


@dataclass(slots=True)
class Delays:
    """Delays in milliseconds, and how many events did not come.

    Attributes:
        start_ms, loaded_ms, reload_ms, exit_ms: one for each program whose event came.
        lost: facts without an event.
    """

    start_ms: list[float] = field(default_factory=list)
    loaded_ms: list[float] = field(default_factory=list)
    reload_ms: list[float] = field(default_factory=list)
    exit_ms: list[float] = field(default_factory=list)
    lost: int = 0


async def measure(here: MonitoredNode, hooked: int, unhooked: int, *, at_once: int) -> Json:
    """Measure this many programs with the hook, then this many without.

    Args:
        here: the node.
        hooked: programs with the hook.
        unhooked: programs without it.
        at_once: how many run at a time. They begin at random moments, so that they meet the monitor's own pace at
            every point.
    """
    with_hook = await _all(here, hooked, at_once, is_hooked=True)
    without = await _all(here, unhooked, at_once, is_hooked=False)
    return {
        "start_ms_p99_hook": _rounded(with_hook.start_ms, 99),
        "start_ms_p50_hook": _rounded(with_hook.start_ms, 50),
        "start_ms_p99_nvml": _rounded(without.start_ms, 99),
        "loaded_ms_p99": _rounded(with_hook.loaded_ms, 99),
        "loaded_ms_p99_nvml": _rounded(without.loaded_ms, 99),
        "reload_ms_p99": _rounded(with_hook.reload_ms, 99),
        "reload_ms_p99_nvml": _rounded(without.reload_ms, 99),
        "exit_ms_p99": _rounded(with_hook.exit_ms + without.exit_ms, 99),
        "latency_lost": with_hook.lost + without.lost,
        "latency_programs": [hooked, unhooked],
    }


def _rounded(values: Sequence[float], percent: float) -> float | None:
    """A percentile in milliseconds; None if no event came."""
    found = percentile(values, percent)
    return None if math.isinf(found) else round(found, 1)


async def _all(here: MonitoredNode, count: int, at_once: int, *, is_hooked: bool) -> Delays:
    chance, delays, numbers = random.Random(SEED), Delays(), iter(range(count))

    async def work() -> None:
        for number in numbers:
            await asyncio.sleep(chance.uniform(0.1, 1.0))
            await _one(here, number % GPUS, delays, is_hooked=is_hooked)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return delays


async def _one(here: MonitoredNode, gpu: int, delays: Delays, *, is_hooked: bool) -> None:
    """One program's life."""
    program = await here.start(gpu, is_hooked=is_hooked)
    try:
        program.send(f"context {gpu}", f"alloc {FIRST_MIB}")
        process = await program.process()
        began, loaded = await program.reported("context"), await program.reported("alloc")
        await _wait(here, process, "started", began["at_ns"], delays.start_ms, delays)
        await _wait(here, process, "loaded", loaded["at_ns"], delays.loaded_ms, delays)
        program.send(f"alloc {MORE_MIB}")
        more = await program.reported("alloc", 2)
        await _wait(here, process, "loaded", more["at_ns"], delays.reload_ms, delays, count=2)
    finally:
        killed_ns = time.monotonic_ns()
        program.kill()
        await program.ended()
    await _wait(here, process, "exited", killed_ns, delays.exit_ms, delays)


async def _wait(  # noqa: PLR0913, PLR0917 - what to wait for, and where to note it
    here: MonitoredNode,
    process: ProcessKey,
    what: str,
    since_ns: int,
    found_ms: list[float],
    delays: Delays,
    count: int = 1,
) -> None:
    """Wait for an event, and note its delay."""
    if not await here.until(lambda: len(here.subscriber.times(process, what)) >= count):
        delays.lost += 1
        return
    found_ms.append((here.subscriber.times(process, what)[count - 1] - since_ns) / 1e6)
