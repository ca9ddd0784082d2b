"""The replays of a trace as a table, as CSV, and as a picture."""

import csv
import io
from collections.abc import Sequence
from typing import Final

from rich.table import Table

from simulator.charts import ChartLine, line_chart
from simulator.trace.experiment import PolicySummary

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
FROM_PCT: Final = 60
"""The picture begins here: before, every policy places all pods."""


def table(name: str, arrived_pct: int, summaries: Sequence[PolicySummary]) -> Table:
    """Unallocated GPUs when 95, 100 and `arrived_pct` percent were asked for, as far as it went; and failed pods."""
    points = sorted({pct for pct in (95, 100) if pct <= arrived_pct} | {arrived_pct})
    made = Table(title=f"{name}: GPUs without a pod, in percent, and pods without a place")
    made.add_column("policy")
    for pct in points:
        made.add_column(f"@{pct} %", justify="right")
    made.add_column("failed", justify="right")
    has_moves = any(one.moves for one in summaries)
    if has_moves:
        made.add_column("moves", justify="right")
    made.add_column("ms/decision", justify="right")
    for one in summaries:
        shown = [f"{one.unallocated_pct(pct):.2f} ± {one.spread_pct(pct):.2f}" for pct in points]
        moves = [f"{one.moves:.0f}"] if has_moves else []
        made.add_row(one.policy, *shown, f"{one.failed:.0f}", *moves, f"{one.decision_ms:.3f}")
    return made


def as_csv(name: str, summaries: Sequence[PolicySummary]) -> str:
    """A row for each policy, seed and percentage of arrival."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["trace", "policy", "seed", "arrived_pct", "unallocated_pct", "failed_pods"])
    for summary in summaries:
        for one in summary.replays:
            for pct, point in sorted(one.points.items()):
                rows.writerow([name, one.policy, one.seed, pct, f"{point.unallocated_pct:.4f}", point.failed])
    return out.getvalue()


def as_svg(name: str, summaries: Sequence[PolicySummary]) -> str:
    """Unallocated GPUs over arrived ones, a line for each policy."""
    lines = []
    for number, one in enumerate(summaries):
        pcts = sorted(set.intersection(*(set(replay.points) for replay in one.replays)))
        points = tuple((float(pct), one.unallocated_pct(pct)) for pct in pcts if pct >= FROM_PCT) or tuple(
            (float(pct), one.unallocated_pct(pct)) for pct in pcts
        )
        lines.append(ChartLine(one.policy, COLOURS[number % len(COLOURS)], points))
    xs = [x for line in lines for x, _ in line.points]
    ticks = [float(x) for x in range(int(min(xs)) // 10 * 10, int(max(xs)) + 1, 10)]
    return line_chart(f"{name}: GPUs without a pod", "GPUs asked for, %", "%", lines, ticks)
