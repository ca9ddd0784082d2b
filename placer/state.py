"""The placer's state for people: what was reported, what was promised, who waits; in the sorted list's order."""

from collections.abc import Iterable

from placer.core.ledger import Ledger
from placer.core.room import room_on
from placer.core.score import Formula, node_scores
from placer.core.view import node_view
from placer.reports import ReportView
from plimsoll.events import Gpu, NodeState
from plimsoll.placer_api.http import GpuRow, NodeRow, PodRow, State


def state_of(reports: ReportView, ledger: Ledger, formula: Formula, pods: Iterable[PodRow]) -> State:
    """Everything the live table shows.

    Scores are computed anew from the reports with the list's own formula, so that they can be seen while Redis is
    away; equal scores are ordered as Redis orders them, greater name first.
    """
    rows = [_node_row(state, ledger, formula) for state in reports.values()]
    rows.sort(key=lambda row: (row.score, row.node), reverse=True)
    return State(nodes=tuple(rows), pods=tuple(pods))


def _node_row(state: NodeState, ledger: Ledger, formula: Formula) -> NodeRow:
    scores = node_scores(state, formula)
    rooms = {gpu.uuid: room_on(state.node, gpu, ledger) for gpu in node_view(state).gpus}

    def gpu_row(gpu: Gpu) -> GpuRow:
        return GpuRow(
            uuid=gpu.uuid,
            index=gpu.index,
            model=gpu.model,
            usable_bytes=gpu.usable_bytes,
            used_bytes=gpu.used_bytes,
            idle_pct=gpu.idle_pct,
            free_bytes=rooms[gpu.uuid].free_bytes,
            free_share_pct=rooms[gpu.uuid].free_share_pct,
            score=scores.gpus[gpu.uuid],
            tasks=gpu.tasks,
        )

    gpus = tuple(gpu_row(gpu) for gpu in state.gpus)
    return NodeRow(
        node=state.node, score=scores.node, epoch=state.epoch, seq=state.seq, time=state.time, gpus=gpus
    )
