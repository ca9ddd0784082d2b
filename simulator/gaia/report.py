"""The experiments' figures for people (tables, charts) and for programs (one JSON object)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from simulator.charts import ChartLine, line_chart
from simulator.gaia.experiment import Frequencies, Training
from simulator.gaia.paper import CASES, EMPTY, FIGURE_8A, LINKS
from simulator.gaia.schedulers import SCHEDULERS
from simulator.gaia.tree import LevelOrder, access_tree

COLOURS: Final = {"gaia": "#1b6ca8", "topology": "#2e8b57", "kubernetes": "#c0392b"}

WHY_NOT: Final = {
    ("topology", "I, 1 GPU"): "on purpose: a single GPU leaves the cheapest pair whole",
    ("kubernetes", "II, container 2: 0.4"): "cannot ask for a part of a GPU",
    ("kubernetes", "II, container 3: 0.1"): "cannot ask for a part of a GPU",
}
"""The reasons for which a scheduler's sets are not those of the paper."""
_UNAWARE: Final = "knows no links"

Times = Mapping[str, Mapping[str, float]]
"""Microseconds of a decision, by scheduler and case."""


def tree_lines() -> list[str]:
    """The tree in the paper's order, in both states."""
    tree = access_tree(LINKS, LevelOrder.PAPER)
    return [
        "Empty node (Figure 7):",
        *tree.lines(EMPTY, depth=1),
        "After one GPU was given (Figure 8a):",
        *tree.lines(FIGURE_8A, depth=1),
    ]


def frequency_table(found: Sequence[Frequencies]) -> Table:
    """A row per case: the paper's sets with their frequencies, and each scheduler's."""
    shown = Table(title="Which GPUs were given, and how often (Tables I–IV)")
    for name in ("case", "paper", *SCHEDULERS):
        shown.add_column(name)
    for case in CASES:
        row = [_sets(one.counts) + _reason(one) for one in found if one.case is case]
        shown.add_row(case.table, _sets(case.frequencies), *row)
    return shown


def _sets(counts: Mapping[tuple[int, ...], int]) -> str:
    return ", ".join(
        f"{'&'.join(map(str, gpus)) if gpus else 'none'}: {count}" for gpus, count in counts.items()
    )


def reason(one: Frequencies) -> str:
    """Why a scheduler's sets are not those of the paper; empty where they are."""
    if one.is_as_published:
        return ""
    return WHY_NOT.get((one.scheduler, one.case.table), _UNAWARE)


def _reason(one: Frequencies) -> str:
    return f"\n({why})" if (why := reason(one)) else ""


def time_table(times: Times) -> Table:
    """A row per case: the median time of a decision under each scheduler, in µs."""
    shown = Table(
        title="Time of a decision, µs (Figure 10)", caption="on this machine, so it differs from run to run"
    )
    for name in ("case", *times):
        shown.add_column(name, justify="right")
    for case in CASES:
        shown.add_row(case.table, *(f"{by_case[case.table]:.1f}" for by_case in times.values()))
    return shown


def training_table(found: Sequence[Training]) -> Table:
    """A row per part of communication: the mean and the slowest duration under each scheduler."""
    shown = Table(
        title="Duration of two jobs of two GPUs (Figures 11 and 12)",
        caption="mean, and slowest, relative to a job alone on the nearest two GPUs",
    )
    shown.add_column("communication, %", justify="right")
    for name in SCHEDULERS:
        shown.add_column(name, justify="right")
    for part in dict.fromkeys(one.communication_pct for one in found):
        row = (f"{one.mean:.2f}, {one.slowest:.2f}" for one in found if one.communication_pct == part)
        shown.add_row(str(part), *row)
    return shown


def as_json(found: Sequence[Frequencies], times: Times, trained: Sequence[Training]) -> dict[str, Any]:
    """All figures for the line of JSON."""
    tables: dict[str, dict[str, Any]] = {}
    for one in found:
        counts = {"&".join(map(str, gpus)): count for gpus, count in one.counts.items()}
        why = {"why_not": reason(one)} if reason(one) else {}
        tables.setdefault(one.scheduler, {})[one.case.table] = {
            "gpus": counts,
            "as_published": one.is_as_published,
            **why,
        }
    durations: dict[str, dict[str, float]] = {}
    for job in trained:
        durations.setdefault(job.scheduler, {})[str(job.communication_pct)] = round(job.mean, 3)
    rounded = {name: {case: round(us, 1) for case, us in by_case.items()} for name, by_case in times.items()}
    return {"tables": tables, "decision_us": rounded, "training": durations}


def write_charts(folder: Path, times: Times, trained: Sequence[Training]) -> list[Path]:
    """Write both charts into a folder, and make it if it is missing; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    timed = [
        ChartLine(
            name, COLOURS[name], tuple((float(at), us) for at, us in enumerate(by_case.values(), start=1))
        )
        for name, by_case in times.items()
    ]
    jobs = [
        ChartLine(
            name,
            COLOURS[name],
            tuple((float(one.communication_pct), one.mean) for one in trained if one.scheduler == name),
        )
        for name in SCHEDULERS
    ]
    charts = {
        "gaia-times.svg": line_chart(
            "Time of a decision (Figure 10)", "case, in the tables' order", "µs", timed
        ),
        "gaia-training.svg": line_chart(
            "Two jobs of two GPUs (Figure 12)", "communication, %", "duration", jobs
        ),
    }
    for name, chart in charts.items():
        (folder / name).write_text(chart)
    return [folder / name for name in charts]
