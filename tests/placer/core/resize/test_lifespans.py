"""A resize of a pod with init containers: the room that counts is that of the time in which the container runs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.resize.change import ResizeChange, change_of
from placer.core.resize.room import check_room
from placer.core.view import node_view
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.lifespan import MAIN, Lifespan
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from tests.placer.core.resize.bookings import booking
from tests.placer.core.worlds import declared, gpu, init, state

A = GpuUuid("A")
SEEN = node_view(state("n1", gpu("A")))


def asked(container: str | None = None, size: str | None = None, share: str | None = None) -> Resize:
    """A request to change pod `p`."""
    name = ContainerName(container) if container else None
    return Resize(pod="p", gpu_memory=size, gpu_share=share, container=name)


def check(mine: Booking, wanted: Resize, ledger: Ledger) -> ResizeChange:
    """Judge the request."""
    change = change_of(mine, wanted)
    check_room(change, wanted, ledger, SEEN)
    return change


WARM, PROXY = init(declared("warm", 16, 60), 0), init(declared("proxy", 2, 10), 1, sidecar=True)
SECOND, WORK = init(declared("second", 8, 20), 2), declared("main", 4, 20)
OTHER = declared("main", 6, 30)


def crowded() -> tuple[Booking, Ledger]:
    """Pod `p` with two init containers and a sidecar between them, beside a pod with 6 GiB and 30 %."""
    ledger, mine = Ledger(), booking("p", WARM, PROXY, SECOND, WORK)
    ledger.book(mine)
    ledger.book(booking("other", OTHER))
    return mine, ledger


@pytest.mark.parametrize(
    ("container", "most_gib", "most_pct"),
    [("warm", 18, 70), ("second", 16, 60), ("main", 16, 60), ("proxy", 10, 50)],
)
def test_a_container_may_grow_to_what_is_free_while_it_runs(
    container: str, most_gib: int, most_pct: int
) -> None:
    """A raise is allowed up to the room that others leave while the container runs, and the remedy names it."""
    mine, ledger = crowded()
    check(mine, asked(container, size=f"{most_gib}Gi"), ledger)
    check(mine, asked(container, share=str(most_pct)), ledger)
    with pytest.raises(InputError, match=f"give at most {most_gib}Gi in total"):
        check(mine, asked(container, size=f"{most_gib + 1}Gi"), ledger)
    with pytest.raises(InputError, match=f"give at most {most_pct} in total"):
        check(mine, asked(container, share=str(most_pct + 1)), ledger)


def test_an_unnamed_container_is_the_one_that_is_no_init_container() -> None:
    """A pod with one ordinary container is resized without its name, and an init container by name."""
    mine, ledger = crowded()
    assert check(mine, asked(size="5Gi"), ledger).container == "main"
    assert check(mine, asked("warm", size="5Gi"), ledger).container == "warm"
    assert change_of(booking("p", WARM), asked(size="5Gi")).container == "warm"
    both = booking("p", WARM, WORK, replace(WORK, container=ContainerName("side")))
    with pytest.raises(InputError, match="name one of warm, main, side"):
        change_of(both, asked(size="5Gi"))


spans = st.lists(st.sampled_from([None, False, True]), min_size=1, max_size=4).map(
    lambda kinds: [MAIN if kind is None else Lifespan(n, kind) for n, kind in enumerate(kinds)]
)


@given(spans, st.lists(st.tuples(st.integers(0, 3), st.integers(1, 26), st.integers(0, 110)), max_size=8))
def test_allowed_changes_keep_every_promise(
    lifespans: list[Lifespan], wanted: list[tuple[int, int, int]]
) -> None:
    """Allowed changes in any order keep the GPU within its bytes and its time; the remedy of a refusal is allowed."""
    ledger, uid = Ledger(), PodUid("p")
    demands = [replace(declared(f"c{n}", 2, 10), lifespan=span) for n, span in enumerate(lifespans)]
    ledger.book(booking("p", *demands))
    ledger.book(booking("other", OTHER))
    for number, gib, share in wanted:
        name = f"c{number % len(demands)}"
        for request in (asked(name, size=f"{gib}Gi"), asked(name, share=str(share))):
            mine = ledger.booking(uid)
            assert mine is not None
            try:
                change = check(mine, request, ledger)
            except InputError as error:
                if "does not fit" in error.problem:
                    most = error.remedy.split()[3]
                    again = asked(name, size=most) if request.gpu_memory else asked(name, share=most)
                    check(mine, again, ledger)
            else:
                ledger.restore(change.new)
            promises = [ledger.promise(one, A) for one in ledger.bookings()]
            assert sum(one.expected_bytes for one in promises) <= 24 * GIB
            assert sum(one.share_pct for one in promises) <= 100
