"""Decisions over candidates in memory: bursts, promises against measurements, and the work of one decision."""

import pytest

from placer.core.candidates import REFRESHED_TOGETHER, Candidates
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies import policy_named
from placer.core.reasons import Reason
from placer.core.refusal import Refusal
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from plimsoll.events import NodeState
from plimsoll.ids import PodUid
from plimsoll.quantity import MIB
from tests.placer.arrivals import report
from tests.placer.core.worlds import declared, gpu, request
from tests.placer.states import read, reader_of

HEADROOM = policy_named("headroom", "test")


def deciding(*states: NodeState) -> Decider:
    """A decider over these nodes."""
    made = Decider(ReportView(), Ledger(), Metrics())
    for state in states:
        made.reports.apply(state)
    return made


def test_a_burst_never_promises_the_same_room_twice() -> None:
    """Ten pods of 10 GiB want two cards of 24 GiB: two pods are placed on each card."""
    decider = deciding(*(report(name, gpus=(gpu(f"GPU-{name}"),)) for name in ("n1", "n2")))
    decided = [decider.decide(request(f"p{i}", declared("main", 10)), HEADROOM) for i in range(10)]
    plans = [one for one in decided if isinstance(one, Plan)]
    assert sorted(one.booking.node for one in plans) == ["n1", "n1", "n2", "n2"]
    assert {booking.pod for booking in decider.ledger.bookings()} == {one.booking.pod for one in plans}


def test_a_burst_on_one_card_ends_where_its_memory_ends() -> None:
    """23 of 24 pods of 2000 MiB fit on a card of 46068 MiB; the last is refused with the memory that is left."""
    card = gpu("GPU-a", usable_gib=1)
    card = type(card)(
        uuid=card.uuid,
        index=0,
        model=card.model,
        usable_bytes=46068 * MIB,
        used_bytes=0,
        idle_pct=100.0,
    )
    decider = deciding(report("n1", gpus=(card,)))
    decided = [decider.decide(request(f"p{i}", declared("main", 2000 / 1024)), HEADROOM) for i in range(24)]
    assert [isinstance(one, Plan) for one in decided] == [True] * 23 + [False]
    judged = decider.plan_on(request("late", declared("main", 2000 / 1024)), HEADROOM, report("n1").node)
    assert isinstance(judged, Refusal)
    assert judged.reasons == {"n1": (Reason.GPU_MEMORY.value,)}
    assert judged.best_free_bytes == 68 * MIB


def test_the_work_of_a_decision_does_not_grow_with_the_cluster() -> None:
    """A decision reads as many nodes and GPUs among 800 nodes as among 40; a refusal reads no node."""
    placed, refused = [], []
    for nodes in (40, 800):
        states = (report(f"n{i}", gpus=tuple(gpu(f"GPU-{i}-{j}") for j in range(8))) for i in range(nodes))
        decider = deciding(*states)
        for i in range(nodes):
            assert isinstance(decider.decide(request(f"p{i}", declared("main", 12)), HEADROOM), Plan)
        placed.append((decider.nodes_read / nodes, decider.gpus_read / nodes))
        read = decider.nodes_read
        assert isinstance(decider.decide(request("large", declared("main", 25)), HEADROOM), Refusal)
        refused.append(decider.nodes_read - read)
    assert placed[0][0] == placed[1][0] == 1
    assert placed[1][1] <= 2 * placed[0][1]
    assert refused == [0, 0]


async def test_the_state_for_people_has_the_order_of_decisions() -> None:
    """The nodes of `/v1/state` stand in the order in which decisions take them, promises included."""
    decider = deciding(*(report(f"n{i}", gpus=(gpu(f"GPU-{i}", idle_pct=90 - i),)) for i in range(4)))
    reader = reader_of(decider)
    for i in range(20):
        first = (await read(reader)).nodes[0]
        decided = decider.decide(request(f"p{i}", declared("main", 1)), HEADROOM)
        assert isinstance(decided, Plan)
        assert (decided.booking.node, decided.score) == (first.node, first.score)


def test_no_decision_computes_the_rooms_of_many_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many nodes report or are booked between two decisions, a decision finds few rooms outdated."""
    outdated: list[int] = []
    refresh = Candidates.refresh

    def watched(candidates: Candidates) -> None:
        outdated.append(len(candidates._outdated))
        refresh(candidates)

    monkeypatch.setattr(Candidates, "refresh", watched)
    decider = deciding(*(report(f"n{i}") for i in range(5 * REFRESHED_TOGETHER)))
    for i in range(2 * REFRESHED_TOGETHER):
        assert isinstance(decider.decide(request(f"p{i}", declared("main", 20)), HEADROOM), Plan)
    for i in range(2 * REFRESHED_TOGETHER):
        decider.ledger.forget(PodUid(f"p{i}"))
    decider.decide(request("last", declared("main", 20)), HEADROOM)
    assert max(outdated) <= REFRESHED_TOGETHER
