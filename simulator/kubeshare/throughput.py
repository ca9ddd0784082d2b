"""Figures 8a, 8b, 8c and 9: throughput, utilisation and active GPUs, with and without sharing (§5.3)."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from simulator.charts import ChartLine, line_chart
from simulator.kubeshare.cluster import KUBERNETES, KUBESHARE, ClusterSample, Course, run
from simulator.kubeshare.figure import Figure, PaperClaim
from simulator.kubeshare.jobs import GPUS, MOST_BY_KUBERNETES, SPREAD_PCT, Job, arriving

COLOURS: Final = {"Kubernetes": "#c0392b", "KubeShare": "#1b6ca8"}
FREQUENCIES: Final = (1, 2, 3, 4, 6, 9, 12)
MEANS_PCT: Final = (10, 20, 30, 40, 50, 60)
VARIANCES: Final = (0, 1, 2, 3, 4)
BUSY: Final = 9
"""The frequency from which on KubeShare has all jobs that it can, by the paper; for Figures 8b and 8c."""
FIGURE_9_FREQUENCY: Final = 6
"""Above what Kubernetes can finish, and below what KubeShare can: the paper does not give Figure 9's frequency."""
MEAN_PCT, VARIANCE = 30, 2
"""The workload of Figure 9."""
LITERAL: Final = math.sqrt(VARIANCE) / SPREAD_PCT
"""The level whose demands have the variance 2 in squares of a percent, as the mean is in percent.

Such demands differ by a point or two, and are equal in steps of ten.
"""

_Rows = tuple[tuple[float, float, float, float], ...]


def figure_8a(count: int, seeds: Sequence[int]) -> Figure:
    """Throughput by the frequency of jobs."""
    rows = _rows(FREQUENCIES, seeds, lambda f, seed: arriving(count, f, MEAN_PCT, VARIANCE, seed))
    by = {row[0]: row for row in rows}
    ends = [row[1] for row in rows if row[0] >= 3]
    claims = (
        PaperClaim("no difference at the lowest frequency", 0.98 <= by[1][3] <= 1.02),
        PaperClaim(
            "Kubernetes has its most, 50 jobs/min, from frequency 3 on",
            min(ends) >= 0.85 * MOST_BY_KUBERNETES and max(ends) - min(ends) <= 0.1 * MOST_BY_KUBERNETES,
        ),
        PaperClaim("KubeShare reaches 110 jobs/min, within a tenth, at frequency 9", 99 <= by[9][2] <= 121),
        PaperClaim("sharing gives twice the throughput or more at frequency 9", by[9][3] >= 2),
        PaperClaim(
            "KubeShare gains little beyond frequency 9",
            by[12][2] <= 1.1 * by[9][2],
            "the drawn jobs pack well enough for more",
        ),
    )
    return _figure("8a", "jobs/min by frequency of jobs", "frequency", rows, claims)


def figure_8b(count: int, seeds: Sequence[int]) -> Figure:
    """Throughput by the mean demand."""
    rows = _rows(MEANS_PCT, seeds, lambda mean, seed: arriving(count, BUSY, mean, VARIANCE, seed))
    shares, kubernetes = [row[2] for row in rows], [row[1] for row in rows]
    ((*_, literal),) = _rows(
        MEANS_PCT[-1:], seeds, lambda mean, seed: arriving(count, BUSY, mean, LITERAL, seed)
    )
    claims = (
        PaperClaim("Kubernetes does not depend on demand", max(kubernetes) - min(kubernetes) < 1),
        PaperClaim("KubeShare falls as demand grows", all(a >= b for a, b in itertools.pairwise(shares))),
        PaperClaim(
            "2.5 times the throughput, within a fifth, at 10 and 20 %",
            all(2 <= row[3] <= 3 for row in rows[:2]),
        ),
        PaperClaim(
            "no more than a tenth is gained at 60 %", rows[-1][3] <= 1.1, "jobs of 40 % and 60 % share a GPU"
        ),
        PaperClaim("the same, with the variance of 2 read in squares of a percent", literal <= 1.1),
        PaperClaim("KubeShare is never slower by more than 2 %", all(row[3] >= 0.98 for row in rows)),
    )
    return _figure("8b", "jobs/min by mean demand in %", "mean", rows, claims)


def figure_8c(count: int, seeds: Sequence[int]) -> Figure:
    """Throughput by the variance of demand."""
    rows = _rows(VARIANCES, seeds, lambda level, seed: arriving(count, BUSY, MEAN_PCT, level, seed))
    shares, kubernetes = [row[2] for row in rows], [row[1] for row in rows]
    mean = statistics.fmean(shares)
    claims = (
        PaperClaim("Kubernetes does not depend on the variance", max(kubernetes) - min(kubernetes) < 1),
        PaperClaim(
            "KubeShare does not depend on the variance, within a tenth",
            all(abs(one / mean - 1) <= 0.1 for one in shares),
            "jobs of equal demand pack best",
        ),
    )
    return _figure("8c", "jobs/min by variance of demand", "variance", rows, claims)


