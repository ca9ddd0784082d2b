"""The latency of clients that need little and soon, with and without the library at the same time.

Serving: 2 ms of work every 20 ms, request 20, beside a greedy trainer of request 80. Light: several clients, each
with 1 ms of work as often as its request allows, give or take a tenth. Their requests are whole percentages, as
equal as possible, and sum to the demand. A latency begins when the work was due.
"""

from collections.abc import Sequence
from typing import Final

from bench.hook.share.cases import MS
from bench.hook.share.figures import parts_of
from bench.hook.share.shared_node import SharedNode, broker_cpu_s
from bench.hook.share.tenants import Json, RunResult, Tenant, Workload, kernel_name
from bench.measures.percentile import percentile

SERVING: Final = Tenant("serving", Workload("infer", MS, 20 * MS), 20)
TRAINER_PCT: Final = 80
TRAINER_KERNELS: Final = (MS, 20 * MS, 200 * MS)
QUICK_TRAINERS: Final = (MS, 20 * MS)
SERVING_SECONDS, QUICK_SERVING_SECONDS = 15.0, 8.0
CLIENTS: Final = (3, 9, 27)
DEMANDS: Final = (30, 60, 90)
QUICK_LIGHT: Final = ((9, 60), (9, 90))
PLACES: Final = 1000
"""Random numbers between the first of two clients: more than one draws in a run. So clients are out of step, and with
and without the library each client's requests are due at the same moments."""
LIGHT_SECONDS, QUICK_LIGHT_SECONDS = 8.0, 5.0


async def serving(here: SharedNode, trainer_ns: int, *, quick: bool) -> Json:
    """Measure one serving client beside one kind of trainer."""
    trainer = Tenant("trainer", Workload("async", trainer_ns), TRAINER_PCT)
    seconds = QUICK_SERVING_SECONDS if quick else SERVING_SECONDS
    native, hooked = await here.side_by_side([SERVING, trainer], seconds)
    name = f"latency/serving/{kernel_name(trainer_ns)}"
    return _compared(name, native, hooked, served=1)


async def light(here: SharedNode, clients: int, demand_pct: int, *, quick: bool) -> Json:
    """Measure this many light clients with this total demand."""
    tenants = light_clients(clients, demand_pct)
    before_s = broker_cpu_s(here.broker)
    seconds = QUICK_LIGHT_SECONDS if quick else LIGHT_SECONDS
    native, hooked = await here.side_by_side(tenants, seconds)
    row = _compared(f"latency/light/{clients}/{demand_pct}", native, hooked, served=clients)
    done, would = (sum(result.answer["kernels"] for result in run.tenants) for run in (hooked, native))
    row["light_throughput_ratio"] = round(done / would, 4)
    row["broker_core_pct"] = round(100 * (broker_cpu_s(here.broker) - before_s) / seconds, 2)
    return row


def light_clients(clients: int, demand_pct: int) -> list[Tenant]:
    """Light clients, each of which wants its request."""
    return [
        Tenant(
            f"light {number}", Workload("light", MS, 100 * MS // request_pct, PLACES * number), request_pct
        )
        for number, request_pct in enumerate(parts_of(demand_pct, clients))
    ]


def _compared(name: str, native: RunResult, hooked: RunResult, served: int) -> Json:
    """The latencies of the first this many tenants together."""
    ratio = _latencies(hooked, served, 99) / _latencies(native, served, 99)
    return {
        "case": name,
        "native_ms": _percentiles(native, served),
        "plimsoll_ms": _percentiles(hooked, served),
        "latency_p99_ratio": round(ratio, 3),
        "native_share_pct": _shares(native, served),
        "share_pct": _shares(hooked, served),
        "load": round(hooked.load, 2),
    }


def _latencies(run: RunResult, served: int, pct: float) -> float:
    return percentile([us / 1000 for us in _all_us(run, served)], pct)


def _percentiles(run: RunResult, served: int) -> Json:
    counted = {"requests": len(_all_us(run, served))}
    return counted | {f"p{pct}": round(_latencies(run, served, pct), 2) for pct in (50, 90, 99)}


def _all_us(run: RunResult, served: int) -> Sequence[int]:
    return [us for result in run.tenants[:served] for us in result.answer["latencies_us"]]


def _shares(run: RunResult, served: int) -> list[float]:
    """The shares of all served clients together, and of each other tenant."""
    shares = [result.track.share_pct(run.begin_ns, run.end_ns) for result in run.tenants]
    return [round(share, 2) for share in (sum(shares[:served]), *shares[served:])]
