"""The rules for a new line: which lines are allowed, and which message refuses the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.resize.change import NotNowError, ResizeChange, change_of
from placer.core.resize.room import check_room
from placer.core.room import room_on
from placer.core.view import NodeView, node_view
from plimsoll.demand import ContainerDemand
from plimsoll.ids import ContainerName
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB, parse_whole
from tests.placer.core.resize.bookings import N1, booking
from tests.placer.core.worlds import best_effort, declared, gpu, state, task, whole


def view(*used_gib: float, pod: str = "p") -> NodeView:
    """A view of node n1 with GPUs A, B, … of 24 GiB. The pod holds this many measured bytes on each."""
    uuids = "ABCD"[: len(used_gib)]
    gpus = (gpu(uuid, task(pod, uuid, int(gib * GIB))) for uuid, gib in zip(uuids, used_gib, strict=True))
    return node_view(state("n1", *gpus))


def memory(size: str, container: str | None = None) -> Resize:
    """A request for a new line."""
    return Resize(pod="p", gpu_memory=size, container=ContainerName(container) if container else None)


def sizes(change: ResizeChange) -> list[dict[str, int]]:
    """The container's lines before and after, bytes by GPU."""
    return [{line.gpu: line.line_bytes for line in lines} for lines in (change.before, change.after)]


def check(mine: Booking, asked: Resize, ledger: Ledger, seen: NodeView | None) -> None:
    """Judge the request."""
    check_room(change_of(mine, asked), asked, ledger, seen)


def refusal(mine: Booking, asked: Resize, ledger: Ledger, seen: NodeView | None) -> InputError:
    """The message that refuses the request for lack of room."""
    with pytest.raises(InputError) as refused:
        check(mine, asked, ledger, seen)
    return refused.value


def test_a_total_is_split_evenly_and_only_the_named_container_changes() -> None:
    """6Gi over two GPUs become 3Gi on each, and the pod's other container keeps its lines."""
    both = booking("p", declared("main", 2), declared("side", 1), gpus=("A", "B"))
    change = change_of(both, memory("6Gi", "main"))
    assert sizes(change) == [{"A": 2 * GIB, "B": 2 * GIB}, {"A": 3 * GIB, "B": 3 * GIB}]
    assert [g.line_bytes for g in change.new.grants if g.container == "side"] == [GIB, GIB]
    assert all(g.memory_bytes == g.line_bytes for g in change.new.grants)


def test_the_only_container_with_a_gpu_needs_no_name() -> None:
    """A request needs no container name if only one container has a GPU; otherwise the refusal lists the names."""
    assert change_of(booking("p", declared("only", 2)), memory("3Gi")).container == "only"
    with pytest.raises(InputError, match="container: None is not given; name one of main, side"):
        change_of(booking("p", declared("main", 2), declared("side", 1)), memory("3Gi"))


@pytest.mark.parametrize(
    ("demand", "container", "size", "said"),
    [
        (whole(), None, "3Gi", "container: 'main' has whole GPUs"),
        (best_effort(), None, "3Gi", "container: 'main' is best-effort"),
        (declared("main", 2), "nain", "3Gi", "container: 'nain' has no GPU in this pod; name one of main"),
        (declared("main", 2), None, "0", "gpu-memory: '0' leaves nothing"),
        (declared("main", 2), None, "3GB", "gpu-memory: '3GB' is not a quantity"),
        (declared("main", 2), None, "-1", "gpu-memory: '-1' is negative"),
    ],
)
def test_what_cannot_be_resized_is_refused_by_name(
    demand: ContainerDemand, container: str | None, size: str, said: str
) -> None:
    """A refusal names field, value and remedy, also if the request has several faults."""
    with pytest.raises(InputError) as refused:
        change_of(booking("p", demand), memory(size, container))
    assert said in str(refused.value)


def test_a_size_that_does_not_divide_by_the_gpus_is_refused() -> None:
    """A size must divide evenly by the number of GPUs, as in the pod's own declaration."""
    with pytest.raises(InputError, match="does not divide evenly by 2 GPUs; give a multiple of 2"):
        change_of(booking("p", declared("main", 2), gpus=("A", "B")), memory("3000001"))


def test_a_raise_must_fit_what_promises_leave_free() -> None:
    """Beside a neighbour's 10 of 24 GiB, 14 fit and a byte more does not; the message names the most."""
    ledger = Ledger()
    mine = booking("p", declared("main", 4))
    ledger.book(mine)
    ledger.book(booking("neighbour", declared("main", 10)))
    check(mine, memory("14Gi"), ledger, view(0))
    size = str(14 * GIB + 1)
    refused = refusal(mine, memory(size), ledger, view(0))
    assert "give at most 14Gi in total" in refused.remedy


def test_every_gpu_must_have_the_room() -> None:
    """A raise needs room on every GPU: a neighbour on the second GPU bounds the line on both."""
    ledger = Ledger()
    mine = booking("p", declared("main", 4), gpus=("A", "B"))
    ledger.book(mine)
    ledger.book(booking("neighbour", declared("main", 10), gpus=("B",)))
    check(mine, memory("28Gi"), ledger, view(0, 0))
    refused = refusal(mine, memory("30Gi"), ledger, view(0, 0))
    assert "free on B" in refused.problem
    assert "give at most 28Gi in total" in refused.remedy


def test_lowering_is_allowed_whatever_is_measured_or_promised() -> None:
    """A lowering is allowed below the measured use, on an overfull GPU, and without a report."""
    ledger = Ledger()
    mine = booking("p", declared("main", 20))
    ledger.restore(mine)
    ledger.restore(booking("neighbour", declared("main", 20)))
    for seen in (view(19), None):
        check(mine, memory("1Gi"), ledger, seen)


def test_a_raise_without_a_report_waits_for_one() -> None:
    """Without a report a raise is put off, as nobody has measured the room; the request is not at fault."""
    ledger = Ledger()
    mine = booking("p", declared("main", 4))
    ledger.book(mine)
    for seen in (None, view()):
        with pytest.raises(NotNowError, match="no report shows A on n1"):
            check(mine, memory("5Gi"), ledger, seen)


@given(
    line=st.integers(1, 24),
    asked=st.integers(1, 30),
    neighbour=st.integers(1, 24),
    used=st.integers(0, 24),
    side=st.integers(0, 4),
)
def test_an_allowed_raise_never_overfills_and_the_named_most_is_the_most(
    line: int, asked: int, neighbour: int, used: int, side: int
) -> None:
    """After an allowed raise no GPU lacks memory. After a refused raise, the size in the remedy is allowed."""
    ledger = Ledger()
    demands = [declared("main", line), *([declared("side", side)] if side else [])]
    mine = booking("p", *demands)
    ledger.restore(mine)
    ledger.restore(booking("neighbour", declared("main", neighbour)))
    seen = view(used)
    try:
        check(mine, memory(f"{asked}Gi", "main"), ledger, seen)
    except InputError as error:
        assert asked > line
        most = parse_whole(error.remedy.split()[3], "most", "bytes")
        assert line * GIB <= most < asked * GIB
        check(mine, memory(str(most), "main"), ledger, seen)
        with pytest.raises(InputError):
            check(mine, memory(str(most + 1), "main"), ledger, seen)
    else:
        ledger.restore(change_of(mine, memory(f"{asked}Gi", "main")).new)
        assert asked <= line or room_on(N1, seen.gpus[0], ledger).free_bytes >= 0
