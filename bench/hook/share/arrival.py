"""The delay until an arriving tenant has its share.

The other tenant was alone with an open gate and a deep queue. The program arrives as programs do: its container
is registered, it starts, makes a context, and launches at once. Only that start makes the other tenant queue
less.
"""

import asyncio
import os
import time
from contextlib import AsyncExitStack
from typing import Final

from bench.hook.share.cases import MS
from bench.hook.share.figures import arrival_s
from bench.hook.share.shared_node import SharedNode, track_of
from bench.hook.share.tenants import Json, Tenant, Workload

THERE: Final = Tenant("there", Workload("deep", 20 * MS), 10)
ARRIVING: Final = Tenant("arriving", Workload("async", MS), 90)
HAS_PCT: Final = 85.0
ALONE_S: Final = 3.0
BESIDE_S: Final = 6.0
KERNELS: Final = (MS, 20 * MS)
QUICK_KERNELS: Final = (20 * MS,)


async def measure(here: SharedNode, kernel_ns: int) -> Json:
    """Let one tenant work alone, with kernels of one length, and another arrive."""
    async with AsyncExitStack() as stack:
        book = await stack.enter_async_context(here.watched())
        group = await stack.enter_async_context(asyncio.TaskGroup())
        there = await stack.enter_async_context(here.started(await here.register(THERE), here.node()))
        now_ns = time.monotonic_ns()
        end_ns = now_ns + int((ALONE_S + BESIDE_S) * 1e9)
        group.create_task(there.work(Workload("deep", kernel_ns), now_ns, end_ns), name="there")
        await asyncio.sleep(ALONE_S)
        pod = await here.register(ARRIVING)
        arriving = await stack.enter_async_context(here.started(pod, here.node()))
        answer = await arriving.work(ARRIVING.work, 0, end_ns)
        begin_ns = answer["began_ns"]
    track = track_of(answer, book, arriving.pid)
    soon_s = arrival_s(track, begin_ns, end_ns, HAS_PCT)
    return {
        "case": f"arrival/{kernel_ns // MS}ms",
        "arrival_s": BESIDE_S if soon_s is None else round(soon_s, 3),
        "has_arrived": soon_s is not None,
        "halves_pct": [round(share, 1) for share in track.shares_pct(begin_ns, end_ns, 500 * MS)],
        "load": round(os.getloadavg()[0], 2),
    }
