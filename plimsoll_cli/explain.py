"""`plimsoll explain`: why a pod waits, or where it runs and what may slow it, as the placer answers.

What always holds: the command changes nothing. Everything that the placer does not know is shown as unknown.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from plimsoll.part.errors import InputError
from plimsoll.placer_api.explain import (
    CandidateRow,
    Expected,
    Explained,
    Finding,
    GrantRow,
    PodState,
    QueuePosition,
    Running,
    Waiting,
)
from plimsoll.quantity import format_bytes
from plimsoll_cli.asking import Where, asking

UNKNOWN: Final = "–"
_STYLES: Final = {
    PodState.RUNNING: "bold green",
    PodState.ENDED: "bold",
    PodState.REFUSED: "bold red",
}
_FINDINGS: Final = {
    Finding.LIKELY: "red",
    Finding.POSSIBLE: "yellow",
    Finding.UNLIKELY: "green",
    Finding.UNKNOWN: "dim",
}
_LONG_S: Final = 120.0


async def explanation(where: Where, namespace: str, pod: str, nodes: int, reason: str | None) -> bytes:
    """The placer's answer: an `Explained` in JSON.

    Args:
        where: the placer.
        namespace: the pod's.
        pod: the pod's name.
        nodes: the most nodes without a place that are listed.
        reason: list only nodes whose first reason is this text.

    Raises:
        NoPlacerError: no placer answers there, or the URL is malformed.
        NoSuchPodError: the placer does not know the pod.
        PlacerRefusedError: the placer cannot explain it now.
    """
    query: dict[str, str | int] = {"limit": nodes}
    if reason is not None:
        query["reason"] = reason
    async with asking(where) as placer:
        return await placer.explain(namespace, pod, query)


def check_reason(answer: bytes, reason: str) -> None:
    """Refuse a reason that is the first one of no node.

    Raises:
        InputError: the message names the reasons that there are.
    """
    waiting = msgspec.json.decode(answer, type=Explained).waiting
    first = [one.reason for one in waiting.reasons] if waiting is not None else []
    if reason not in first:
        remedy = f"give one of: {'; '.join(first)}" if first else "leave it out: no node refuses the pod"
        raise InputError("--reason", reason, "is the first reason of no node", remedy)


def shown(answer: bytes) -> Iterator[RenderableType]:
    """The answer for people, a part at a time."""
    explained = msgspec.json.decode(answer, type=Explained)
    name = Text(f"{explained.namespace}/{explained.name}", style=_STYLES.get(explained.state, "bold yellow"))
    yield name.append(f"  {explained.state.value}", style="bold").append(
        f"\n{explained.text}", style="not bold default"
    )
    if not explained.leads:
        yield Text(
            "This placer follows, and the one that leads did not answer: attempts and the queue are not known.",
            style="dim",
        )
    if explained.expected is not None:
        yield from _section("What it is expected to need", _expected(explained.expected))
    if explained.waiting is not None:
        yield from _waiting(explained.waiting)
    if explained.running is not None:
        yield from _running(explained.running)


def _expected(expected: Expected) -> Iterator[str]:
    yield expected.text
    if expected.pods:
        loads = (
            f"; their input loads in about {_span(expected.load_s)}" if expected.load_s is not None else ""
        )
        yield f"learned from {expected.pods} pod{'s' if expected.pods > 1 else ''}{loads}"


def _waiting(waiting: Waiting) -> Iterator[RenderableType]:
    if waiting.queue is not None:
        yield from _section("In the queue", _queue(waiting.queue))
    if waiting.candidates:
        yield Text("\nNodes that have a place now, best first", style="bold")
        yield _candidates(waiting.candidates)
    if waiting.reasons:
        title = (
            f"\nNodes without a place, by their first reason ({sum(one.nodes for one in waiting.reasons)})"
        )
        yield Text(title, style="bold")
        yield _table(((str(one.nodes), one.reason) for one in waiting.reasons), right=(0,))
    if waiting.page:
        yield Text(
            "\nNode by node" + (", the first ones (--nodes shows more)" if waiting.more else ""), style="bold"
        )
        yield _table((one.node, ", ".join(one.reasons)) for one in waiting.page)
    if waiting.nearest:
        yield from _section("What would have to be freed, least first", [one.text for one in waiting.nearest])
    if waiting.preemption is not None:
        yield from _section("Would preemption help?", [waiting.preemption.text])
    if waiting.relocation:
        yield from _section("Would moving pods help?", [waiting.relocation])


def _queue(queue: QueuePosition) -> Iterator[str]:
    since = f", created {queue.since}" if queue.since else ""
    tries = (
        "never tried"
        if not queue.attempts
        else f"tried {queue.attempts} time{'s' if queue.attempts > 1 else ''}"
    )
    yield f"{queue.place}; waits for {_span(queue.waits_s)}{since}; {tries}; priority {queue.priority}"
    if queue.ahead is not None:
        yield f"pods before it: {queue.ahead}"
    if queue.alike:
        yield f"pods that wait for the same: {queue.alike}"
    if queue.wakes_on:
        yield f"tried again as soon as {', or '.join(queue.wakes_on)}"
    if queue.next_try_s is not None:
        yield f"tried again in {_span(queue.next_try_s)} in any case"


def _candidates(rows: Iterable[CandidateRow]) -> Table:
    return _table(
        ((row.node, f"{row.score:.4f}", _gpus(row), _parts(row.sub_scores)) for row in rows),
        headings=("node", "score", "GPUs", "parts of the score"),
    )


def _gpus(row: CandidateRow) -> str:
    return "\n".join(f"{container}: {', '.join(gpus)}" for container, gpus in row.gpus.items())


def _parts(sub_scores: dict[str, dict[str, float]]) -> str:
    return "\n".join(
        ", ".join(f"{name} {value:.3g}" for name, value in parts.items()) for parts in sub_scores.values()
    )


def _running(running: Running) -> Iterator[RenderableType]:
    decided = [f"node {running.node}"]
    if running.policy is not None:
        score = f", score {running.score:.4f}" if running.score is not None else ""
        decided.append(f"policy {running.policy}{score}, decided {running.time}")
    decided += [f"{where}: {_parts({where: parts})}" for where, parts in running.sub_scores.items()]
    if running.expected:
        decided.append(f"when it was decided: {running.expected}")
    if running.note:
        decided.append(running.note)
    if running.resized:
        decided.append(f"resized since: {', '.join(running.resized)}")
    if running.doubt:
        decided.append(f"in doubt: {running.doubt}")
    decided += running.taken_out
    yield from _section("Decision", decided)
    if running.grants:
        when = f"report of {running.reported}" if running.reported else "no report of the node"
        old = ", old: the node is silent" if running.silent else ""
        yield Text(f"\nWhat it has ({when}{old})", style="bold")
        headings = ("container", "GPU", "memory", "share", "limit", "processes", "GPU idle", "beside")
        yield _table((_grant(one, running) for one in running.grants), headings=headings)
    yield Text("\nIs it slow by its limit, its neighbours, or its host?", style="bold")
    table = _table(())
    for check in running.checks:
        table.add_row(check.by, Text(check.finding.value, style=_FINDINGS[check.finding]), Text(check.text))
    yield table


def _grant(grant: GrantRow, running: Running) -> tuple[str, ...]:
    held = UNKNOWN if grant.used_bytes is None else format_bytes(grant.used_bytes)
    shares = ("whole", UNKNOWN) if grant.whole else (f"{grant.share_pct} %", f"{grant.limit_pct} %")
    return (
        grant.container,
        grant.gpu,
        f"{held}, held by nothing" if running.unheld else f"{held} of {format_bytes(grant.line_bytes)}",
        *shares,
        UNKNOWN if grant.processes is None else str(grant.processes),
        UNKNOWN if grant.idle_pct is None else f"{grant.idle_pct:.0f} %",
        f"{grant.sharers} container{'' if grant.sharers == 1 else 's'}",
    )


def _section(title: str, lines: Iterable[str]) -> Iterator[RenderableType]:
    yield Text(f"\n{title}", style="bold")
    for line in lines:
        yield Text(f"  {line}")


def _table(
    rows: Iterable[tuple[str, ...]], headings: tuple[str, ...] = (), right: tuple[int, ...] = ()
) -> Table:
    table = Table(
        box=None, show_header=bool(headings), pad_edge=True, padding=(0, 1, 0, 1), header_style="dim"
    )
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for place, row in enumerate(rows):
        if not headings and place == 0:
            for column in range(len(row)):
                table.add_column(justify="right" if column in right else "left", overflow="fold")
        table.add_row(*(Text(cell) for cell in row))  # as texts, so that no name is read as markup
    return table


def _span(seconds: float) -> str:
    """A time for people: `40 s`, `12 min`, `3.5 h`."""
    if seconds < _LONG_S:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < _LONG_S else f"{minutes / 60:.1f} h"
