"""The cases whose shares are judged: one tenant below a limit, and greedy tenants beside each other."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from bench.hook.share.figures import JudgedShare, bound_pts, judge, worst
from bench.hook.share.shared_node import SharedNode
from bench.hook.share.tenants import Json, RunResult, Tenant, Workload, kernel_name

US, MS = 1000, 1_000_000
KERNELS: Final = (20 * US, MS, 20 * MS, 200 * MS)
LONGEST_JUDGED_NS: Final = 20 * MS
"""A kernel cannot be cut. Longer kernels are in the table, with their bound, and not in the largest errors."""
MODES: Final = ("async", "sync", "graph", "duty")
LIMITS: Final = (30, 50, 60)
STREAMS: Final = (16, 256, 500, 2000)
STREAMS_LIMIT: Final = 20
PAIRS: Final = ((30, 70), (10, 90), (50, 50))
TRIPLE: Final = (20, 30, 50)
QUICK: Final = (
    "cap/30/async/20us",
    "cap/30/async/20ms",
    "cap/60/sync/1ms",
    "cap/60/sync/20us",
    "cap/60/duty/1ms",
    "streams/500",
    "tenants/30-70/20us-1ms",
    "tenants/10-90/1ms-20ms",
    "tenants/20-30-50/20us-1ms-20ms",
)
"""The cases of the quick run."""

SECONDS: Final = 8.0
QUICK_SECONDS: Final = 4.0
DEMAND_SECONDS: Final = 4.0
QUICK_DEMAND_SECONDS: Final = 2.0
DEMAND_RUNS: Final = 2
"""The largest result counts, as other load can only lower a demand.

The time holds ten whole periods of the longest duty.
"""
SETTLE_S: Final = 0.2

CAP_PTS, RIPPLE_PTS, TENANTS_PTS = 1.0, 3.0, 1.0
"""The largest error and ripple that the project accepts."""


@dataclass(frozen=True, slots=True)
class ShareCase:
    """Tenants beside each other."""

    name: str
    tenants: tuple[Tenant, ...]

    @property
    def longest_ns(self) -> int:
        """The longest kernel of any tenant."""
        return max(tenant.work.kernel_ns for tenant in self.tenants)


def caps() -> Iterator[ShareCase]:
    """One tenant alone, for every limit, mode and kernel."""
    for limit_pct, mode, kernel_ns in product(LIMITS, MODES, KERNELS):
        work = Workload(mode, kernel_ns)
        yield ShareCase(f"cap/{limit_pct}/{work.name}", (Tenant("alone", work, limit_pct, limit_pct),))


def streams() -> Iterator[ShareCase]:
    """One tenant alone that launches short kernels into many streams."""
    for count in STREAMS:
        work = Workload("fan-out", 20 * US, count)
        yield ShareCase(f"streams/{count}", (Tenant("alone", work, STREAMS_LIMIT, STREAMS_LIMIT),))


def pairs() -> Iterator[ShareCase]:
    """Two greedy tenants with every pair of kernels. For equal requests the order of the two does not matter."""
    for requests, kernels in product(PAIRS, product(KERNELS, repeat=2)):
        if len(set(requests)) == 2 or kernels[0] <= kernels[1]:
            yield _greedy(requests, kernels)


def triples() -> Iterator[ShareCase]:
    """Three greedy tenants.

    The cases are the mixtures of three equal lengths, and two sets of three lengths in every rotation, of 64 in all.
    """
    for kernel_ns in KERNELS:
        yield _greedy(TRIPLE, (kernel_ns,) * 3)
    for first, second, third in (KERNELS[:3], (KERNELS[0], KERNELS[1], KERNELS[3])):
        for kernels in ((first, second, third), (second, third, first), (third, first, second)):
            yield _greedy(TRIPLE, kernels)


def _greedy(requests: Sequence[int], kernels: Sequence[int]) -> ShareCase:
    tenants = tuple(
        Tenant(f"{request_pct}%", Workload("async", kernel_ns), request_pct)
        for request_pct, kernel_ns in zip(requests, kernels, strict=True)
    )
    names = "-".join(map(kernel_name, kernels))
    return ShareCase(f"tenants/{'-'.join(map(str, requests))}/{names}", tenants)


class Demands:
    """The demand of each work, measured once, alone and without the library."""

    def __init__(self, *, quick: bool) -> None:
        """No demand is measured yet."""
        self.known_pct: dict[Workload, float] = {}
        self._seconds, self._runs = (QUICK_DEMAND_SECONDS, 1) if quick else (DEMAND_SECONDS, DEMAND_RUNS)

    async def of(self, work: Workload, here: SharedNode) -> float:
        """The demand in percent of the GPU."""
        if work not in self.known_pct:
            self.known_pct[work] = max([await self._once(work, here) for _ in range(self._runs)])
        return self.known_pct[work]

    async def _once(self, work: Workload, here: SharedNode) -> float:
        run = await here.run([Tenant("native", work)], self._seconds, is_hooked=False)
        return run.tenants[0].track.share_pct(run.begin_ns, run.end_ns)


async def measure(case: ShareCase, here: SharedNode, demands: Demands, *, quick: bool) -> Json:
    """Run one case, and judge it."""
    targets = [
        min(tenant.limit_pct, await demands.of(tenant.work, here)) if len(case.tenants) == 1
        # Greedy tenants want the whole GPU, and their requests sum to 100.
        else float(tenant.request_pct)
        for tenant in case.tenants
    ]  # fmt: skip
    await asyncio.sleep(SETTLE_S)
    run = await here.run(case.tenants, QUICK_SECONDS if quick else SECONDS)
    judged = [
        judge(result.track, target_pct, run.begin_ns, run.end_ns)
        for result, target_pct in zip(run.tenants, targets, strict=True)
    ]
    return row(case, run, judged)


def row(case: ShareCase, run: RunResult, judged: Sequence[JudgedShare]) -> Json:
    """A case for the table; each list holds one figure per tenant."""
    is_cap = len(case.tenants) == 1
    seconds = (run.end_ns - run.begin_ns) / 1e9
    errors = [one.error_pts for one in judged]
    ripples = [one.ripple_pts for one in judged]
    launch_ns = max(tenant.work.launch_ns for tenant in case.tenants)
    bounds = {"bound_pts": bound_pts(CAP_PTS if is_cap else TENANTS_PTS, launch_ns, seconds)}
    if is_cap:
        bounds["ripple_bound_pts"] = bound_pts(RIPPLE_PTS, launch_ns, 1.0)
    return {
        "case": case.name,
        "target_pct": _rounded(one.target_pct for one in judged),
        "share_pct": _rounded(one.share_pct for one in judged),
        "kernels_per_s": _rounded(result.throughput for result in run.tenants),
        "error_pts": round(worst(errors), 2),
        "ripple_pts": round(max(ripples), 2),
        **bounds,
        "seconds_pct": [_rounded(one.seconds_pct) for one in judged],
        "is_judged": case.longest_ns <= LONGEST_JUDGED_NS,
        "load": round(run.load, 2),
    }


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 2) for value in values]
