"""The rows of nodes and GPUs for readers, each encoded once and kept until a report or a booking changes it.

What always holds: a page of nodes is a join of bytes that are there already, except for the nodes that changed since
the last reader. A reader encodes `TOGETHER` rows in one piece at most, and then lets other tasks run. So no reader
delays a decision by more than that. Rows of different nodes may be of slightly different moments.

Scores are computed anew from reports and promises by the list's own formula, so that they are shown while Redis is
away.
"""

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from placer.core.ranking import Ranking, ReadCount
from placer.core.score import NodeScores, node_scores
from placer.decide import Decider
from plimsoll.events import Gpu, NodeState
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.placer_api.http import GpuOnNode, GpuRow, NodeRow, UnreportedGpu

TOGETHER: Final = 16
"""Rows that are encoded in one piece: some 2 ms with 8 GPUs each."""

SEEN_TOGETHER: Final = 512
"""Nodes whose models are compared with a filter in one piece: less than a millisecond."""

_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class _Row:
    """A node's row.

    Attributes:
        score: the score that ranks the node.
        models: the models of its GPUs.
        node: the `NodeRow` in JSON.
    """

    score: float
    models: frozenset[str]
    node: bytes


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The nodes and GPUs that a reader wants.

    Attributes:
        node: only this node; None for all.
        model: only GPUs of this model, and nodes that have one; None for all.
    """

    node: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows in JSON.

    Attributes:
        rows: the rows in the order of their keys.
        more: the key after which the next page begins; empty on the last page.
    """

    rows: tuple[bytes, ...]
    more: str


