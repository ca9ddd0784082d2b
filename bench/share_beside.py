"""What sharing does to a client that needs little and soon, and what the broker itself needs.

Latency: an inference-like client (2 ms of work every 20 ms, request 20) alone, beside a greedy trainer without
Plimsoll, and beside it with Plimsoll; always from the moment at which a request was due.
The broker: its CPU time while 2, 8, 30 greedy clients share one GPU, in percent of one core.
"""

import asyncio
import os
import time
from typing import Final

from bench.share_cases import MS
from bench.share_figures import percentile
from bench.share_place import Json, Place, Run, Tenant, Work, broker_cpu_s, kernel_name
from tests.hook.broker.conftest import Broker

INFER: Final = Tenant("inference", Work("infer", MS), 20)
TRAINER_KERNELS: Final = (MS, 20 * MS)
LATENCY_SECONDS: Final = 15.0
CLIENTS: Final = (2, 8, 30)
BROKER_SECONDS: Final = 8.0
STARTED_S: Final = 2.0
"""From the first launches to the span in which the broker's time is taken."""
LOOK_S: Final = 0.1


async def latency(here: Place, trainer_ns: int) -> Json:
    """Percentiles of one client's latencies, beside one kind of trainer."""
    trainer = Tenant("trainer", Work("async", trainer_ns), 80)
    alone = await here.run([INFER], LATENCY_SECONDS, is_hooked=False)
    native = await here.run([INFER, trainer], LATENCY_SECONDS, is_hooked=False)
    hooked = await here.run([INFER, trainer], LATENCY_SECONDS)
    return {
        "case": f"latency/{kernel_name(trainer_ns)}",
        "alone_ms": _percentiles(alone),
        "native_ms": _percentiles(native),
        "plimsoll_ms": _percentiles(hooked),
        "share_pct": {
            "native": _shares(native),
            "plimsoll": _shares(hooked),
        },
        "load": round(hooked.load, 2),
    }


def _percentiles(run: Run) -> Json:
    latencies = [us / 1000 for us in run.tenants[0].answer["latencies_us"]]
    return {
        "requests": len(latencies),
        **{f"p{pct}": round(percentile(latencies, pct), 2) for pct in (50, 90, 99)},
    }


def _shares(run: Run) -> list[float]:
    return [round(told.track.share_pct(run.begin_ns, run.end_ns), 2) for told in run.tenants]


async def broker_time(here: Place, clients: int) -> Json:
    """CPU time of the broker beside so many greedy clients of one GPU."""
    request_pct = 100 // clients
    tenants = [Tenant(f"{number}", Work("async", MS), request_pct) for number in range(clients)]
    seen: list[tuple[int, float]] = []
    recording = asyncio.create_task(_record(here.broker, seen), name="the broker's CPU time")
    try:
        run = await here.run(tenants, STARTED_S + BROKER_SECONDS)
    finally:
        recording.cancel()
        await asyncio.wait([recording])
    span = [one for one in seen if run.begin_ns + STARTED_S * 1e9 <= one[0] <= run.end_ns]
    (began_ns, before_s), (ended_ns, after_s) = span[0], span[-1]
    cpu_pct = round(100 * (after_s - before_s) / ((ended_ns - began_ns) / 1e9), 2)
    shares = _shares(run)
    return {
        "case": f"broker/{clients}",
        "broker_cpu_pct": cpu_pct,
        "request_pct": request_pct,
        "share_pct": {"least": min(shares), "most": max(shares), "sum": round(sum(shares), 1)},
        "load": round(os.getloadavg()[0], 2),
    }


async def _record(broker: Broker, into: list[tuple[int, float]]) -> None:
    while True:
        into.append((time.monotonic_ns(), broker_cpu_s(broker)))
        await asyncio.sleep(LOOK_S)
