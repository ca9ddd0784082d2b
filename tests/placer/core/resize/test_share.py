"""The rules for new shares and limits: which are allowed, and which message refuses the others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.booking import Booking
from placer.core.ledger import Ledger, NotBookedError
from placer.core.policies import policy_named
from placer.core.reasons import Reason
from placer.core.refusal import Refusal
from placer.core.resize.change import ResizeChange, change_of
from placer.core.resize.room import check_room
from placer.core.view import node_view
from plimsoll.demand import ContainerDemand
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from tests.placer.core.resize.bookings import N1, booking
from tests.placer.core.worlds import best_effort, declared, gpu, plan, request, state, whole


def asked(
    share: str | None = None, limit: str | None = None, size: str | None = None, container: str | None = None
) -> Resize:
    """A request to change pod `p`."""
    name = ContainerName(container) if container else None
    return Resize(pod="p", gpu_memory=size, gpu_share=share, gpu_share_limit=limit, container=name)


def terms(change: ResizeChange) -> list[tuple[int, int, int]]:
    """Line in GiB, share and limit on each GPU after the change."""
    return [(line.line_bytes // GIB, line.share_pct, line.limit_pct) for line in change.after]


def check(mine: Booking, wanted: Resize, ledger: Ledger) -> ResizeChange:
    """Judge the request without a report of the node."""
    change = change_of(mine, wanted)
    check_room(change, wanted, ledger, None)
    return change


@pytest.mark.parametrize(
    ("wanted", "after"),
    [
        (asked(share="80"), (2, 40, 100)),
        (asked(limit="60"), (2, 30, 60)),
        (asked(share="160", limit="90"), (2, 80, 90)),
        (asked(share="0"), (2, 0, 100)),
        (asked(share="20", limit="10", size="6Gi"), (3, 10, 10)),
    ],
)
def test_what_is_asked_changes_and_nothing_else(wanted: Resize, after: tuple[int, int, int]) -> None:
    """A change touches only the requested fields. Shares are totals and split evenly; limits hold for each GPU."""
    mine = booking("p", declared("main", 2, share_pct=30), gpus=("A", "B"))
    change = change_of(mine, wanted)
    assert terms(change) == [after, after]
    assert change.new.grants[0].memory_bytes == change.new.grants[0].line_bytes


@pytest.mark.parametrize("demand", [best_effort(), declared("main", 2)])
def test_a_container_that_declared_no_share_can_be_given_one(demand: ContainerDemand) -> None:
    """A container that declared no share can get one; its line, declared or not, stays."""
    mine = booking("p", demand)
    ledger = Ledger()
    ledger.book(mine)
    change = check(mine, asked(share="40", limit="50"), ledger)
    [before], [after] = mine.grants, change.new.grants
    assert after == replace(before, share_pct=40, limit_pct=50)


@pytest.mark.parametrize(
    ("demand", "wanted", "said"),
    [
        (
            whole(),
            asked(share="50"),
            "container: 'main' has whole GPUs: all their memory and time are its own",
        ),
        (whole(), asked(limit="50"), "container: 'main' has whole GPUs"),
        (best_effort(), asked(share="5", size="1Gi"), "is best-effort .* change its gpu-share .* alone"),
        (declared("main", 2), asked(), "gpu-memory: None is not given, nor a share or limit; give"),
        (declared("main", 2), asked(share="lots"), "gpu-share: 'lots' is not a quantity"),
        (declared("main", 2), asked(share="-1"), "gpu-share: '-1' is negative; give 0 or more percent"),
        (declared("main", 2), asked(share="0.5"), "gpu-share: '0.5' is not a whole number"),
        (
            declared("main", 2),
            asked(share="101"),
            r"gpu-share: '101' is more than 1 GPU\(s\) have; give at most 100",
        ),
        (
            declared("main", 2),
            asked(limit="0"),
            "gpu-share-limit: '0' is no percentage of a GPU; give 1 to 100",
        ),
        (declared("main", 2), asked(limit="101"), "gpu-share-limit: '101' is no percentage"),
        (
            declared("main", 2, share_pct=30),
            asked(limit="20"),
            "gpu-share-limit: '20' is below the share of 30 .*; give 30 to 100, or lower gpu-share with it",
        ),
        (
            declared("main", 2),
            asked(share="50", limit="40"),
            "gpu-share: '50' is 50 on each GPU, above the limit of 40; give at most 40, or raise gpu-share-limit",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(demand: ContainerDemand, wanted: Resize, said: str) -> None:
    """A refusal names field, value and remedy."""
    with pytest.raises(InputError, match=said):
        change_of(booking("p", demand), wanted)


def test_a_share_that_does_not_divide_by_the_gpus_is_refused() -> None:
    """A share must divide evenly by the number of GPUs, as in the pod's own declaration."""
    mine = booking("p", declared("main", 2), gpus=("A", "B"))
    with pytest.raises(
        InputError, match="gpu-share: '61' does not divide evenly by 2 GPUs; give a multiple of 2"
    ):
        change_of(mine, asked(share="61"))


