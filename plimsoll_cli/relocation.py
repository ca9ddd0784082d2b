"""`plimsoll relocation`: the pods that would move for a waiting pod, or to free a whole GPU, as the placer answers.

What always holds: the command changes nothing.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from plimsoll.placer_api.relocation import MoveRow, ObstacleCount, RelocationPreview
from plimsoll_cli.asking import Where, asking

HEADINGS: Final = ("pod", "cost", "from", "to")


async def preview(where: Where, namespace: str, pod: str | None) -> bytes:
    """The placer's answer: a `RelocationPreview` in JSON.

    Args:
        where: the placer.
        namespace: the pod's.
        pod: the waiting pod's name; None: a whole GPU is to be freed.

    Raises:
        NoPlacerError: no placer answers there, or the URL is malformed.
        NoSuchPodError: the placer does not know the pod, or has no cluster.
        PlacerRefusedError: the placer cannot answer now.
    """
    async with asking(where) as placer:
        return await placer.relocation({} if pod is None else {"namespace": namespace, "pod": pod})


def shown(answer: bytes) -> Iterator[RenderableType]:
    """The answer for people, a part at a time."""
    preview = msgspec.json.decode(answer, type=RelocationPreview)
    yield Text(preview.text)
    if not preview.leads:
        yield Text("This placer follows: it does not know which pods were moved lately.", style="dim")
    if preview.moves:
        yield Text("\nPods that would move", style="bold")
        yield _moves(preview.moves)
    if preview.traffic_pct:
        yield Text(f"  memory traffic beside them: {preview.traffic_pct:+.0f} % of a GPU's time")
    if preview.movable or preview.obstacles:
        yield Text("\nMay the pods with GPUs be moved?", style="bold")
        yield _counts(preview.movable, preview.obstacles)


def _moves(moves: tuple[MoveRow, ...]) -> Table:
    table = _table(*HEADINGS)
    for one in moves:
        leaves, goes = " ".join((one.node, *one.gpus)), " ".join((one.to, *one.to_gpus))
        table.add_row(*(Text(cell) for cell in (one.pod, f"{one.cost:g}", leaves, goes)))
    return table


def _counts(movable: int, obstacles: tuple[ObstacleCount, ...]) -> Table:
    table = _table("", "", is_plain=True)
    table.add_row(str(movable), "yes")
    for one in obstacles:
        table.add_row(str(one.pods), Text(f"no: {one.reason}"))
    return table


def _table(*headings: str, is_plain: bool = False) -> Table:
    table = Table(box=None, show_header=not is_plain, padding=(0, 1, 0, 1), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table
