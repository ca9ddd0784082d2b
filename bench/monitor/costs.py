"""The costs of monitor and broker on a node of eight GPUs and 64 hooked tasks: idle, busy, and 50 starts a second."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from bench.measures.process_cost import CpuMeter, mapped_mib, resident_mib
from bench.monitor.monitored_node import GPUS, Json, MonitoredNode

RESIDENTS: Final = 64
STARTS_PER_S: Final = 50
HOLD_S: Final = 0.3
"""The life of a task that churns: some 15 of them live at once."""

SETTLED_S: Final = 5.0
"""After the last `loaded` the monitor falls to its slow pace, and buffers of the start are written."""

IDLE: Final = ("--memory", "1Gi", "--hold-seconds", "7200")
CARDS: Final = "node.conf.state"
"""The file in which the emulator keeps its GPUs, mapped into each process that calls the driver. It stands for the
cards, and is no memory of the monitor's."""

BUSY: Final = ("--memory", "1Gi", "--kernel-ms", "20", "--gap-ms", "180", "--seconds", "7200")
"""Each task uses a tenth of a GPU's time, so eight of them keep it busy for most of the time."""


async def measure(here: MonitoredNode, seconds: float) -> Json:
    """Measure all three scenes, each for this many seconds."""
    found: Json = {}
    for name, options in (("idle", IDLE), ("busy", BUSY)):
        async with residents(here, options):
            monitor, broker = CpuMeter(here.monitor_pid), CpuMeter(here.broker_pid)
            await asyncio.sleep(seconds)
            found[f"cpu_{name}_pct"] = round(monitor.core_pct(), 3)
            found[f"broker_{name}_pct"] = round(broker.core_pct(), 3)
            found[f"rss_{name}_mib"] = _resident_mib(here)
    async with residents(here, IDLE):
        found |= await _churn(here, seconds)
    found["rss_mib"] = max(found[f"rss_{name}_mib"] for name in ("idle", "busy", "churn"))
    return found


@contextlib.asynccontextmanager
async def residents(here: MonitoredNode, options: tuple[str, ...]) -> AsyncIterator[None]:
    """64 tasks that have loaded, until the context ends."""
    here.subscriber.forget()
    children = [await here.busy(number % GPUS, *options) for number in range(RESIDENTS)]
    pids = {child.pid for child in children}

    def are(what: str) -> bool:
        return pids <= {process.pid for process, fact in here.subscriber.moments if fact == what}

    try:
        assert await here.until(lambda: are("loaded")), "the tasks did not load"
        await asyncio.sleep(SETTLED_S)
        yield
    finally:
        for child in children:
            child.kill()
        for child in children:
            await child.wait()
        await here.until(lambda: are("exited"))


def _resident_mib(here: MonitoredNode) -> float:
    """The monitor's resident memory without the emulator's cards, in MiB."""
    return round(resident_mib(here.monitor_pid) - mapped_mib(here.monitor_pid, CARDS), 1)


async def _churn(here: MonitoredNode, seconds: float) -> Json:
    """Start tasks at a steady pace, beside the residents."""
    loop = asyncio.get_running_loop()
    monitor, broker, began_s = CpuMeter(here.monitor_pid), CpuMeter(here.broker_pid), loop.time()
    running: set[asyncio.Task[int]] = set()
    pids: set[int] = set()
    while loop.time() < began_s + seconds:
        child = await here.busy(len(pids) % GPUS, "--memory", "64Mi", "--hold-seconds", str(HOLD_S))
        pids.add(child.pid)
        ending = asyncio.create_task(child.wait())
        running.add(ending)
        ending.add_done_callback(running.discard)
        await asyncio.sleep(max(0.0, began_s + len(pids) / STARTS_PER_S - loop.time()))
    took_s = loop.time() - began_s
    found: Json = {
        "cpu_churn_pct": round(monitor.core_pct(), 2),
        "broker_churn_pct": round(broker.core_pct(), 2),
        "rss_churn_mib": _resident_mib(here),
        "churn_starts_per_s": round(len(pids) / took_s, 1),
    }
    await asyncio.gather(*running)

    def untold(what: str) -> int:
        return len(pids - {process.pid for process, fact in here.subscriber.moments if fact == what})

    await here.until(lambda: untold("exited") == 0)
    return found | {"churn_lost": untold("started") + untold("exited")}
