"""`plimsoll status`: the containers on this machine's GPUs, and what keeps each from more compute time.

What always holds: the command changes nothing, and needs the broker alone, no GPU driver. An unknown value, such as
the use behind an open gate, is shown as unknown and not as 0.
"""

import asyncio
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from plimsoll.broker.client import BrokerClient
from plimsoll.broker.root import has_users
from plimsoll.broker.wire import CONTROL_NAME, ContainerUse, Description, GpuEnforcement, Line
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.part.causes import cause_of
from plimsoll.part.errors import PlimsollError
from plimsoll.quantity import format_bytes
from plimsoll_cli.columns import aligned, columns, shortened
from plimsoll_cli.output import DOCUMENTS, document

CONNECT_S: Final = 5.0
"""The broker's deadline for an answer, in seconds."""

READING_S: Final = 1.0
"""Seconds between the two readings that give the time for which launches waited. The used time is over a span of the
same length."""

NEAR_PCT: Final = 3.0
"""The points within which a share counts as reached: over a second it varies by that much."""

HELD_UP_PCT: Final = 2.0
"""A container does not notice if its launches wait for a smaller part of the time, in percent."""

PIDS_SHOWN: Final = 3
UNKNOWN: Final = "–"
INDENT: Final = "  "
PIDS: Final = 2
HEADINGS: Final = ("pod", "container", "pids", "memory", "request", "limit", "used", "waited", "")

Waited = Mapping[tuple[PodUid, ContainerName], float]


class NoBrokerError(PlimsollError):
    """There is no broker, so no container shares a GPU."""


async def status(root: Path, form: str = "table", width: int | None = None) -> str:
    """The text of the command: a paragraph for each GPU, or the broker's answer; takes a second.

    Args:
        root: the broker's directory.
        form: `json` and `yaml` give the answer.
        width: cut lines to this many columns.

    Raises:
        NoBrokerError: there is no broker.
        BrokerAwayError: the broker does not answer.
    """
    try:
        is_there = stat.S_ISSOCK((await asyncio.to_thread((root / CONTROL_NAME).stat)).st_mode)
    except FileNotFoundError:
        is_there = False
    except OSError as error:
        raise NoBrokerError(
            f"the broker at {root} cannot be asked: {cause_of(error, '--broker-root')}"
        ) from error
    if not is_there and await asyncio.to_thread(has_users, root):
        cause = f"its {CONTROL_NAME} is missing, and commands run there"
        remedy = "ask again in a few seconds: a broker that starts or lives makes the socket"
        raise NoBrokerError(f"the broker at {root} cannot be asked: {cause}; {remedy}")
    if not is_there:
        remedy = "nothing runs under `plimsoll run` there; --broker-root names another"
        raise NoBrokerError(f"no broker is at {root}: {remedy}")
    async with BrokerClient(root, timeout_s=CONNECT_S) as broker:
        before, began_s = await broker.describe(), time.monotonic()
        await asyncio.sleep(READING_S)
        after, ended_s = await broker.describe(), time.monotonic()
    if form in DOCUMENTS:
        return document(after, form)
    return "".join(line + "\n" for line in shown(before, after, ended_s - began_s, width))


def shown(before: Description, after: Description, span_s: float, width: int | None = None) -> Iterator[str]:
    """The lines for two descriptions, `span_s` seconds apart, cut to `width` columns where that is given."""
    gpus: dict[GpuUuid, list[tuple[ContainerUse, int]]] = defaultdict(list)
    for use in after.containers:
        for place, line in enumerate(use.container.lines):
            gpus[line.gpu].append((use, place))
    if not gpus:
        yield "nobody has a GPU of this machine"
    for gpu, health in sorted(after.unhealthy.items()):
        yield f"{gpu} is not healthy: {health}"
    waited_s = {_key(use): use.share.waited_s for use in before.containers if use.share is not None}
    held = {one.gpu: one for one in after.enforcement}
    for gpu, uses in sorted(gpus.items()):
        yield _promised(gpu, [(use, use.container.lines[place]) for use, place in uses])
        if gpu in held:
            yield f"  {_held_by(held[gpu])}"
        rows = [HEADINGS, *(_row(use, place, waited_s, span_s) for use, place in uses)]
        yield from _table(rows, width)


