"""`plimsoll nodes`: the nodes that report, each with the sums of its GPUs, the best first."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from plimsoll.gpu_events import HealthClass
from plimsoll.placer_api.http import NodeRow
from plimsoll.quantity import format_bytes
from plimsoll_cli.asking import Where
from plimsoll_cli.columns import aligned
from plimsoll_cli.gpus import node_states, nodes_of, state_heading
from plimsoll_cli.output import DOCUMENTS, document, note, printable

HEADINGS: Final = ("NODE", "GPUS", "MEMORY", "FREE", "LARGEST", "SHARE", "IDLE", "TASKS")
"""A node's columns: the number of its GPUs; memory in use and usable; memory that no pod was promised, and the most
of it on one GPU; compute share that no pod was promised, in percent of one GPU; average of idle time; tasks. The
last column has the states that keep pods away."""

MORE_HEADINGS: Final = ("SCORE", "REPORT", "MODELS")


async def nodes(where: Where, model: str | None, form: str, width: int | None) -> str:
    """The text of the command; writes a line to standard error where there is no such node.

    Args:
        where: the placer.
        model: only nodes that have a GPU of this model.
        form: `table`, `wide`, `json` or `yaml`.
        width: cut lines of the table to this many columns.

    Raises:
        NoPlacerError, PlacerRefusedError: as of `nodes_of`.
    """
    found = await nodes_of(where, None, model)
    if form in DOCUMENTS:
        return document({"items": found}, form)
    if not found:
        note("plimsoll: " + ("no node has such a GPU" if model else "no node has reported"))
    return "".join(line + "\n" for line in shown(found, wide=form == "wide", width=width))


def shown(found: Iterable[NodeRow], *, wide: bool = False, width: int | None = None) -> Iterator[str]:
    """The lines for people, the headings first; nothing where there is no node."""
    ranked = sorted(found, key=lambda node: (-node.score, node.node))
    rows = [(*_figures(node), *(_more(node) if wide else ()), _note(node)) for node in ranked]
    if rows:
        yield from aligned(
            [(*HEADINGS, *(MORE_HEADINGS if wide else ()), state_heading(rows)), *rows], "", width
        )


def _figures(node: NodeRow) -> tuple[str, ...]:
    gpus = node.gpus
    free = [max(0, gpu.free_bytes) for gpu in gpus]
    used, usable = sum(gpu.used_bytes for gpu in gpus), sum(gpu.usable_bytes for gpu in gpus)
    idle = sum(gpu.idle_pct for gpu in gpus) / len(gpus) if gpus else 0.0
    return (
        node.node,
        str(len(gpus)),
        f"{format_bytes(used)}/{format_bytes(usable)}",
        format_bytes(max(0, sum(free) - sum(one.promised_bytes for one in node.unreported))),
        format_bytes(max(free, default=0)),
        f"{sum(gpu.free_share_pct for gpu in gpus)}%",
        f"{idle:.0f}%",
        str(sum(task.count for gpu in gpus for task in gpu.tasks)),
    )


def _more(node: NodeRow) -> tuple[str, ...]:
    models = Counter(gpu.model for gpu in node.gpus)
    return (
        f"{node.score:.3f}",
        node.time,
        ", ".join(f"{count} × {model}" for model, count in sorted(models.items())),
    )


def _note(node: NodeRow) -> str:
    """The reasons for which the node or some of its GPUs get no pods, or soon may get none."""
    ill = [one for one in node.health if one.health is not HealthClass.HEALTHY]
    notes = [*node_states(node)]
    if ill:
        gravest = max((one.health for one in ill), key=lambda health: health.rank)
        notes.append(f"{len(ill)} GPU{'s' if len(ill) > 1 else ''} {gravest.value}")
    if node.unreported:
        held = format_bytes(sum(one.promised_bytes for one in node.unreported))
        notes.append(f"{held} promised on {len(node.unreported)} GPU(s) that no report names")
    cordoned = sum(gpu.cordoned for gpu in node.gpus)
    if cordoned:
        notes.append(f"{cordoned} GPU{'s' if cordoned > 1 else ''} cordoned")
    if node.stale_cordons:
        notes.append(f"no GPU of it: {', '.join(node.stale_cordons)} (cordoned)")
    return printable("; ".join(notes))
