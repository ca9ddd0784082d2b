"""`plimsoll gpus`: where there is room, as the placer knows it from the nodes' reports and its promises.

What always holds: the command changes nothing. A GPU that gets no pods says so, and why. A GPU with locality labels
shows them, since they keep pods away.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from plimsoll.gpu_events import GpuHealth, HealthClass
from plimsoll.placer_api.http import GpuRow, NodeRow, UnreportedGpu
from plimsoll.quantity import format_bytes
from plimsoll_cli.asking import Where, asking
from plimsoll_cli.columns import aligned
from plimsoll_cli.output import DOCUMENTS, document, note, printable
from plimsoll_cli.states import node_states, stale_cordon

HEADINGS: Final = ("NODE", "GPU", "MEMORY", "FREE", "SHARE", "IDLE", "TASKS")
"""A GPU's columns: its index; memory in use and usable; memory and compute share that no pod was promised; average
of idle time; the number of its tasks. No cell has a blank, for `awk`."""

MORE_HEADINGS: Final = ("SCORE", "UUID", "MODEL")
UNKNOWN: Final = "–"


async def gpus(where: Where, node: str | None, model: str | None, form: str, width: int | None) -> str:
    """The text of the command; writes a line to standard error where there is no such GPU.

    Args:
        where: the placer.
        node: only this node.
        model: only GPUs of this model.
        form: `table`, `wide`, `json` or `yaml`.
        width: cut lines of the table to this many columns.

    Raises:
        NoPlacerError, PlacerRefusedError: as of `nodes_of`.
    """
    nodes = await nodes_of(where, node, model)
    if form in DOCUMENTS:
        return document({"items": nodes}, form)
    lines = list(shown(nodes, wide=form == "wide", width=width))
    if not lines:
        note("plimsoll: " + ("no GPU is like that" if node or model else "no node has reported a GPU"))
    return "".join(line + "\n" for line in lines)


async def nodes_of(where: Where, node: str | None = None, model: str | None = None) -> list[NodeRow]:
    """The nodes that have reported, by name, with their GPUs.

    Args:
        where: the placer.
        node: only this node.
        model: only GPUs of this model, and nodes that have one.

    Raises:
        NoPlacerError: no placer answers there, or the URL is malformed.
        PlacerRefusedError: it cannot answer now.
    """
    async with asking(where) as placer:
        return [_only(row, model) async for row in placer.nodes(node, model)]


def _only(node: NodeRow, model: str | None) -> NodeRow:
    """The node with its GPUs of this model alone."""
    if model is None:
        return node
    gpus = tuple(gpu for gpu in node.gpus if gpu.model == model)
    return replace(node, gpus=gpus, health=tuple(one for one in node.health if one.model == model))


def shown(nodes: Iterable[NodeRow], *, wide: bool = False, width: int | None = None) -> Iterator[str]:
    """The lines for people, the headings first; nothing where there is no GPU.

    Args:
        nodes: the nodes.
        wide: with score, UUID and model.
        width: cut lines to this many columns.
    """
    rows = [row for node in nodes for row in _rows(node, wide=wide)]
    if rows:
        headings = (*HEADINGS, *(MORE_HEADINGS if wide else ()), state_heading(rows))
        yield from aligned([headings, *rows], "", width)


def state_heading(rows: Iterable[Sequence[str]]) -> str:
    """The heading of the last column, which is empty while nothing keeps pods away."""
    return "STATE" if any(row[-1] for row in rows) else ""


def _rows(node: NodeRow, *, wide: bool) -> Iterator[tuple[str, ...]]:
    ill = {health.gpu: health for health in node.health}
    for gpu in node.gpus:
        more = (f"{gpu.score:.3f}", gpu.uuid, gpu.model) if wide else ()
        labels = [f"labels {' '.join(gpu.labels)}"] if gpu.labels else []
        notes = "; ".join(filter(None, (note_of(node, ill.pop(gpu.uuid, None), gpu), *labels)))
        yield node.node, str(gpu.index), *_figures(gpu), *more, notes
    booked = {one.uuid: one for one in node.unreported}
    for health in ill.values():  # lost ones, which nobody can measure
        held = _held(booked.pop(health.gpu, None))
        yield _lost(
            node, str(health.index), (health.gpu, health.model), (note_of(node, health), held), wide=wide
        )
    for one in booked.values():
        told = (note_of(node, None), "no report names it", _held(one))
        yield _lost(node, UNKNOWN, (one.uuid, UNKNOWN), told, wide=wide)
    for uuid in map(printable, node.stale_cordons):
        yield _lost(node, UNKNOWN, (uuid, UNKNOWN), (stale_cordon(uuid),), wide=wide)


def _lost(
    node: NodeRow, index: str, named: tuple[str, str], notes: Iterable[str], *, wide: bool
) -> tuple[str, ...]:
    """The row of a GPU without figures; the wide one names its UUID and model."""
    more = (UNKNOWN, *named) if wide else ()
    return node.node, index, *(UNKNOWN,) * (len(HEADINGS) - 2), *more, "; ".join(filter(None, notes))


def _held(gpu: UnreportedGpu | None) -> str:
    """The promises on a GPU that no report names."""
    if gpu is None:
        return ""
    return f"{format_bytes(gpu.promised_bytes)} promised to {gpu.pods} pod{'' if gpu.pods == 1 else 's'}"


def _figures(gpu: GpuRow) -> tuple[str, ...]:
    return (
        f"{format_bytes(gpu.used_bytes)}/{format_bytes(gpu.usable_bytes)}",
        format_bytes(max(0, gpu.free_bytes)),
        f"{gpu.free_share_pct}%",
        f"{gpu.idle_pct:.0f}%",
        str(sum(task.count for task in gpu.tasks)),
    )


def note_of(node: NodeRow, health: GpuHealth | None, gpu: GpuRow | None = None) -> str:
    """The reasons for which a GPU gets no pods, or soon may get none; `gpu` is None for a lost one."""
    notes = [f"node {printable(state)}" for state in node_states(node)]
    if gpu is not None and gpu.cordoned:
        notes.append("cordoned")
    if health is not None and health.health is not HealthClass.HEALTHY:
        notes.append(f"{health.health.value}: {health.reason}" if health.reason else health.health.value)
    return "; ".join(notes)