def _table(rows: Sequence[tuple[str, ...]], width: int | None) -> Iterator[str]:
    """The lines of a table. Where they are wider than the terminal, reasons have lines of their own, and pids go."""
    whole = list(aligned(rows, INDENT))
    if width is None or max(map(columns, whole)) <= width:
        yield from whole
        return
    narrow = aligned([(*row[:PIDS], *row[PIDS + 1 : -1]) for row in rows], INDENT, width)
    for line, row in zip(narrow, rows, strict=True):
        yield line
        if row[-1]:
            yield shortened(f"{INDENT}  {row[-1]}", width)


HOLDERS: Final = {
    "both": "the library and the driver hold containers to their lines of memory",
    "preload": "the library holds containers to their lines of memory",
    "driver": "the driver holds containers to their lines of memory",
    "none": "nothing holds containers to their lines of memory or shares",
}
"""By the node's enforcement."""


def _held_by(one: GpuEnforcement) -> str:
    return HOLDERS.get(one.enforcement, one.enforcement) + (f"; {one.reason}" if one.reason else "")


def _promised(gpu: GpuUuid, uses: Sequence[tuple[ContainerUse, Line]]) -> str:
    if any(use.container.whole for use, _ in uses):
        return f"{gpu}: promised whole"
    share_pct = sum(line.share_pct for _, line in uses)
    size = format_bytes(sum(line.line_bytes for _, line in uses))
    return f"{gpu}: promised are {share_pct} % of its time, {size} of its memory"


def _row(use: ContainerUse, place: int, before_s: Waited, span_s: float) -> tuple[str, ...]:
    line, waited_pct = use.container.lines[place], _waited_pct(use, before_s, span_s)
    used_pct = use.share.used_pct if use.share is not None else None
    held_bytes = sum(process.used_bytes[place] for process in use.processes)
    return (
        f"{use.namespace}/{use.pod_name}",
        use.container.name,
        _pids(use),
        f"{format_bytes(held_bytes)} of {format_bytes(line.line_bytes)}",
        *(("whole", UNKNOWN) if use.container.whole else (f"{line.share_pct} %", f"{line.limit_pct} %")),
        _percent(used_pct),
        _percent(waited_pct),
        _why(use, waited_pct),
    )


def _waited_pct(use: ContainerUse, before_s: Waited, span_s: float) -> float | None:
    """The part of the span in which launches waited; None where the container or the broker is new."""
    if use.share is None or use.share.used_pct is None or _key(use) not in before_s:
        return None
    waited_s = use.share.waited_s - before_s[_key(use)]
    return None if waited_s < 0 else min(100.0, 100 * waited_s / span_s)


def _why(use: ContainerUse, waited_pct: float | None) -> str:
    if use.unheld_pids:
        return f"NOT HELD: without the library runs {_listed(use.unheld_pids)}"
    if use.container.whole:
        return "owns this GPU"
    if not use.processes:
        return "no program of it uses a GPU yet"
    if use.share is None or use.share.used_pct is None:
        return "runs freely: its gate is open, nothing is metered"
    return "" if waited_pct is None else _held_up(use, use.share.used_pct, waited_pct)


def _held_up(use: ContainerUse, used_pct: float, waited_pct: float) -> str:
    if waited_pct >= HELD_UP_PCT:
        return "waits: " + _why_it_waits(use.container.lines[0], used_pct)
    return "is not held up" if used_pct >= HELD_UP_PCT else "wants no time now"


def _why_it_waits(line: Line, used_pct: float) -> str:
    """The reason for a wait. Reads a single line of the container: all its GPUs have the same share and limit."""
    if line.limit_pct < 100 and used_pct >= line.limit_pct - NEAR_PCT:
        return "is at its limit"
    if used_pct < line.share_pct - NEAR_PCT:
        return "has less than its request"
    return "others are behind; " + ("has its request" if line.share_pct else "requested nothing")


def _key(use: ContainerUse) -> tuple[PodUid, ContainerName]:
    return use.pod, use.container.name


def _pids(use: ContainerUse) -> str:
    return _listed([process.pid for process in use.processes]) or UNKNOWN


def _listed(pids: Sequence[int]) -> str:
    return ",".join([*map(str, pids[:PIDS_SHOWN]), *(["…"] if len(pids) > PIDS_SHOWN else [])])


def _percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f} %"
