"""The cost of Plimsoll for a tenant alone on its GPU with limit 100: throughput, and a launch on the open gate.

A native and a hooked process take turns at the same work, a fraction of a second each, on emulated cards of their
own. The loss is the median over the turns of the hooked process's deficit.
"""

import contextlib
import os
import statistics
import time
from collections.abc import AsyncIterator
from itertools import product
from typing import Final

from bench.hook.share.cases import KERNELS, MODES, MS
from bench.hook.share.shared_node import SharedNode
from bench.hook.share.tenants import Json, Tenant, TenantProcess, Workload

TURN_S: Final = 0.06
TURNS: Final = 60
LONG_TURNS: Final = 4
LONG_KERNELS: Final = 5
"""A turn of long kernels lasts as long as this many of them."""
LAUNCH_MS: Final = 8
LAUNCH_TURNS: Final = 150
PAIRS_OF_PROCESSES: Final = 10
QUICK_PAIRS_OF_PROCESSES: Final = 5
"""The addresses of a process's code and data change each of its launches by some nanoseconds."""
AHEAD_NS: Final = 2 * MS


def works() -> list[Workload]:
    """Every mode and kernel."""
    return [Workload(mode, kernel_ns) for mode, kernel_ns in product(MODES, KERNELS)]


async def measure(work: Workload, here: SharedNode) -> Json:
    """Compare throughput, turn by turn."""
    turn_ns = max(int(TURN_S * 1e9), LONG_KERNELS * work.kernel_ns)
    turns = TURNS if work.kernel_ns <= MS else LONG_TURNS
    native: list[float] = []
    hooked: list[float] = []
    async with _sides(here) as (one, other):
        for turn in range(turns):
            # The two alternate in starting first, so that a longer disturbance by a neighbour hits both alike.
            for process, into in ((one, native), (other, hooked))[:: -1 if turn % 2 else 1]:
                into.append(await _turn(process, work, turn_ns))
    losses = [100 * (1 - had / would) for would, had in zip(native, hooked, strict=True)]
    low, middle, high = statistics.quantiles(losses, n=4)
    return {
        "case": f"alone/{work.name}",
        "native_kernels_per_s": round(statistics.median(native), 1),
        "hooked_kernels_per_s": round(statistics.median(hooked), 1),
        "loss_pct": round(middle, 3),
        "loss_quartiles_pct": [round(low, 3), round(high, 3)],
        "load": round(os.getloadavg()[0], 2),
    }


async def measure_launch(here: SharedNode, *, quick: bool) -> Json:
    """The added nanoseconds of a launch of nothing, in bursts of 64, over several pairs of processes."""
    pairs = QUICK_PAIRS_OF_PROCESSES if quick else PAIRS_OF_PROCESSES
    native: list[float] = []
    hooked: list[float] = []
    for _ in range(pairs):
        async with _sides(here) as (one, other):
            for _ in range(LAUNCH_TURNS // PAIRS_OF_PROCESSES):
                for process, into in ((one, native), (other, hooked)):
                    process.order(f"launch {LAUNCH_MS}")
                    into.append(float(await process.line()))
    added = [more - less for less, more in zip(native, hooked, strict=True)]
    low, middle, high = statistics.quantiles(added, n=4)
    return {
        "case": "alone/launch",
        "native_ns": round(statistics.median(native), 1),
        "launch_added_ns": round(middle, 1),
        "launch_added_quartiles_ns": [round(low, 1), round(high, 1)],
        "load": round(os.getloadavg()[0], 2),
    }


@contextlib.asynccontextmanager
async def _sides(here: SharedNode) -> AsyncIterator[tuple[TenantProcess, TenantProcess]]:
    pod = await here.register(Tenant("alone", Workload("async", MS), 30, 100))
    async with here.started(None, here.node("native")) as one, here.started(pod, here.node()) as other:
        yield one, other


async def _turn(process: TenantProcess, work: Workload, turn_ns: int) -> float:
    begin_ns = time.monotonic_ns() + AHEAD_NS
    answer = await process.work(work, begin_ns, begin_ns + turn_ns)
    return float(answer["kernels"] * 1e9 / (answer["ended_ns"] - answer["began_ns"]))
