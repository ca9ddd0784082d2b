"""Decisions of the planner: which pods fit, which GPU is best, and why a pod is refused."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core import assignment
from placer.core.booking import Booking, Grant
from placer.core.learned import Learned
from placer.core.ledger import ASSUMED_BYTES, Ledger, NotBookedError
from placer.core.plan import Plan
from placer.core.policies import POLICIES, policy_named
from placer.core.policies.headroom import HEADROOM
from placer.core.reasons import Reason, summary
from placer.core.refusal import Refusal
from placer.core.room import SHARERS_PER_GPU, Room, room_on
from placer.core.view import GpuView, NodeView, node_view
from plimsoll.demand import ContainerDemand
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import best_effort, declared, gpu, plan, request, state, task, whole

NOW_S = 1.8e9


def place(
    ledger: Ledger, nodes: list[NodeView], pod: str, *containers: ContainerDemand, owner: str = ""
) -> Plan:
    """Plan and book, as a front end does."""
    decided = plan(request(pod, *containers, owner=owner or None), nodes, ledger, HEADROOM)
    assert isinstance(decided, Plan), decided
    ledger.book(decided.booking)
    return decided


def refuse(ledger: Ledger, nodes: list[NodeView], pod: str, *containers: ContainerDemand) -> Refusal:
    """Plan, expecting that nothing fits."""
    decided = plan(request(pod, *containers), nodes, ledger, HEADROOM)
    assert isinstance(decided, Refusal), decided
    return decided


def test_two_pods_in_one_second_see_each_other() -> None:
    """A promise counts before its memory is measured. The paper's algorithm misses it."""
    ledger, nodes = Ledger(), [node_view(state("n", gpu("g")))]
    place(ledger, nodes, "a", declared("main", 16))
    refusal = refuse(ledger, nodes, "b", declared("main", 16))
    assert refusal.reasons == {NodeName("n"): (Reason.GPU_MEMORY.value,)}
    assert refusal.best_free_bytes == 8 * GIB


def test_measured_use_beyond_the_declaration_counts() -> None:
    """A pod that holds more than it declared takes the room that it holds."""
    ledger = Ledger()
    place(ledger, [node_view(state("n", gpu("g")))], "a", declared("main", 4))
    after = [node_view(state("n", gpu("g", task("a", "g", 20 * GIB))))]
    refuse(ledger, after, "b", declared("main", 8))


def test_measured_use_within_the_declaration_is_not_counted_twice() -> None:
    """Bytes that a pod holds are part of its promise and do not count again."""
    ledger = Ledger()
    place(ledger, [node_view(state("n", gpu("g")))], "a", declared("main", 16))
    place(ledger, [node_view(state("n", gpu("g", task("a", "g", 10 * GIB))))], "b", declared("main", 8))


def test_memory_of_unknown_processes_counts() -> None:
    """Memory that no booked pod holds counts as taken."""
    refuse(Ledger(), [node_view(state("n", gpu("g", other_bytes=20 * GIB)))], "a", declared("main", 8))


def test_promised_shares_never_pass_one_gpu() -> None:
    """60 and 50 do not fit on one GPU, however much memory is free."""
    ledger, nodes = Ledger(), [node_view(state("n", gpu("g")))]
    place(ledger, nodes, "a", declared("main", 1, share_pct=60))
    assert refuse(ledger, nodes, "b", declared("main", 1, share_pct=50)).reasons == {
        NodeName("n"): (Reason.GPU_SHARE.value,)
    }


def test_two_gpus_are_two_different_ones() -> None:
    """A container over two GPUs never gets the same one twice."""
    nodes = [node_view(state("n", gpu("g0"), gpu("g1")))]
    gpus = place(Ledger(), nodes, "a", declared("main", 4, gpus=2)).gpus
    assert [len(set(given)) for given in gpus.values()] == [2]
    one = [node_view(state("n", gpu("g0")))]
    assert refuse(Ledger(), one, "a", declared("main", 4, gpus=2)).reasons == {
        NodeName("n"): (Reason.GPU_COUNT.value,)
    }


def test_a_whole_gpu_is_nobody_elses() -> None:
    """A whole GPU is given out only while it is empty, and nothing else fits on it afterwards."""
    ledger, nodes = Ledger(), [node_view(state("n", gpu("g")))]
    place(ledger, nodes, "a", whole())
    assert refuse(ledger, nodes, "b", best_effort()).reasons == {
        NodeName("n"): (Reason.GPU_TAKEN_WHOLE.value,)
    }
    shared = Ledger()
    place(shared, nodes, "c", declared("main", 1))
    assert refuse(shared, nodes, "d", whole()).reasons == {NodeName("n"): (Reason.GPU_NOT_EMPTY.value,)}


