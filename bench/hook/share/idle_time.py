"""A greedy program beside one that pauses, both with request 45: the time that the first leaves, and its own.

A server computes what others ask of it, with 30 % of the GPU. It runs the same beside others, so the greedy program
should have all that the server leaves. A loop launches its next kernel a while after the last has ended. It is slower
beside others, so its request comes first, and the GPU may idle for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.hook.share.cases import MS, US, Demands
from bench.hook.share.figures import S, met_ratio
from bench.hook.share.shared_node import SharedNode
from bench.hook.share.tenants import Json, Tenant, Workload, kernel_name

REQUEST_PCT: Final = 45
SERVED: Final = ((MS, 3300 * US), (5 * MS, 16_700 * US))
LOOPS: Final = ((MS, 2300 * US), (5 * MS, 4 * MS), (20 * MS, 18 * MS))
GREEDY_NS: Final = MS
WARM_S: Final = 4.0
"""The broker tries in this time what it is worth to hold the greedy program."""
SECONDS, QUICK_SECONDS = 16.0, 6.0


@dataclass(frozen=True, slots=True)
class Paused:
    """A program that pauses; `work.number` is the time from request to request, or from end to launch."""

    work: Workload

    @property
    def name(self) -> str:
        """The case's name, for example `idle/random/1ms`."""
        return f"idle/{self.work.mode}/{kernel_name(self.work.kernel_ns)}"

    @property
    def is_quick(self) -> bool:
        """Whether it is a case of the quick run."""
        return self.work.kernel_ns == 5 * MS


def cases() -> Iterator[Paused]:
    """Servers with regular and with random requests, and loops."""
    for kernel_ns, each_ns in SERVED:
        yield Paused(Workload("light", kernel_ns, each_ns))
        yield Paused(Workload("random", kernel_ns, each_ns))
    for kernel_ns, pause_ns in LOOPS:
        yield Paused(Workload("loop", kernel_ns, pause_ns))


async def measure(case: Paused, here: SharedNode, demands: Demands, *, quick: bool) -> Json:
    """Run one of the cases. Time counts from `WARM_S` on."""
    demand_pct = await demands.of(case.work, here)
    tenants = [
        Tenant(case.work.mode, case.work, REQUEST_PCT),
        Tenant("greedy", Workload("async", GREEDY_NS), REQUEST_PCT),
    ]
    run = await here.run(tenants, WARM_S + (QUICK_SECONDS if quick else SECONDS))
    begin_ns = run.begin_ns + int(WARM_S * S)
    paused_pct, greedy_pct = (result.track.share_pct(begin_ns, run.end_ns) for result in run.tenants)
    figures = {
        "work_conserving_ratio": round(greedy_pct / (100 - paused_pct), 4),
        "idle_while_wanted_pct": round(100 - paused_pct - greedy_pct, 2),
    }
    if case.work.mode == "loop":
        met = met_ratio(paused_pct, REQUEST_PCT, demand_pct)
        figures = {"closed_loop_request_met_ratio": round(met, 4)}
    return {
        "case": case.name,
        "demand_pct": round(demand_pct, 2),
        "share_pct": [round(paused_pct, 2), round(greedy_pct, 2)],
        **figures,
        "load": round(run.load, 2),
    }