class NodeRows:
    """The rows of all nodes that report, or have pods. Not thread-safe: one event loop owns it.

    Attributes:
        encoded: the number of rows that were encoded, for metrics and tests.
    """

    def __init__(self, decider: Decider) -> None:
        """Keep the rows of a decider's nodes.

        Args:
            decider: has the reports and the promises.
        """
        self.encoded = 0
        self._decider = decider
        self._names: list[NodeName] = []
        self._rows: dict[NodeName, _Row] = {}
        self._gpus: dict[NodeName, tuple[tuple[GpuUuid, str, bytes], ...]] = {}
        self._ranked: Ranking[tuple[float, NodeName]] = Ranking(ReadCount())
        self._outdated: dict[NodeName, None] = {}
        for node in (*decider.reports, *(one.node for one in decider.ledger.bookings())):
            self._note_node(node)
        decider.reports.on_change(self._note_node)
        decider.ledger.on_change(lambda node, _: self._note_node(node))
        decider.pool.on_change(self._note)

    async def best_first(self) -> AsyncIterator[bytes]:
        """The rows of all nodes in the sorted list's order, as `TOGETHER` rows at a time, joined by commas.

        Equal scores are ordered as Redis orders them, greater name first.
        """
        for start in range(0, len(outdated := tuple(self._outdated)), TOGETHER):
            for node in outdated[start : start + TOGETHER]:
                self._refresh(node)
            await asyncio.sleep(0)  # decisions and watches run between two pieces
        ranked = [node for _, node in self._ranked]
        ranked.reverse()
        first = True
        for start in range(0, len(ranked), TOGETHER):
            rows = (self._rows.get(node) for node in ranked[start : start + TOGETHER])
            piece = b",".join(row.node for row in rows if row is not None)
            if piece:
                yield piece if first else b"," + piece
                first = False
            await asyncio.sleep(0)  # as above

    async def nodes(self, wanted: RowFilter, after: str, limit: int) -> RowPage:
        """A page of nodes by name.

        A node that comes or goes between two pages moves no other node.

        Args:
            wanted: the filter.
            after: the name after which the page begins; empty for the first page.
            limit: the most rows, 1 or more.
        """
        found: list[tuple[str, bytes]] = []
        async for node in self._selected(wanted, bisect_right(self._names, after)):
            row = self._row(node)
            if row is not None and wanted.model in (None, *row.models):
                found.append((node, row.node))
                if len(found) > limit:
                    break
        return _page(found, limit)

    async def gpus(self, wanted: RowFilter, after: str, limit: int) -> RowPage:
        """A page of GPUs by node and UUID; as `nodes`, with `<node>/<uuid>` for `after`."""
        first_node, _, first_uuid = after.partition("/")
        found: list[tuple[str, bytes]] = []
        async for node in self._selected(wanted, bisect_left(self._names, first_node)):
            for uuid, model, row in self._gpu_rows(node):
                if wanted.model in (None, model) and (node, uuid) > (first_node, first_uuid):
                    found.append((f"{node}/{uuid}", row))
            if len(found) > limit:
                break
        return _page(found, limit)

    async def _selected(self, wanted: RowFilter, start: int) -> AsyncIterator[NodeName]:
        """The nodes that may match from a place in the order of names on; other tasks run in between."""
        if wanted.node is not None:
            place = bisect_left(self._names, wanted.node)
            if start <= place < len(self._names) and self._names[place] == wanted.node:
                yield self._names[place]
            return
        names = self._names[start:]
        encoded, seen = self.encoded, 0
        for node in names:
            if self.encoded - encoded >= TOGETHER or seen >= SEEN_TOGETHER:
                await asyncio.sleep(0)  # decisions and watches run between two pieces
                encoded, seen = self.encoded, 0
            seen += 1
            if wanted.model is None or self._has(node, wanted.model):
                yield node

    def _has(self, node: NodeName, model: str) -> bool:
        state = self._decider.reports.get(node)
        return state is not None and any(gpu.model == model for gpu in state.gpus)

    def _note_node(self, node: NodeName) -> None:
        place = bisect_left(self._names, node)
        is_listed = place < len(self._names) and self._names[place] == node
        if node in self._decider.reports or self._decider.ledger.gpus_on(node):
            if not is_listed:
                insort(self._names, node)
        elif is_listed:
            del self._names[place]
        self._note(node)

    def _note(self, node: NodeName) -> None:
        self._outdated[node] = None

    def _row(self, node: NodeName) -> _Row | None:
        if node in self._outdated:
            self._refresh(node)
        return self._rows.get(node)

    def _refresh(self, node: NodeName) -> None:
        """Encode a node's row anew, if that was not done meanwhile."""
        if node not in self._outdated:
            return
        del self._outdated[node]
        self._gpus.pop(node, None)
        known, state = self._rows.pop(node, None), self._decider.reports.get(node)
        if known is not None:
            self._ranked.remove((known.score, node))
        unreported = self._unreported(node, state)
        if state is None:
            if not unreported:
                return
            row = NodeRow(
                node=node, score=0.0, epoch=0, seq=0, time="", gpus=(), silent=True, unreported=unreported
            )
        else:
            scores, rows = self._gpu_structs(state)
            schedulability = self._decider.pool.schedulability(node)
            row = NodeRow(
                node=node,
                score=scores.node,
                epoch=state.epoch,
                seq=state.seq,
                time=state.time,
                gpus=rows,
                heartbeat_s=state.heartbeat_s,
                silent=node in self._decider.reports.silent,
                health=state.health,
                unreported=unreported,
                closed=schedulability.closed,
                taints=schedulability.taints,
                stale_cordons=schedulability.stale_cordons(state),
            )
        self.encoded += 1
        self._rows[node] = _Row(row.score, frozenset(gpu.model for gpu in row.gpus), _ENCODER.encode(row))
        self._ranked.add((row.score, node))

    def _unreported(self, node: NodeName, state: NodeState | None) -> tuple[UnreportedGpu, ...]:
        """The GPUs with promises that the node's report does not name."""
        ledger, here = self._decider.ledger, {gpu.uuid for gpu in state.gpus} if state is not None else set()
        found: list[UnreportedGpu] = []
        for gpu in ledger.gpus_on(node):
            if gpu in here:
                continue
            promises = [ledger.promise(booking, gpu) for booking in ledger.on_gpu(node, gpu)]
            found.append(
                UnreportedGpu(
                    uuid=gpu,
                    promised_bytes=sum(one.expected_bytes for one in promises),
                    promised_share_pct=sum(one.share_pct for one in promises),
                    pods=len(promises),
                )
            )
        return tuple(found)

    def _gpu_rows(self, node: NodeName) -> tuple[tuple[GpuUuid, str, bytes], ...]:
        """The rows of a node's GPUs by UUID."""
        if node in self._outdated:
            self._refresh(node)
        state = self._decider.reports.get(node)
        if node not in self._gpus and state is not None:
            self.encoded += 1
            rows = sorted(self._gpu_structs(state)[1], key=lambda row: row.uuid)
            self._gpus[node] = tuple(
                (row.uuid, row.model, _ENCODER.encode(GpuOnNode(node=node, **msgspec.structs.asdict(row))))
                for row in rows
            )
        return self._gpus.get(node, ())

    def _gpu_structs(self, state: NodeState) -> tuple[NodeScores, tuple[GpuRow, ...]]:
        rooms = {room.gpu.uuid: room for room in self._decider.candidates.rooms_of(state)}
        scores = node_scores(rooms.values())
        schedulability = self._decider.pool.schedulability(state.node)

        def row(gpu: Gpu) -> GpuRow:
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
                labels=rooms[gpu.uuid].labels.words,
                mig_parent=gpu.mig_parent,
                cordoned=schedulability.has_cordoned(gpu.uuid, gpu.mig_parent),
            )

        return scores, tuple(row(gpu) for gpu in state.gpus)


def _page(found: Iterable[tuple[str, bytes]], limit: int) -> RowPage:
    rows = list(found)
    more = rows[limit - 1][0] if len(rows) > limit else ""
    return RowPage(tuple(row for _, row in rows[:limit]), more)