def test_best_effort_counts_what_its_owner_was_seen_to_need() -> None:
    """A task of an owner that peaked at 6 GiB is expected to reach 6 GiB again, also while it holds less."""
    ledger = Ledger()
    nodes = [node_view(state("n", gpu("g", usable_gib=16)))]
    place(ledger, nodes, "a", best_effort(), owner="jobs")
    resting = state("n", gpu("g", task("a", "g", 100 * MIB, peak_bytes=6 * GIB), usable_gib=16))
    Learned(ledger).observe(resting, NOW_S)
    place(ledger, [node_view(resting)], "b", best_effort(), owner="jobs")
    decided = plan(request("c", best_effort(), owner="jobs"), [node_view(resting)], ledger, HEADROOM)
    assert isinstance(decided, Refusal)
    assert decided.best_free_bytes == 4 * GIB


def test_an_unknown_best_effort_pod_is_assumed_to_need_something() -> None:
    """A burst of unknown pods spreads instead of going to the same GPU."""
    ledger, nodes = Ledger(), [node_view(state("n", gpu("g0"), gpu("g1")))]
    used = Counter(
        place(ledger, nodes, str(index), best_effort()).booking.grants[0].gpu for index in range(4)
    )
    assert set(used.values()) == {2}
    assert ASSUMED_BYTES > 0


def test_a_best_effort_line_is_what_promises_leave_free() -> None:
    """A best-effort pod's grant carries the headroom at placement as its line."""
    ledger, nodes = Ledger(), [node_view(state("n", gpu("g")))]
    place(ledger, nodes, "a", declared("main", 16))
    assert place(ledger, nodes, "b", best_effort()).booking.grants[0].line_bytes == 8 * GIB


def test_containers_that_fit_only_one_way_still_fit() -> None:
    """If the spreading policy strands the second container, the planner places both by the tight order."""
    nodes = [node_view(state("n", gpu("small", usable_gib=8), gpu("large", usable_gib=10)))]
    decided = place(Ledger(), nodes, "a", declared("first", 5), declared("second", 5), declared("third", 8))
    assert {name: gpus[0] for name, gpus in decided.gpus.items()} == {
        "first": "large",
        "second": "large",
        "third": "small",
    }


def test_equal_nodes_are_taken_in_the_order_given() -> None:
    """The sorted list's order decides between equal scores, so a decision is deterministic."""
    nodes = [node_view(state(name, gpu(f"{name}-g"))) for name in ("b", "a", "c")]
    assert place(Ledger(), nodes, "p", declared("main", 1)).booking.node == "b"


def test_the_front_ends_own_reasons_stand_beside_the_gpus() -> None:
    """A node refused for CPU is not searched for GPUs, and a refusal counts reasons of both kinds."""
    nodes = [node_view(state("cpu", gpu("a"))), node_view(state("gpu", gpu("b", usable_gib=1)))]

    def fit(node: NodeName) -> tuple[str, ...]:
        return ("Insufficient cpu",) if node == "cpu" else ()

    decided = plan(request("p", declared("main", 2)), nodes, Ledger(), HEADROOM, fit)
    assert isinstance(decided, Refusal)
    assert summary(3, decided.reasons) == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient plimsoll.dev/gpu-memory on one GPU."
    )


def test_reasons_count_nodes_whatever_their_gpus() -> None:
    """Two nodes with two used GPUs each are two nodes in the summary, and each reason names what it counts."""
    nodes = [node_view(state(name, gpu(f"{name}-1"), gpu(f"{name}-2"))) for name in ("a", "b")]
    ledger = Ledger()
    for view in nodes:
        place(ledger, [view], f"on-{view.node}", declared("main", 1, gpus=2))
    decided = refuse(ledger, nodes, "p", whole())
    assert summary(2, decided.reasons) == (
        "0/2 nodes are available: 2 node(s) had GPUs in use while a whole one was asked for."
    )
    assert all(reason.value.startswith(("node(s) ", "Insufficient ")) for reason in Reason)


def test_a_pod_is_booked_once() -> None:
    """A second booking of a pod is a conflict and changes nothing.

    After the pod is forgotten, it can be booked again.
    """
    ledger, nodes = Ledger(), [node_view(state("n", gpu("g")))]
    booking = place(ledger, nodes, "a", declared("main", 20)).booking
    with pytest.raises(NotBookedError, match="booked on n already"):
        ledger.book(booking)
    ledger.forget(PodUid("a"))
    place(ledger, nodes, "b", declared("main", 20))


pods = st.lists(
    st.builds(
        ContainerDemand,
        container=st.just("main"),
        gpus=st.integers(1, 2),
        memory_bytes=st.one_of(st.none(), st.integers(1, 24 * GIB)),
        share_pct=st.integers(0, 100),
        limit_pct=st.just(100),
        whole=st.just(False),  # noqa: FBT003 - the strategy's value
    ),
    max_size=25,
)


