"""KubeShare's two figures of compute shares (Yeh et al., HPDC 2020, §5.2), measured anew, and drawn as SVG.

Figure 6: jobs A (request 0.3, limit 0.6), B (0.4, 0.6), C (0.3, 0.5) arrive one after another; C leaves first. Our
time axis is compressed 40 times: their 200 s are our 5 s. Work that a job alone had queued still runs after an
arrival. That is nothing of 200 s and some points of 5 s, so each phase is judged without its first second, and also
shown whole.
Figure 7: the loss by sharing. The paper varies the token's quota; here the quantum varies, by which a container may
run ahead of its due, as shares without tokens have no quota. In the paper one job alone took the token anew each
quota. Here the work of two greedy tenants of request 50 is compared with that of the same two without the library.
"""

from pathlib import Path
from statistics import fmean
from typing import Final

from bench.hook.gpu_node import GpuNode
from bench.hook.share.cases import MS, US
from bench.hook.share.figures import Track, worst
from bench.hook.share.shared_node import SharedNode, settings_of, shared_node
from bench.hook.share.tenants import Json, RunResult, Tenant, Workload, kernel_name
from simulator.charts import ChartLine, line_chart

COMPRESSED: Final = 40
PHASES: Final = {"A": (0.0, 5.0), "A+B": (5.0, 10.0), "A+B+C": (10.0, 16.5), "A+B again": (16.5, 20.0)}
TARGETS: Final = {
    "A": {"A": 60},
    "A+B": {"A": 50, "B": 50},
    "A+B+C": {"A": 30, "B": 40, "C": 30},
    "A+B again": {"A": 50, "B": 50},
}
"""With C in the third phase the requests sum to 100, so each job gets its own. The paper's job A requested 0.4, and
its job B 0.3."""
SCRIPT: Final = (
    Tenant("A", Workload("async", MS), 30, 60),
    Tenant("B", Workload("async", MS), 40, 60, begin_s=5.0),
    Tenant("C", Workload("async", MS), 30, 50, begin_s=10.0, end_s=16.5),
)
SCRIPT_S: Final = 20.0
STRETCH_NS: Final = 250 * MS
"""The length of one point in the plot."""
COLOURS: Final = {"A": "#1b6ca8", "B": "#c0392b", "C": "#2e8b57"}
SETTLING_S: Final = 1.0
FULL_PCT: Final = 98.0

QUANTA_MS: Final = (5, 10, 20, 40, 80)
QUANTUM_KERNELS: Final = (20 * US, MS)
QUANTUM_SECONDS: Final = 6.0
QUICK_QUANTUM_SECONDS: Final = 4.0
LEAST_DRAWN_PCT: Final = 0.01
"""Noise may make a loss a gain, for which the plot has no room."""


async def figure_6(here: SharedNode) -> tuple[Json, str]:
    """Run the script; returns the numbers and the plot."""
    run = await here.run(SCRIPT, SCRIPT_S)
    whole, phases = _phases(run, 0.0), _phases(run, SETTLING_S)
    errors = {
        name: round(worst([shares[one] - TARGETS[name][one] for one in shares]), 2)
        for name, shares in phases.items()
    }
    result = {
        "case": "kubeshare-6",
        "share_pct": phases,
        "whole_phase_pct": whole,
        "target_pct": TARGETS,
        "error_pts": errors,
        "gpu_pct": {name: round(sum(shares.values()), 1) for name, shares in phases.items()},
        "redistributed_ms": _redistributed_ms(run),
        "load": round(run.load, 2),
    }
    return result, _draw_6(run)


def _phases(run: RunResult, without_s: float) -> dict[str, dict[str, float]]:
    """Shares in each phase, without this much of its beginning."""
    phases = {}
    for name, (begin_s, end_s) in PHASES.items():
        span = (run.begin_ns + int((begin_s + without_s) * 1e9), run.begin_ns + int(end_s * 1e9))
        phases[name] = {
            result.tenant.name: round(result.track.share_pct(*span), 2)
            for result in run.tenants
            if result.tenant.name in TARGETS[name]
        }
    return phases


def _redistributed_ms(run: RunResult) -> float | None:
    """The time from C's end until A and B together have the whole GPU for a window; None for never."""
    end_ns = run.begin_ns + int(PHASES["A+B again"][0] * 1e9)
    tracks = [result.track for result in run.tenants if result.tenant.name != "C"]
    for at_ns in range(end_ns, run.end_ns - STRETCH_NS, 50 * MS):
        if sum(track.share_pct(at_ns, at_ns + STRETCH_NS) for track in tracks) >= FULL_PCT:
            return (at_ns - end_ns) / MS
    return None


