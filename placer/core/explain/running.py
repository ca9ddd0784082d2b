"""The explanation of a pod that has a node: what it was given, what it holds, and what may slow it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from placer.core.booking import Booking, Grant
from placer.core.explain.slowness import GpuPart, LimitNews, Observed, checks_of, verdict_of
from placer.core.ledger import Ledger
from placer.core.schedulability import OPEN, Schedulability
from plimsoll.decision import Decision
from plimsoll.events import Gpu, NodeState, Task
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.placer_api.explain import GrantRow, Running


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The facts about a pod that the placer knows, but for its booking.

    Attributes:
        state: the last report of its node, or None.
        silent: the node has not reported for too long.
        decision: the placer's decision, as the pod states it; None where there is none that can be read.
        news: recent events about its limits; None where none are read.
        cpu: its CPU requests and limits, for people; None where they are not known.
        schedulability: what keeps new pods off its node.
    """

    state: NodeState | None
    silent: bool = False
    decision: Decision | None = None
    news: tuple[LimitNews, ...] | None = None
    cpu: str | None = None
    schedulability: Schedulability = OPEN


def running_of(booking: Booking, ledger: Ledger, facts: PodFacts) -> Running:
    """Explain a pod that has a node.

    Args:
        booking: the pod's, without grants for a pod without a GPU.
        ledger: the bookings of all pods.
        facts: the rest.
    """
    state, decision = facts.state, facts.decision
    reported = {gpu.uuid: gpu for gpu in state.gpus} if state is not None else {}
    health = {one.gpu: one for one in state.health} if state is not None else {}
    rows, parts = [], []
    for grant in booking.grants:
        gpu = reported.get(grant.gpu)
        neighbours = [one for one in ledger.on_gpu(booking.node, grant.gpu) if one.pod != booking.pod]
        rows.append(_row(grant, gpu, booking.pod, sum(len(_on(one, grant)) for one in neighbours)))
        promised_pct = sum(other.share_pct for one in neighbours for other in _on(one, grant))
        part = _part(rows[-1], gpu, booking.pod, promised_pct)
        parts.append(replace(part, health=health.get(grant.gpu)))
    unheld = booking.doubt is not None and booking.doubt.unheld
    observed = Observed(tuple(parts), silent=facts.silent, news=facts.news, cpu=facts.cpu, unheld=unheld)
    checks = checks_of(observed)
    return Running(
        node=booking.node,
        reported=state.time if state is not None else None,
        silent=facts.silent,
        grants=tuple(rows),
        policy=decision.policy if decision else None,
        score=decision.score if decision else None,
        time=decision.time if decision else None,
        sub_scores={where: dict(one) for where, one in decision.parts.items()} if decision else {},
        expected=decision.expected if decision else "",
        note=decision.note if decision else "",
        resized=decision.resized if decision else (),
        doubt=booking.doubt.reason if booking.doubt else "",
        unheld=unheld,
        taken_out=tuple(_taken_out(booking, reported, facts.schedulability)),
        verdict=verdict_of(observed, checks),
        checks=checks,
    )


def _taken_out(
    booking: Booking, reported: Mapping[GpuUuid, Gpu], schedulability: Schedulability
) -> Iterator[str]:
    for uuid in sorted({grant.gpu for grant in booking.grants}):
        gpu = reported.get(uuid)
        if schedulability.has_cordoned(uuid, gpu.mig_parent if gpu is not None else None):
            yield f"{uuid} is cordoned: it takes no new pods, and this one may stay"
    if schedulability.closed:
        yield f"{booking.node} takes no new pods: {', '.join(schedulability.closed)}"


def _on(booking: Booking, grant: Grant) -> list[Grant]:
    return [one for one in booking.grants if one.gpu == grant.gpu]


def _row(grant: Grant, gpu: Gpu | None, pod: PodUid, sharers: int) -> GrantRow:
    tasks = [task for task in gpu.tasks if _is_of(task, pod, grant)] if gpu is not None else None
    return GrantRow(
        container=grant.container,
        gpu=grant.gpu,
        line_bytes=grant.line_bytes,
        memory_bytes=grant.memory_bytes,
        share_pct=grant.share_pct,
        limit_pct=grant.limit_pct,
        whole=grant.whole,
        used_bytes=None if tasks is None else sum(task.used_bytes for task in tasks),
        processes=None if tasks is None else sum(task.count for task in tasks),
        idle_pct=gpu.idle_pct if gpu is not None else None,
        sharers=sharers,
    )


def _is_of(task: Task, pod: PodUid, grant: Grant) -> bool:
    """Whether a task is of the grant's container; a task of the pod without a container's name counts too."""
    return task.pod == pod and task.container in (None, grant.container)


def _part(row: GrantRow, gpu: Gpu | None, pod: PodUid, promised_pct: int) -> GpuPart:
    return GpuPart(
        container=row.container,
        gpu=row.gpu,
        line_bytes=row.line_bytes,
        share_pct=row.share_pct,
        limit_pct=row.limit_pct,
        whole=row.whole,
        used_bytes=row.used_bytes,
        processes=row.processes,
        idle_pct=row.idle_pct,
        others=None if gpu is None else sum(task.count for task in gpu.tasks if task.pod != pod),
        promised_pct=promised_pct,
    )
