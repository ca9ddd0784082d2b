"""Decisions over a real sorted list, with several pages and simultaneous decisions."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from placer.core.ledger import Ledger
from placer.core.plan import Plan, Refusal
from placer.core.policies import policy_named
from placer.decide import Decider
from placer.metrics import Metrics
from placer.reports import ReportView
from placer.scores import ScoreList, ScoresLostError
from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.events import NodeState
from plimsoll.quantity import GIB
from tests.placer.arrivals import report
from tests.placer.core.worlds import declared, gpu, request

HEADROOM = policy_named("headroom", "test")


@contextlib.asynccontextmanager
async def deciding(
    valkey: EmbeddedServer, *states: NodeState, page_nodes: int = 64
) -> AsyncIterator[Decider]:
    """A decider over these nodes."""
    reports = ReportView()
    for state in states:
        reports.apply(state)
    scores = ScoreList(valkey.url)
    try:
        await scores.fill(states)
        yield Decider(scores, reports, Ledger(), Metrics(), page_nodes)
    finally:
        await scores.close()


async def test_simultaneous_decisions_never_promise_the_same_room(valkey: EmbeddedServer) -> None:
    """Ten pods of 10 GiB are decided at once over two cards of 24 GiB, and two are placed on each card."""
    nodes = [report(name, gpus=(gpu(f"GPU-{name}"),)) for name in ("n1", "n2")]
    async with deciding(valkey, *nodes) as decider:
        decided = await asyncio.gather(
            *(decider.decide(request(f"p{i}", declared("main", 10)), HEADROOM) for i in range(10))
        )
        plans = [one for one in decided if isinstance(one, Plan)]
        assert sorted(one.booking.node for one in plans) == ["n1", "n1", "n2", "n2"]
        assert {booking.pod for booking in decider.ledger.bookings()} == {one.booking.pod for one in plans}


async def test_room_on_a_later_page_is_found(valkey: EmbeddedServer) -> None:
    """A decision finds the node with room on a later page, behind nodes that score best but are promised away."""
    nodes = [report(f"n{i}", gpus=(gpu(f"GPU-{i}", idle_pct=100 - i),)) for i in range(9)]
    async with deciding(valkey, *nodes, page_nodes=2) as decider:
        for i in range(8):
            first = await decider.decide(request(f"p{i}", declared("main", 20)), HEADROOM)
            assert isinstance(first, Plan)
        last = await decider.decide(request("last", declared("main", 20)), HEADROOM)
        assert isinstance(last, Plan)
        assert last.booking.node == "n8"
        none = await decider.decide(request("none", declared("main", 20)), HEADROOM)
        assert isinstance(none, Refusal)
        assert set(none.reasons) == {state.node for state in nodes}


async def test_measured_memory_outweighs_an_empty_ledger(valkey: EmbeddedServer) -> None:
    """A card that NVML shows as full gets no pod, though nothing on it is promised."""
    full = report("full", gpus=(gpu("GPU-full", other_bytes=20 * GIB),))
    async with deciding(valkey, full, report("free", gpus=(gpu("GPU-free", idle_pct=1),))) as decider:
        decided = await decider.decide(request("p", declared("main", 10)), HEADROOM)
        assert isinstance(decided, Plan)
        assert decided.booking.node == "free"


async def test_lost_list_books_nothing(valkey: EmbeddedServer) -> None:
    """While the list is lost a decision is an error to retry, and the ledger is as it was."""
    scores = ScoreList(valkey.url)
    decider = Decider(scores, ReportView(), Ledger(), Metrics())
    try:
        with pytest.raises(ScoresLostError):
            await decider.decide(request("p", declared("main", 1)), HEADROOM)
        assert list(decider.ledger.bookings()) == []
    finally:
        await scores.close()