def _points(track: Track, run: RunResult, tenant: Tenant) -> tuple[tuple[float, float], ...]:
    begin_ns = run.begin_ns + int(tenant.begin_s * 1e9)
    end_ns = run.begin_ns + int((SCRIPT_S if tenant.end_s is None else tenant.end_s) * 1e9)
    shares = track.shares_pct(begin_ns, end_ns, STRETCH_NS)
    begin_s = (begin_ns - run.begin_ns) / 1e9
    return tuple((begin_s + (at + 0.5) * STRETCH_NS / 1e9, share) for at, share in enumerate(shares))


def _draw_6(run: RunResult) -> str:
    lines = [
        ChartLine(
            f"{result.tenant.name} ({result.tenant.request_pct} %, at most {result.tenant.limit_pct} %)",
            COLOURS[result.tenant.name],
            _points(result.track, run, result.tenant),
        )
        for result in run.tenants
    ]
    title = f"KubeShare, Figure 6: three jobs on one GPU, {COMPRESSED} × as fast"
    ticks = tuple(float(second) for second in range(0, int(SCRIPT_S) + 1, 2))
    return line_chart(title, "s", "share, %", lines, x_ticks=ticks)


async def figure_7(folder: Path, gpu: GpuNode | None, *, quick: bool) -> tuple[list[Json], str | None]:
    """The loss of two greedy tenants by quantum, and at the default; returns numbers and plot.

    If quick, at the default alone, and without a plot.
    """
    rows: list[Json] = []
    by_kernel: dict[int, list[tuple[float, float]]] = {}
    seconds = QUICK_QUANTUM_SECONDS if quick else QUANTUM_SECONDS
    for kernel_ns in QUANTUM_KERNELS:
        async with shared_node(folder, gpu) as here:
            native = await _together(here, kernel_ns, seconds, is_hooked=False)
        by_kernel[kernel_ns] = []
        for quantum_ms in (*(() if quick else QUANTA_MS), None):
            async with shared_node(folder, gpu, **settings_of(quantum_ms)) as here:
                hooked = await _together(here, kernel_ns, seconds, is_hooked=True)
            found = _compared(kernel_ns, quantum_ms, native, hooked)
            rows.append(found)
            if quantum_ms is not None:
                by_kernel[kernel_ns].append((float(quantum_ms), max(found["loss_pct"], LEAST_DRAWN_PCT)))
    return rows, None if quick else _draw_7(rows, by_kernel)


async def _together(here: SharedNode, kernel_ns: int, seconds: float, *, is_hooked: bool) -> RunResult:
    tenants = [Tenant(name, Workload("async", kernel_ns), 50) for name in "AB"]
    return await here.run(tenants, seconds, is_hooked=is_hooked)


def _shares(run: RunResult) -> list[float]:
    return [result.track.share_pct(run.begin_ns, run.end_ns) for result in run.tenants]


def _compared(kernel_ns: int, quantum_ms: int | None, native: RunResult, hooked: RunResult) -> Json:
    would, had = sum(_shares(native)), sum(_shares(hooked))
    return {
        "case": f"quota/{'default' if quantum_ms is None else quantum_ms}/{kernel_name(kernel_ns)}",
        "native_pct": round(would, 2),
        "both_pct": round(had, 2),
        "loss_pct": round(100 * (1 - had / would), 2),
        "share_pct": [round(share, 2) for share in _shares(hooked)],
        "load": round(hooked.load, 2),
    }


def _draw_7(rows: list[Json], by_kernel: dict[int, list[tuple[float, float]]]) -> str:
    colours = dict(zip(by_kernel, COLOURS.values(), strict=False))
    lines = [
        ChartLine(f"kernels of {kernel_name(kernel_ns)}", colours[kernel_ns], tuple(points))
        for kernel_ns, points in by_kernel.items()
    ]
    span = [point[0] for point in next(iter(by_kernel.values()))]
    for kernel_ns in by_kernel:
        name = f"quota/default/{kernel_name(kernel_ns)}"
        level = fmean(row["loss_pct"] for row in rows if row["case"] == name)
        ends = ((span[0], level), (span[-1], level))
        lines.append(ChartLine(f"{kernel_name(kernel_ns)}, default", colours[kernel_ns], ends, dashed=True))
    title = "KubeShare, Figure 7: what two tenants lose, against the quantum"
    return line_chart(title, "quantum, ms", "loss, %", lines)
