"""The live table of the placer's state: nodes, GPUs, scores, tasks and pods."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from plimsoll.events import Phase
from plimsoll.ids import PodUid
from plimsoll.placer_api.http import GpuRow, PodRow, State
from plimsoll.quantity import format_bytes

BAR_CELLS = 16

_PHASE_STYLES = {"Pending": "yellow", "Running": "cyan", "Succeeded": "green", "Failed": "red"}
_TASK_MARKS = {Phase.STARTED: "·", Phase.LOADING: "▲", Phase.LOADED: "●", Phase.EXITED: "✗"}


def render(state: State, footer: str = "") -> RenderableType:
    """The table of a state; `footer` is a text line beneath it."""
    return Group(_nodes(state), _pods(state), Text(footer, style="dim"))


def _nodes(state: State) -> Table:
    names = {pod.uid: pod.name for pod in state.pods}
    table = Table(title="GPUs, best node first", title_justify="left", expand=True)
    for column in ("node", "gpu", "memory used", "promised free", "share free", "idle", "score"):
        table.add_column(column, no_wrap=True)
    table.add_column("tasks  (· started  ▲ loading  ● loaded)", ratio=1)
    for node in state.nodes:
        for row in node.gpus:
            table.add_row(node.node, *_gpu_cells(row), _tasks(row, names))
        table.add_section()
    return table


def _gpu_cells(row: GpuRow) -> tuple[RenderableType, ...]:
    return (
        str(row.index),
        Text.assemble(_bar(row.used_bytes / row.usable_bytes), f" {format_bytes(row.used_bytes):>6}"),
        format_bytes(row.free_bytes),
        f"{row.free_share_pct} %",
        f"{row.idle_pct:.0f} %",
        f"{row.score:.3f}",
    )


def _bar(ratio: float) -> Text:
    full = round(min(max(ratio, 0.0), 1.0) * BAR_CELLS)
    style = "red" if ratio > 0.9 else "yellow" if ratio > 0.7 else "green"
    return Text.assemble(("█" * full, style), ("░" * (BAR_CELLS - full), "dim"))


def _tasks(row: GpuRow, names: dict[PodUid, str]) -> str:
    shown = []
    for task in row.tasks:
        whose = names.get(task.pod, "?") if task.pod is not None else f"pid {task.pid}"
        shown.append(f"{_TASK_MARKS[task.phase]} {whose} {format_bytes(task.used_bytes)}")
    return "  ".join(shown)


def _pods(state: State) -> Table:
    table = Table(title="Pods", title_justify="left", expand=True)
    for column in ("pod", "phase", "node"):
        table.add_column(column, no_wrap=True)
    table.add_column("why", ratio=1, overflow="ellipsis", no_wrap=True)
    for pod in state.pods:
        table.add_row(
            pod.name, Text(pod.phase, style=_PHASE_STYLES.get(pod.phase, "")), pod.node or "–", _why(pod)
        )
    return table


def _why(pod: PodRow) -> str:
    if pod.phase == "Failed" and pod.exit_code is not None:
        return f"exit code {pod.exit_code}: {pod.message}" if pod.message else f"exit code {pod.exit_code}"
    return pod.message
