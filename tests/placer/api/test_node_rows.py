"""Rows for readers: encoded once per change, in pages that survive changes, and in bounded pieces."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from placer.api.node_rows import TOGETHER, NodeRows, RowFilter
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies import POLICIES
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from plimsoll.events import NodeState
from plimsoll.ids import NodeName
from plimsoll.placer_api.http import GpuOnNode, NodeRow
from tests.placer.arrivals import report
from tests.placer.core.worlds import declared, gpu, request
from tests.placer.states import read, reader_of

HEADROOM = POLICIES["headroom"]


def deciding(*states: NodeState) -> Decider:
    """A decider that has these reports."""
    decider = Decider(ReportView(), Ledger(), Metrics())
    for one in states:
        decider.reports.apply(one)
    return decider


def many(count: int) -> Decider:
    """A decider with this many nodes, of two GPUs each."""
    return deciding(*(report(f"n{i:05}", gpus=(gpu(f"GPU-{i}-0"), gpu(f"GPU-{i}-1"))) for i in range(count)))


class Pieces:
    """Counts the turns of other tasks, and the most rows that were encoded between two of them."""

    def __init__(self, rows: NodeRows) -> None:
        self._rows = rows
        self.turns = self.most = 0

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Count until the context ends."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self) -> None:
        before = self._rows.encoded
        while True:
            self.turns += 1
            self.most = max(self.most, self._rows.encoded - before)
            before = self._rows.encoded
            await asyncio.sleep(0)


async def test_a_row_is_encoded_again_only_after_a_change() -> None:
    """A second reader of 1000 nodes encodes nothing; a report and a booking cost one row each."""
    decider = many(1000)
    reader = reader_of(decider)
    rows = reader.rows
    assert len((await read(reader)).nodes) == rows.encoded == 1000
    await read(reader)
    assert rows.encoded == 1000
    decider.reports.apply(report("n00007", 2))
    assert isinstance(decider.decide(request("p", declared("main", 1)), HEADROOM), Plan)
    await read(reader)
    assert rows.encoded == 1002


async def test_a_page_encodes_its_own_rows_only() -> None:
    """The first page of 1000 nodes costs as many rows as it has, and one to know that there are more."""
    rows = NodeRows(many(1000))
    page = await rows.nodes(RowFilter(), "", 10)
    assert (len(page.rows), rows.encoded) == (10, 11)
    page = await rows.nodes(RowFilter(), page.more, 10)
    assert msgspec.json.decode(page.rows[0], type=NodeRow).node == "n00010"
    assert rows.encoded == 21
    await rows.gpus(RowFilter(), "", 10)
    assert rows.encoded == 27


async def test_readers_let_other_tasks_run() -> None:
    """No reader encodes more than `TOGETHER` rows, or a few nodes more, before other tasks run."""
    reader = reader_of(many(600))
    pieces = Pieces(reader.rows)
    async with pieces.watched():
        await read(reader)
    assert pieces.most <= TOGETHER
    assert pieces.turns >= 2 * 600 / TOGETHER
    rows = NodeRows(many(600))
    for reading in (rows.nodes, rows.gpus):
        pieces = Pieces(rows)
        async with pieces.watched():
            await reading(RowFilter(), "", 500)
        assert 0 < pieces.most <= TOGETHER + 1


async def test_the_search_for_a_rare_model_lets_other_tasks_run() -> None:
    """A filter that few nodes meet reads all of them, in pieces, and encodes only those that it finds."""
    decider = many(3000)
    rare = msgspec.structs.replace(gpu("GPU-rare"), model="NVIDIA H100")
    decider.reports.apply(report("n02999", 2, gpus=(rare,)))
    rows = NodeRows(decider)
    pieces = Pieces(rows)
    async with pieces.watched():
        page = await rows.gpus(RowFilter(model="NVIDIA H100"), "", 10)
    [found] = [msgspec.json.decode(row, type=GpuOnNode) for row in page.rows]
    assert (found.node, found.uuid, page.more) == ("n02999", "GPU-rare", "")
    assert pieces.turns >= 3000 // 512
    assert len((await rows.nodes(RowFilter(model="NVIDIA H100"), "", 10)).rows) == 1
    assert rows.encoded <= 3


async def test_one_node_is_found_by_its_name() -> None:
    """The filter by node finds one node and its GPUs, and an unknown node nothing; also on a later page."""
    rows = NodeRows(many(50))
    assert len((await rows.nodes(RowFilter(node="n00007"), "", 10)).rows) == 1
    first = await rows.gpus(RowFilter(node="n00007"), "", 1)
    assert first.more == "n00007/GPU-7-0"
    second = await rows.gpus(RowFilter(node="n00007"), first.more, 1)
    assert msgspec.json.decode(second.rows[0], type=GpuOnNode).uuid == "GPU-7-1"
    assert second.more == ""
    assert (await rows.gpus(RowFilter(node="nowhere"), "", 1)).rows == ()
    assert rows.encoded == 2


async def test_rows_follow_what_decisions_read() -> None:
    """A booking, its end, silence and a forgotten node show at once."""
    decider = many(3)
    rows = NodeRows(decider)

    async def node(name: str) -> NodeRow:
        return msgspec.json.decode((await rows.nodes(RowFilter(node=name), "", 1)).rows[0], type=NodeRow)

    free = (await node("n00002")).gpus[0].free_bytes
    placed = decider.decide(request("p", declared("main", 2)), HEADROOM, among=[NodeName("n00002")])
    assert isinstance(placed, Plan)
    assert sum(one.free_bytes for one in (await node("n00002")).gpus) == 2 * free - 2 * 1024**3
    decider.ledger.forget(placed.booking.pod)
    assert sum(one.free_bytes for one in (await node("n00002")).gpus) == 2 * free
    decider.reports.set_silent(NodeName("n00001"))
    assert (await node("n00001")).silent
    decider.reports.forget(NodeName("n00001"))
    assert (await rows.nodes(RowFilter(node="n00001"), "", 1)).rows == ()
    assert [row.node for row in (await read(reader_of(decider))).nodes] == ["n00002", "n00000"]


changes = st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=20)


@given(st.sets(st.integers(0, 30)), changes, st.integers(1, 7))
async def test_pages_survive_changes(before: set[int], changed: list[tuple[bool, int]], limit: int) -> None:
    """Whatever comes and goes between two pages, each node that stays is seen once, in order."""
    decider = deciding(*(report(f"n{i:02}") for i in before))
    rows = NodeRows(decider)
    stayed, seen, after, seqs = {f"n{i:02}" for i in before}, list[str](), "", 1
    while True:
        page = await rows.nodes(RowFilter(), after, limit)
        seen += [msgspec.json.decode(row, type=NodeRow).node for row in page.rows]
        after = page.more
        if not after:
            break
        if changed:
            comes, number = changed.pop()
            name = NodeName(f"n{number:02}")
            stayed.discard(name)
            seqs += 1
            if comes:
                decider.reports.apply(report(name, seqs))
            else:
                decider.reports.forget(name)
    assert seen == sorted(set(seen))
    assert stayed <= set(seen)
