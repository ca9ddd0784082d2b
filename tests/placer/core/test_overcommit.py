"""The promises that a node with an overcommit ratio may make."""

from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.core.refusal import Refusal
from placer.core.resize.change import change_of
from placer.core.resize.room import check_room
from placer.core.view import NodeView, node_view
from plimsoll.demand import ContainerDemand
from plimsoll.envelope import decode_report, encode
from plimsoll.events import NodeState, Report
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from tests.placer.core.worlds import best_effort, declared, gpu, plan, request, state, task

CARD = 24 * GIB


def node(ratio: float, **of_gpu: int) -> NodeView:
    """One GPU of 24 GiB."""
    return node_view(state("n1", gpu("A", ratio=ratio, **of_gpu)))


def place(ledger: Ledger, seen: NodeView, pod: str, *demands: ContainerDemand) -> Plan | Refusal:
    """Plan a pod, and book it where it fits."""
    decided = plan(request(pod, *demands), [seen], ledger, HEADROOM)
    if isinstance(decided, Plan):
        ledger.book(decided.booking)
    return decided


def test_declarations_go_on_up_to_the_ratio() -> None:
    """At 1.5, three pods of half a card fit on one, and a fourth of any size does not."""
    ledger, seen = Ledger(), node(1.5)
    assert all(isinstance(place(ledger, seen, f"p{n}", declared("main", 12)), Plan) for n in range(3))
    refused = place(ledger, seen, "p3", declared("main", 1))
    assert isinstance(refused, Refusal)
    assert refused.best_free_bytes == 0


def test_no_pod_is_promised_more_than_the_card_has() -> None:
    """No pod's declaration exceeds the card, in one container or in two. Such a pod would wait for itself."""
    ledger, seen = Ledger(), node(3.0)
    assert isinstance(place(ledger, seen, "p0", declared("main", 25)), Refusal)
    assert isinstance(place(ledger, seen, "p1", declared("main", 14), declared("side", 14)), Refusal)
    assert isinstance(place(ledger, seen, "p2", declared("main", 14), declared("side", 10)), Plan)


def test_who_declares_nothing_sees_no_more_than_is_there() -> None:
    """A best-effort pod's line is the headroom without the ratio. It has no place where promises exceed the card."""
    ledger, seen = Ledger(), node(2.0)
    first = place(ledger, seen, "p0", best_effort())
    assert isinstance(first, Plan)
    assert [grant.line_bytes for grant in first.booking.grants] == [CARD]
    assert isinstance(place(ledger, seen, "p1", declared("main", 24)), Plan)
    assert isinstance(place(ledger, seen, "p2", best_effort()), Refusal)


def test_a_ratio_below_one_keeps_memory_back_from_everybody() -> None:
    """At a ratio of 0.5 half a card is promised, also to best-effort pods."""
    assert isinstance(place(Ledger(), node(0.5), "p0", declared("main", 13)), Refusal)
    first = place(Ledger(), node(0.5), "p1", best_effort())
    assert isinstance(first, Plan)
    assert [grant.line_bytes for grant in first.booking.grants] == [CARD // 2]


def test_memory_of_strangers_is_not_promised_twice() -> None:
    """Memory of unknown processes reduces what may be promised by its full size, at any ratio."""
    ledger, seen = Ledger(), node(1.5, other_bytes=12 * GIB)
    assert isinstance(place(ledger, seen, "p0", declared("main", 24)), Plan)
    assert isinstance(place(ledger, seen, "p1", declared("main", 1)), Refusal)


def test_a_resize_follows_the_same_rules() -> None:
    """A resize may pass the card's memory in the sum over pods, but not in one pod."""
    ledger, seen = Ledger(), node(1.5)
    for pod in ("p0", "p1"):
        assert isinstance(place(ledger, seen, pod, declared("main", 12)), Plan)
    booked = ledger.booking(PodUid("p0"))
    assert booked is not None
    asked = Resize(pod="p0", gpu_memory="24Gi")
    check_room(change_of(booked, asked), asked, ledger, seen)
    asked = Resize(pod="p0", gpu_memory="25Gi")
    with pytest.raises(InputError, match="give at most 24Gi in total"):
        check_room(change_of(booked, asked), asked, ledger, node(3.0))


@given(
    st.floats(0.25, 4),
    st.lists(st.one_of(st.none(), st.integers(1, 24)), max_size=20),
)
def test_promises_never_pass_usable_times_ratio(ratio: float, sizes: list[int | None]) -> None:
    """For any arrivals the sum of declarations stays within the ratio, and each line within the card."""
    ledger, seen = Ledger(), node(ratio)
    promised: Counter[str] = Counter()
    for index, size in enumerate(sizes):
        demand = best_effort() if size is None else declared("main", size)
        decided = place(ledger, seen, str(index), demand)
        for grant in decided.booking.grants if isinstance(decided, Plan) else ():
            promised[grant.gpu] += grant.memory_bytes or 0
            assert grant.line_bytes <= CARD
    assert all(total <= int(CARD * ratio) for total in promised.values())


@pytest.mark.parametrize("ratio", [0.0, -1.0, 10.5])
def test_a_report_with_an_absurd_ratio_is_refused_by_name(ratio: float) -> None:
    """A report is refused by the field's name if its ratio would promise nothing or without end."""
    with pytest.raises(InputError, match=r"state\.gpus\[A\]\.overcommit_ratio"):
        decode_report(_message(state("n1", gpu("A", task("p", "A", GIB), ratio=ratio))))


def test_a_report_of_an_older_monitor_overcommits_nothing() -> None:
    """A report without a ratio is of a node that overcommits nothing."""
    message = _message(state("n1", gpu("A", ratio=2.0))).replace(b'"overcommit_ratio":2.0,', b"")
    assert decode_report(message).state.gpus[0].overcommit_ratio == 1.0


def _message(told: NodeState) -> bytes:
    return encode("node.state", "id", "/nodes/n1", told.time, Report(state=told))