def _rows(xs: Sequence[float], seeds: Sequence[int], draw: Callable[[float, int], list[Job]]) -> _Rows:
    """By x: the mean throughput of Kubernetes, that of KubeShare, and their ratio."""
    found = []
    for x in xs:
        means = [
            statistics.fmean(run(draw(x, seed), setting).jobs_per_min for seed in seeds)
            for setting in (KUBERNETES, KUBESHARE)
        ]
        found.append((float(x), means[0], means[1], means[1] / means[0]))
    return tuple(found)


def _figure(name: str, title: str, x: str, rows: _Rows, claims: tuple[PaperClaim, ...]) -> Figure:
    def svg() -> str:
        lines = [
            ChartLine(setting, colour, tuple((row[0], row[column]) for row in rows))
            for column, (setting, colour) in enumerate(COLOURS.items(), 1)
        ]
        return line_chart(f"KubeShare, Figure {name}: {title}", x, "jobs/min", lines)

    return Figure(name, title, (x, *COLOURS, "ratio"), rows, claims, svg)


def figure_9(count: int, seed: int) -> Figure:
    """Utilisation and active GPUs over time, in one run."""
    jobs = arriving(count, FIGURE_9_FREQUENCY, MEAN_PCT, VARIANCE, seed)
    kubernetes, kubeshare = run(jobs, KUBERNETES), run(jobs, KUBESHARE)
    end_s = max(kubernetes.makespan_s, kubeshare.makespan_s)
    times = [end_s * step / 20 for step in range(21)]
    rows = tuple(_row_9(time_s, _at(kubernetes, time_s), _at(kubeshare, time_s)) for time_s in times)
    columns = ("s", "used %, Kubernetes", "used %, KubeShare", "active, Kubernetes", "active, KubeShare")
    claims = _claims_9(kubernetes, kubeshare)
    return Figure(
        "9", "utilisation and active GPUs over time", columns, rows, claims, partial(_chart_9, rows)
    )


def _row_9(time_s: float, kubernetes: ClusterSample, kubeshare: ClusterSample) -> tuple[float, ...]:
    return (
        time_s,
        100 * kubernetes.used_part,
        100 * kubeshare.used_part,
        float(kubernetes.active),
        float(kubeshare.active),
    )


def _claims_9(kubernetes: Course, kubeshare: Course) -> tuple[PaperClaim, ...]:
    below = _time_below(kubeshare, GPUS) / kubeshare.makespan_s
    return (
        PaperClaim("KubeShare finishes earlier", kubeshare.makespan_s < 0.8 * kubernetes.makespan_s),
        PaperClaim("KubeShare uses fewer than 32 GPUs most of the time", below > 0.5),
        PaperClaim(
            "the GPUs that are active are used more with KubeShare",
            _used_of_active(kubeshare) > 1.3 * _used_of_active(kubernetes),
        ),
    )


def _chart_9(rows: Sequence[tuple[float, ...]]) -> str:
    active = tuple((row[0], 100 * row[4] / GPUS) for row in rows)
    lines = [
        ChartLine("Kubernetes, used", "#c0392b", tuple((row[0], row[1]) for row in rows)),
        ChartLine("KubeShare, used", "#1b6ca8", tuple((row[0], row[2]) for row in rows)),
        ChartLine("KubeShare, active", "#2e8b57", active, dashed=True),
    ]
    ticks = [row[0] for row in rows[::4]]
    return line_chart("KubeShare, Figure 9: GPUs over time", "s", "% of 32 GPUs", lines, ticks)


def _at(course: Course, time_s: float) -> ClusterSample:
    """The cluster after all events up to a time."""
    return next((one for one in reversed(course.samples) if one.time_s <= time_s), ClusterSample(0.0, 0, 0.0))


def _time_below(course: Course, gpus: int) -> float:
    pairs = zip(course.samples, course.samples[1:], strict=False)
    return sum(after.time_s - one.time_s for one, after in pairs if one.active < gpus)


def _used_of_active(course: Course) -> float:
    """The mean use of an active GPU over the run."""
    pairs = list(zip(course.samples, course.samples[1:], strict=False))
    used = sum((after.time_s - one.time_s) * one.used_part * GPUS for one, after in pairs)
    return used / sum((after.time_s - one.time_s) * one.active for one, after in pairs)
