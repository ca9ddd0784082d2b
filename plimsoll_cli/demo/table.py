"""The live table of the placer's state: nodes, GPUs, scores, tasks and pods."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plimsoll.events import Phase
from plimsoll.ids import PodUid
from plimsoll.placer_api.http import GpuRow, PodRow, State
from plimsoll.quantity import format_bytes

BAR_CELLS = 8
FIXED_LINES = 12
"""The title, headings, rules, blank lines, the number of pods that are left out, and the footer."""

_ENDED = ("Succeeded", "Failed")

_PHASE_STYLES = {"Pending": "yellow", "Running": "cyan", "Succeeded": "green", "Failed": "red"}
_TASK_MARKS = {Phase.STARTED: "·", Phase.LOADING: "▲", Phase.LOADED: "●", Phase.EXITED: "✗"}


def render(state: State, footer: str = "", height: int | None = None) -> RenderableType:
    """The table of a state.

    Args:
        state: the placer's.
        footer: a line beneath the table.
        height: the lines of the screen; pods that have ended are left out where it has no room for all.
    """
    # On a narrow screen each task of a GPU takes a line.
    gpus = sum(max(1, len(gpu.tasks)) for node in state.nodes for gpu in node.gpus)
    room = len(state.pods) if height is None else max(1, height - gpus - FIXED_LINES)
    return Group(_nodes(state), _pods(state, room), Text(footer, style="dim"))


def _nodes(state: State) -> Table:
    names = {pod.uid: pod.name for pod in state.pods}
    title = "GPUs, best node first   · started  ▲ loading  ● loaded"
    table = Table(title=title, title_justify="left", expand=True, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("gpu", "memory held", "free", "share free", "idle"):
        table.add_column(column, no_wrap=True)
    table.add_column("tasks", ratio=1, min_width=16)
    for node in state.nodes:
        for row in node.gpus:
            table.add_row(f"{node.node}/{row.index}", *_gpu_cells(row), _tasks(row, names))
    return table


def _gpu_cells(row: GpuRow) -> tuple[RenderableType, ...]:
    return (
        Text.assemble(_bar(row.used_bytes / row.usable_bytes), f" {format_bytes(row.used_bytes):>6}"),
        format_bytes(row.free_bytes),
        f"{row.free_share_pct} %",
        f"{row.idle_pct:.0f} %",
    )


def _bar(ratio: float) -> Text:
    full = round(min(max(ratio, 0.0), 1.0) * BAR_CELLS)
    style = "red" if ratio > 0.9 else "yellow" if ratio > 0.7 else "green"
    return Text.assemble(("█" * full, style), ("░" * (BAR_CELLS - full), "dim"))


def _tasks(row: GpuRow, names: dict[PodUid, str]) -> str:
    shown: list[str] = []
    for task in row.tasks:
        whose = names.get(task.pod, "?") if task.pod is not None else f"pid {task.pid}"
        shown.append(f"{_TASK_MARKS[task.phase]}{whose}")  # one word, so that no line breaks within
    return " ".join(shown)


def _pods(state: State, room: int) -> Table:
    table = Table(expand=True, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("pod", "phase", "node"):
        table.add_column(column, no_wrap=True)
    table.add_column("why", ratio=1, overflow="ellipsis", no_wrap=True)
    first = sorted(state.pods, key=lambda pod: pod.phase in _ENDED)[:room]
    for pod in first:
        table.add_row(
            pod.name, Text(pod.phase, style=_PHASE_STYLES.get(pod.phase, "")), pod.node or "–", _why(pod)
        )
    if more := len(state.pods) - len(first):
        table.add_row(f"… {more} more", "", "", "")
    return table


def _why(pod: PodRow) -> str:
    if pod.phase == "Failed" and pod.exit_code is not None:
        return f"exit code {pod.exit_code}: {pod.message}" if pod.message else f"exit code {pod.exit_code}"
    return pod.message
