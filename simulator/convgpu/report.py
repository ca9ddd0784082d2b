"""The experiment's figures for people (tables, charts) and for programs (one JSON object)."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from simulator.charts import ChartLine, line_chart
from simulator.convgpu.experiment import Cell, DrawFigures, draw_figures, level

COLOURS: Final = {"fifo": "#1b6ca8", "best-fit": "#c0392b", "recent-use": "#2e8b57", "random": "#8e5ea2"}

FINISHED: Final = "finished"
SUSPENDED: Final = "suspended"

FIGURES: Final[dict[str, Callable[[Cell], DrawFigures | None]]] = {
    FINISHED: lambda cell: draw_figures(cell.finished_s, cell.paper_finished_s),
    SUSPENDED: lambda cell: draw_figures(cell.suspended_s, cell.paper_suspended_s),
}
"""The reported figures of a cell."""
_TITLES: Final = {
    FINISHED: "All containers finished (Table IV)",
    SUSPENDED: "Average suspended time (Table V)",
}


def table(what: str, rule: str, cells: Sequence[Cell]) -> Table:
    """A row per count; per policy the mean ± standard deviation over draws and the paper's figure, in seconds."""
    policies = list(dict.fromkeys(cell.policy for cell in cells))
    shown = Table(
        title=f"{_TITLES[what]}, s: {rule}",
        caption="ours ± over draws | paper | ours / paper; inside: within the middle 90 % of our draws",
    )
    shown.add_column("containers", justify="right")
    for policy in policies:
        shown.add_column(policy, justify="right")
    for count in dict.fromkeys(cell.count for cell in cells):
        row = {cell.policy: _words(what, cell) for cell in cells if cell.count == count}
        shown.add_row(str(count), *(row[policy] for policy in policies))
    shown.add_section()
    shown.add_row(
        "all", *(_summary(what, [cell for cell in cells if cell.policy == policy]) for policy in policies)
    )
    return shown


def _summary(what: str, cells: Sequence[Cell]) -> str:
    """The level over all counts, and the number of counts whose paper figure lies inside our draws."""
    found = level(cells, cells[0].policy)
    figures = [FIGURES[what](cell) for cell in cells]
    inside = [each.has_paper_inside for each in figures if each is not None and each.paper is not None]
    if found is None:
        return "–"
    return f"× {found[0 if what == FINISHED else 1]:.2f}, {sum(inside)} of {len(inside)} inside"


def _words(what: str, cell: Cell) -> str:
    figures = FIGURES[what](cell)
    if figures is None:
        return f"{cell.stuck_ratio:.0%} of draws stuck"
    papers = "" if figures.paper is None else f" | {figures.paper:.0f} | {figures.ratio:.2f}"
    return f"{figures.mean:.0f} ± {figures.deviation:.0f}{papers}"


def as_json(what: str, cells: Sequence[Cell]) -> dict[str, dict[str, Any]]:
    """Mean, standard deviation, the paper's figure, ratio and percentile among the draws, by policy and count."""
    found: dict[str, dict[str, Any]] = {}
    for cell in cells:
        figures = FIGURES[what](cell)
        stuck = {"stuck_ratio": round(cell.stuck_ratio, 2)} if cell.stuck_ratio else {}
        found.setdefault(cell.policy, {})[str(cell.count)] = (figures.as_json() if figures else {}) | stuck
    return found


def chart(what: str, cells: Sequence[Cell]) -> str:
    """Our four lines, solid, and the paper's, dashed, over the number of containers."""
    lines = []
    for policy, colour in COLOURS.items():
        figures = [(cell.count, FIGURES[what](cell)) for cell in cells if cell.policy == policy]
        known = [(float(count), found) for count, found in figures if found is not None]
        ours = tuple((count, found.mean) for count, found in known)
        papers = tuple((count, found.paper) for count, found in known if found.paper is not None)
        lines += [ChartLine(policy, colour, ours)] if ours else []
        lines += [ChartLine(f"{policy}, paper", colour, papers, dashed=True)] if papers else []
    return line_chart(_TITLES[what], "containers", "s", lines)


def write_charts(folder: Path, cells: Sequence[Cell]) -> list[Path]:
    """Write both charts into a folder, and make it if it is missing; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for what in FIGURES:
        paths.append(folder / f"convgpu-{what}.svg")
        paths[-1].write_text(chart(what, cells))
    return paths