def test_a_share_is_raised_up_to_what_others_leave_and_not_past_it() -> None:
    """A share is raised up to the room that others leave.

    The fullest GPU decides, and the message names it and the most in total.
    """
    ledger = Ledger()
    mine = booking("p", declared("main", 2, share_pct=10), gpus=("A", "B"))
    ledger.book(mine)
    ledger.book(booking("neighbour", declared("main", 2, share_pct=45), gpus=("B",)))
    ledger.book(booking("other", declared("main", 2, share_pct=15), gpus=("B", "A")))
    check(mine, asked(share="80"), ledger)
    with pytest.raises(
        InputError, match="'82' does not fit: 60 % of B are promised to others; give at most 80 in"
    ):
        check(mine, asked(share="82"), ledger)


def test_the_pods_other_container_counts_too() -> None:
    """Two containers on one GPU share its hundred."""
    ledger = Ledger()
    mine = booking("p", declared("main", 2, share_pct=30), declared("side", 1, share_pct=50))
    ledger.book(mine)
    check(mine, asked(share="50", container="main"), ledger)
    with pytest.raises(InputError, match="50 % of A are promised to others; give at most 50 in total"):
        check(mine, asked(share="51", container="main"), ledger)


def test_lowering_is_allowed_where_promises_passed_100() -> None:
    """A lowering is allowed while the promises on a GPU exceed 100. The API server may have promised that much."""
    ledger = Ledger()
    mine = booking("p", declared("main", 2, share_pct=60))
    ledger.restore(mine)
    ledger.restore(booking("neighbour", declared("main", 2, share_pct=60)))
    check(mine, asked(share="50"), ledger)
    with pytest.raises(InputError, match="give at most 60 in total"):
        check(mine, asked(share="61"), ledger)


def test_room_is_taken_before_a_raise_and_given_back_after_a_lowering() -> None:
    """Until a change is settled, the larger of old and new counts for each value separately."""
    mine = booking("p", declared("main", 4, share_pct=30))
    [larger] = change_of(mine, asked(share="20", size="6Gi")).larger.grants
    assert (larger.memory_bytes, larger.line_bytes, larger.share_pct) == (6 * GIB, 6 * GIB, 30)
    [larger] = change_of(mine, asked(share="40", size="2Gi")).larger.grants
    assert (larger.memory_bytes, larger.line_bytes, larger.share_pct) == (4 * GIB, 4 * GIB, 40)


def test_what_is_not_asked_stays_as_it_is_in_force_though_the_ledger_is_ahead() -> None:
    """A raise without a clear outcome goes on counting in the ledger, but the next change does not write it."""
    in_force = booking("p", declared("main", 4, share_pct=30))
    counted = booking("p", declared("main", 8, share_pct=50))
    change = change_of(counted, asked(limit="80"), in_force)
    assert terms(change) == [(4, 30, 80)]
    assert [(g.line_bytes // GIB, g.share_pct, g.limit_pct) for g in change.larger.grants] == [(8, 50, 100)]


def test_a_placement_finds_the_room_as_a_resize_left_it() -> None:
    """A placement finds no room that a raise took, and finds the room that a lowering gave back."""
    ledger, seen = Ledger(), node_view(state("n1", gpu("A")))
    mine = booking("p", declared("main", 1, share_pct=30))
    ledger.book(mine)

    def place(share_pct: int) -> object:
        return plan(
            request("q", declared("main", 1, share_pct)), [seen], ledger, policy_named("headroom", "policy")
        )

    assert not isinstance(place(70), Refusal)
    raised = check(mine, asked(share="40"), ledger)
    ledger.restore(raised.larger)
    refused = place(70)
    assert isinstance(refused, Refusal)
    assert refused.reasons == {N1: (Reason.GPU_SHARE.value,)}
    with pytest.raises(NotBookedError, match="promised shares of GPU A on n1 would pass 100"):
        ledger.book(booking("q", declared("main", 1, share_pct=70)))
    ledger.restore(check(raised.new, asked(share="30"), ledger).new)
    assert not isinstance(place(70), Refusal)


@given(
    shares=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    wanted=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 110), st.integers(1, 100)), max_size=8),
)
def test_no_row_of_allowed_changes_promises_more_than_100(
    shares: list[int], wanted: list[tuple[int, int, int]]
) -> None:
    """Allowed changes in any order keep each GPU's promised shares within 100.

    After a refused raise, the share in the remedy is allowed.
    """
    ledger = Ledger()
    for number, share_pct in enumerate(shares):
        if sum(one.grants[0].share_pct for one in ledger.bookings()) + share_pct <= 100:
            ledger.book(booking(f"p{number}", declared("main", 1, share_pct)))
    for number, share, limit in wanted:
        mine = ledger.booking(PodUid(f"p{number}"))
        if mine is None:
            continue
        try:
            change = check(mine, asked(share=str(share), limit=str(limit)), ledger)
        except InputError as error:
            if "does not fit" in error.problem:
                most = int(error.remedy.split()[3])
                assert most < share
                check(mine, asked(share=str(most), limit=str(limit)), ledger)
        else:
            ledger.restore(change.new)
        granted = [grant for one in ledger.on_gpu(N1, GpuUuid("A")) for grant in one.grants]
        assert sum(grant.share_pct for grant in granted) <= 100
        assert all(grant.share_pct <= grant.limit_pct for grant in granted)
