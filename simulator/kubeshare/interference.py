"""Figures 12 and 13: jobs that slow each other, and anti-affinity that keeps them apart (§5.5).

The paper does not say what its jobs A and B ask for. Their sizes here were chosen with the paper's Figure 12 in view,
so that figure shows only that such jobs exist.
"""

import itertools
import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from plimsoll.locality import NO_LABELS, Locality
from simulator.bars import bar_chart
from simulator.charts import ChartLine, line_chart
from simulator.core.shared_gpu import Load, speeds
from simulator.kubeshare.cluster import KUBERNETES, KUBESHARE, Setting, run
from simulator.kubeshare.figure import Figure, PaperClaim
from simulator.kubeshare.jobs import (
    A_DEMAND_PCT,
    A_REQUEST_PCT,
    B_DEMAND_PCT,
    B_LABEL,
    B_REQUEST_PCT,
    interfering,
)

A: Final = Load(A_REQUEST_PCT, A_DEMAND_PCT)
B: Final = Load(B_REQUEST_PCT, B_DEMAND_PCT)
LARGER_A: Final = Load(45, 30)
"""A job A that asks for more than it uses; see Figure 12's last row."""
RATIOS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)

_SETTINGS: Final[dict[str, tuple[Setting, Locality]]] = {
    "Kubernetes": (KUBERNETES, NO_LABELS),
    "no label": (KUBESHARE, NO_LABELS),
    "anti-affinity": (KUBESHARE, B_LABEL),
}
_COLOURS: Final = {"Kubernetes": "#c0392b", "no label": "#1b6ca8", "anti-affinity": "#2e8b57"}


def figure_12() -> Figure:
    """The slowdown of each of two jobs on one GPU: the time there ÷ the time alone."""
    pairs = {"A+A": (A, A), "B+B": (B, B), "A+B": (A, B), "A′+B": (LARGER_A, B)}
    slower = {name: tuple(1 / speed for speed in speeds(pair)) for name, pair in pairs.items()}
    rows: tuple[tuple[float | str, ...], ...] = tuple((name, *found) for name, found in slower.items())
    return Figure(
        "12",
        "slowdown of two jobs on one GPU",
        ("jobs", "first", "second"),
        rows,
        _claims_12(slower),
        partial(_chart_12, slower),
    )


def _claims_12(slower: Mapping[str, Sequence[float]]) -> tuple[PaperClaim, ...]:
    return (
        PaperClaim("B+B take 1.5 times as long", all(1.4 <= one <= 1.6 for one in slower["B+B"])),
        PaperClaim("pairs with A lose less than a tenth", max(*slower["A+A"], *slower["A+B"]) < 1.1),
        PaperClaim(
            f"also where A requests {LARGER_A.request_pct} % and uses {LARGER_A.demand_pct} % (A′)",
            max(slower["A′+B"]) < 1.1,
        ),
    )


def _chart_12(slower: Mapping[str, Sequence[float]]) -> str:
    series = {"first": [one[0] for one in slower.values()], "second": [one[1] for one in slower.values()]}
    colours = {"first": "#1b6ca8", "second": "#c0392b"}
    return bar_chart("KubeShare, Figure 12: slowdown", "times", list(slower), series, colours, line_at=1.0)


def figure_13(count: int, seeds: Sequence[int]) -> Figure:
    """Throughput by the part of jobs A, in three settings."""
    rows = tuple((ratio, *_throughputs(count, ratio, seeds)) for ratio in RATIOS)
    return Figure(
        "13",
        "jobs/min by part of jobs A",
        ("part of A", *_SETTINGS),
        rows,
        _claims_13(rows),
        partial(_chart_13, rows),
    )


def _throughputs(count: int, a_ratio: float, seeds: Sequence[int]) -> tuple[float, ...]:
    """The mean jobs a minute in each setting."""
    return tuple(
        statistics.fmean(
            run(interfering(count, a_ratio, seed, label), setting).jobs_per_min for seed in seeds
        )
        for setting, label in _SETTINGS.values()
    )


def _claims_13(rows: Sequence[tuple[float, ...]]) -> tuple[PaperClaim, ...]:
    only_b, only_a = rows[0], rows[-1]
    return (
        PaperClaim("with jobs B alone, anti-affinity is as Kubernetes", _alike(only_b[3], only_b[1])),
        PaperClaim(
            "with jobs B alone, sharing without labels is best", only_b[2] > 1.05 * max(only_b[1], only_b[3])
        ),
        PaperClaim(
            "both grow with the part of jobs A",
            all(a[n] <= b[n] for a, b in itertools.pairwise(rows) for n in (2, 3)),
        ),
        PaperClaim(
            "beyond one half, anti-affinity is best",
            all(row[3] > max(row[1], row[2]) for row in rows if 0.5 < row[0] < 1),
        ),
        PaperClaim(
            "with jobs A alone, both are alike and above Kubernetes",
            _alike(only_a[2], only_a[3]) and only_a[2] > 1.2 * only_a[1],
        ),
    )


def _chart_13(rows: Sequence[tuple[float, ...]]) -> str:
    lines = [
        ChartLine(name, colour, tuple((row[0], row[column]) for row in rows))
        for column, (name, colour) in enumerate(_COLOURS.items(), 1)
    ]
    return line_chart("KubeShare, Figure 13: interference", "part of jobs A", "jobs/min", lines)


def _alike(one: float, other: float) -> bool:
    return abs(one / other - 1) < 0.03