@given(
    st.sampled_from([*POLICIES, "fragmentation", "plimsoll"]),
    pods,
    st.lists(st.integers(0, 24), max_size=12),
)
def test_nothing_is_ever_oversubscribed(
    policy: str, demands: list[ContainerDemand], forgotten: list[int]
) -> None:
    """Under every policy, a GPU's declared bytes stay within its memory and its shares within 100."""
    ledger, chosen = Ledger(), policy_named(policy, "test")
    nodes = [node_view(state(name, gpu(f"{name}0"), gpu(f"{name}1"))) for name in ("a", "b")]
    bookings: dict[PodUid, Booking] = {}
    for index, demand in enumerate(demands):
        decided = plan(request(str(index), demand), nodes, ledger, chosen)
        if isinstance(decided, Plan):
            ledger.book(decided.booking)
            bookings[decided.booking.pod] = decided.booking
        for gone in forgotten[index : index + 1]:
            ledger.forget(PodUid(str(gone)))
            bookings.pop(PodUid(str(gone)), None)
        promised_bytes: Counter[str] = Counter()
        promised_pct: Counter[str] = Counter()
        for grant in (grant for booking in bookings.values() for grant in booking.grants):
            promised_bytes[grant.gpu] += grant.memory_bytes or 0
            promised_pct[grant.gpu] += grant.share_pct
        assert all(total <= 24 * GIB for total in promised_bytes.values())
        assert all(total <= 100 for total in promised_pct.values())
        assert {booking.pod for booking in ledger.bookings()} == set(bookings)


def test_a_pod_of_many_containers_costs_each_gpu_one_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """The room of a GPU is computed once, however many containers of the pod go there, and all of them fit."""
    read: list[int] = []

    def counted(node: NodeName, one: GpuView, ledger: Ledger, pending: Booking | None = None) -> Room:
        read.append(1 + len(pending.grants if pending else ()))
        return room_on(node, one, ledger, pending)

    monkeypatch.setattr(assignment, "room_on", counted)
    nodes = [node_view(state("n", *(gpu(f"g{index}") for index in range(8))))]
    many = [declared(f"c{index}", 0.5) for index in range(8 * SHARERS_PER_GPU)]
    placed = place(Ledger(), nodes, "a", *many)
    assert set(Counter(one.gpu for one in placed.booking.grants).values()) == {SHARERS_PER_GPU}
    assert sum(read) == 8


def test_more_containers_than_gpus_can_share_are_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod of more containers than the node's GPUs take together is refused before the first is placed."""
    nodes = [node_view(state("n", gpu("g0"), gpu("g1")))]
    most = [declared(f"c{index}", 0.1) for index in range(2 * SHARERS_PER_GPU)]
    assert len(place(Ledger(), nodes, "a", *most).booking.grants) == len(most)
    monkeypatch.setattr(assignment, "misfit", lambda *_: pytest.fail("a GPU was read"))
    refusal = refuse(Ledger(), nodes, "b", *most, declared("last", 0.1))
    assert refusal.reasons == {NodeName("n"): (Reason.GPU_SHARERS.value,)}


grants = st.builds(
    Grant,
    container=st.just(ContainerName("main")),
    gpu=st.just(GpuUuid("g")),
    memory_bytes=st.one_of(st.none(), st.integers(1, 9 * GIB)),
    share_pct=st.integers(0, 60),
    limit_pct=st.just(100),
    whole=st.booleans(),
    line_bytes=st.integers(0, 9 * GIB),
)


@given(
    st.lists(grants, max_size=3),
    st.lists(grants, max_size=4),
    st.sampled_from([1.0, 1.5]),
    st.sampled_from([None, 3]),
)
def test_the_room_after_a_grant_is_the_room_beside_it(
    booked: list[Grant], planned: list[Grant], ratio: float, peak_gib: int | None
) -> None:
    """For any grants, the room kept up to date by each equals the room computed anew with all of them."""
    ledger, node = Ledger(), node_view(state("n", gpu("g", other_bytes=GIB, ratio=ratio)))
    for index, one in enumerate(booked):
        ledger.restore(Booking(PodUid(f"p{index}"), node.node, (one,), "owner"))
    if peak_gib is not None:
        Learned(ledger).observe(state("n", gpu("g", task("p0", "g", peak_gib * GIB))), NOW_S)
    room = room_on(node.node, node.gpus[0], ledger)
    for one in planned:
        alone = Booking(PodUid("new"), node.node, (one,), "owner")
        room = room.after(one, ledger.expected_bytes(alone, GpuUuid("g")))
    pending = Booking(PodUid("new"), node.node, tuple(planned), "owner")
    assert room == room_on(node.node, node.gpus[0], ledger, pending)
