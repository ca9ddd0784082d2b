"""The shares of programs that pause, beside a greedy one.

`jitter` always has work queued unless its run-ahead is short; `loader` waits for each step, and is late with some.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.hook.share.cases import MS, QUICK_SECONDS, SECONDS, US, Demands
from bench.hook.share.figures import met_ratio
from bench.hook.share.shared_node import SharedNode
from bench.hook.share.tenants import Json, Tenant, Workload, kernel_name

GREEDY_KERNELS: Final = (MS, 20 * MS)


@dataclass(frozen=True, slots=True)
class Pausing:
    """A program with this request, beside a greedy one that requests the rest."""

    work: Workload
    request_pct: int
    greedy_ns: int

    @property
    def name(self) -> str:
        """The case's name, for example `pauses/jitter/1ms`."""
        return f"pauses/{self.work.mode}/{kernel_name(self.greedy_ns)}"

    @property
    def is_quick(self) -> bool:
        """Whether it is a case of the quick run."""
        return self.greedy_ns == MS


def cases() -> Iterator[Pausing]:
    """Both programs, beside short and long kernels."""
    for greedy_ns in GREEDY_KERNELS:
        yield Pausing(Workload("jitter", 100 * US), 70, greedy_ns)
        yield Pausing(Workload("loader", 20 * MS), 50, greedy_ns)


async def measure(case: Pausing, here: SharedNode, demands: Demands, *, quick: bool) -> Json:
    """Run one of the cases."""
    demand_pct = await demands.of(case.work, here)
    greedy = Tenant("greedy", Workload("async", case.greedy_ns), 100 - case.request_pct)
    paused = Tenant(case.work.mode, case.work, case.request_pct)
    run = await here.run([paused, greedy], QUICK_SECONDS if quick else SECONDS)
    shares = [result.track.share_pct(run.begin_ns, run.end_ns) for result in run.tenants]
    return {
        "case": case.name,
        "demand_pct": round(demand_pct, 2),
        "request_pct": case.request_pct,
        "share_pct": [round(share, 2) for share in shares],
        f"{case.work.mode}_request_met_ratio": round(met_ratio(shares[0], case.request_pct, demand_pct), 4),
        "load": round(run.load, 2),
    }
