"""Ledger and planner with init containers and sidecars, against a restatement that plays each pod's life."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.booking import Booking, Grant, booking_of, decided, larger, start_of
from placer.core.ledger import Ledger, NotBookedError
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import POLICIES
from placer.core.policy_context import Request
from placer.core.reasons import Reason
from placer.core.refusal import Refusal
from placer.core.room import SHARERS_PER_GPU, room_on
from placer.core.view import node_view
from placer.scheduler.binding.binding import decision_annotations
from placer.scheduler.pods.needs import needs_of
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from plimsoll.lifespan import Lifespan, StartOrder
from plimsoll.quantity import GIB, MIB
from tests.placer.core.worlds import best_effort, declared, gpu, init, percent, plan, request, state, whole
from tests.slow import examples

NODE = NodeName("n")
HEADROOM = POLICIES["headroom"]


def moments(grants: Iterable[Grant]) -> list[list[Grant]]:
    """The grants that are in use at each moment of a pod's life, played step by step."""
    running: list[Grant] = []
    played: list[list[Grant]] = []
    given = list(grants)
    places = sorted({one.lifespan.init for one in given if one.lifespan.init is not None})
    for place in places:
        begun = [one for one in given if one.lifespan.init == place]
        played.append([*running, *begun])
        running += [one for one in begun if one.lifespan.sidecar]
    return [*played, [*running, *(one for one in given if one.lifespan.init is None)]]


def most(grants: Iterable[Grant], uuid: GpuUuid) -> tuple[int, int, int]:
    """The most bytes, share and sharers of a pod on one GPU, over its moments."""
    there = [[one for one in moment if one.gpu == uuid] for moment in moments(grants)]
    return (
        max(sum(one.line_bytes if one.whole else one.memory_bytes or 0 for one in now) for now in there),
        max(sum(one.share_pct for one in now) for now in there),
        max(len(now) for now in there),
    )


containers = st.one_of(
    st.builds(
        declared,
        st.just("x"),
        st.sampled_from([1, 3, 6, 11, 12]),
        st.sampled_from([0, 20, 50, 80]),
        st.integers(1, 2),
    ),
    st.builds(
        percent, st.just("x"), st.sampled_from([10, 50, 100]), st.sampled_from([0, 40]), st.integers(1, 2)
    ),
    st.builds(whole, st.just("x"), st.integers(1, 2)),
)
kinds = st.sampled_from([None, None, False, False, True])


def made(found: list[tuple[ContainerDemand, bool | None]]) -> PodDemand:
    """A pod of these containers: None for an ordinary one, otherwise whether the init container is a sidecar."""
    named = [(replace(one, container=ContainerName(f"c{n}")), kind) for n, (one, kind) in enumerate(found)]
    return PodDemand(
        tuple(one if kind is None else init(one, n, sidecar=kind) for n, (one, kind) in enumerate(named))
    )


pods = st.lists(st.tuples(containers, kinds), min_size=1, max_size=4).map(made)


@given(st.lists(pods, max_size=8), st.lists(st.integers(0, 7), max_size=4))
@settings(max_examples=examples(300), deadline=None)
def test_no_moment_of_any_lives_overfills_a_gpu(demands: list[PodDemand], gone: list[int]) -> None:
    """Whatever each pod is at in its life, bytes, shares and sharers of each GPU stay within what it has.

    A whole GPU has one container at a time, and one pod. The ledger's promise is that of the life played step by
    step.
    """
    ledger = Ledger()
    node = node_view(state("n", gpu("a", usable_gib=12), gpu("b", usable_gib=12), gpu("c", usable_gib=8)))
    booked: dict[PodUid, Booking] = {}
    for number, demand in enumerate(demands):
        found = plan(Request(PodUid(str(number)), demand), [node], ledger, HEADROOM)
        if isinstance(found, Plan):
            assert {name: len(gpus) for name, gpus in found.gpus.items()} == {
                one.container: one.gpus for one in demand.containers
            }
            ledger.book(found.booking)
            booked[found.booking.pod] = found.booking
        for pod in gone[number : number + 1]:
            ledger.forget(PodUid(str(pod)))
            booked.pop(PodUid(str(pod)), None)
        for one in node.gpus:
            there = [each for each in booked.values() if any(grant.gpu == one.uuid for grant in each.grants)]
            sums = [most(each.grants, one.uuid) for each in there]
            assert sum(held for held, _, _ in sums) <= one.usable_bytes
            assert sum(share for _, share, _ in sums) <= 100
            assert sum(sharers for _, _, sharers in sums) <= SHARERS_PER_GPU
            for each in there:
                now = [[x for x in moment if x.gpu == one.uuid] for moment in moments(each.grants)]
                if any(x.whole for moment in now for x in moment):
                    assert len(there) == 1
                    assert all(len(moment) == 1 for moment in now if any(x.whole for x in moment))
                promise = ledger.promise(each, one.uuid)
                assert (promise.expected_bytes, promise.share_pct, promise.sharers) == most(
                    each.grants, one.uuid
                )


@given(pods)
@settings(max_examples=examples(300), deadline=None)
def test_a_pod_that_is_never_beside_itself_fits_if_each_container_does(demand: PodDemand) -> None:
    """A pod whose containers run one after another finds a place if each of them does for itself."""
    chain = PodDemand(
        (
            *(replace(one, lifespan=Lifespan(n)) for n, one in enumerate(demand.containers[:-1])),
            replace(demand.containers[-1], lifespan=Lifespan()),
        )
    )
    ledger = Ledger()
    node = node_view(state("n", gpu("a", usable_gib=12), gpu("b", other_bytes=9 * GIB, usable_gib=12)))
    ledger.book(
        Booking(
            PodUid("o"),
            NODE,
            (Grant(ContainerName("o"), GpuUuid("a"), GIB, 30, 100, whole=False, line_bytes=GIB),),
        )
    )
    alone = [
        plan(request("p", replace(one, lifespan=Lifespan())), [node], ledger, HEADROOM)
        for one in chain.containers
    ]
    together = plan(Request(PodUid("p"), chain), [node], ledger, HEADROOM)
    assert isinstance(together, Plan) == all(isinstance(one, Plan) for one in alone)


def planned(*demands: ContainerDemand, ledger: Ledger | None = None, gpus: int = 2) -> Plan | Refusal:
    """The plan of a pod on a node with equal GPUs of 24 GiB, the first of which is the freest."""
    node = node_view(state("n", *(gpu(f"g{n}", other_bytes=n * GIB) for n in range(gpus))))
    return plan_on(request("p", *demands), node, ledger or Ledger(), HEADROOM)


def places(plan_or: Plan | Refusal) -> dict[str, tuple[str, ...]]:
    """The GPUs of each container."""
    assert isinstance(plan_or, Plan), plan_or
    return dict(plan_or.gpus)  # type: ignore[arg-type]


CASES = {
    "an init container gets the GPU of the container": (
        2,
        (init(declared("warm", 20), 0), declared("main", 20, 60)),
        {"warm": "g0", "main": "g0"},
    ),
    "and so do all init containers, though together they need more than the GPU has": (
        2,
        (init(declared("i0", 20, 90), 0), init(declared("i1", 20, 90), 1), declared("main", 20, 90)),
        {"i0": "g0", "i1": "g0", "main": "g0"},
    ),
    "an init container with several GPUs has those of the containers first": (
        3,
        (init(declared("warm", 4, 0, 2), 0), declared("main", 22)),
        {"warm": "g0 g1", "main": "g0"},
    ),
    "an init container takes another GPU where a sidecar is in its way": (
        2,
        (init(declared("proxy", 13), 0, sidecar=True), init(declared("warm", 20), 1), declared("main", 12)),
        {"proxy": "g0", "warm": "g1", "main": "g1"},
    ),
    "a sidecar that begins later is not in its way": (
        1,
        (init(declared("warm", 24), 0), init(declared("proxy", 10), 1, sidecar=True), declared("main", 1)),
        {"warm": "g0", "proxy": "g0", "main": "g0"},
    ),
    "an init container may own the GPU whole before containers share it": (
        1,
        (init(whole("warm"), 0), declared("main", 4), declared("side", 4)),
        {"warm": "g0", "main": "g0", "side": "g0"},
    ),
    "a whole sidecar shares with no container": (
        2,
        (init(whole("proxy"), 0, sidecar=True), declared("main", 4)),
        {"proxy": "g0", "main": "g1"},
    ),
    "two containers share a GPU where their sum fits": (
        1,
        (declared("a", 8, 50), declared("b", 16, 50)),
        {"a": "g0", "b": "g0"},
    ),
    "and have one each where it does not": (
        2,
        (declared("a", 14), declared("b", 14)),
        {"a": "g0", "b": "g1"},
    ),
    "two containers with two GPUs each may share both": (
        2,
        (declared("a", 8, 50, 2), declared("b", 14, 50, 2)),
        {"a": "g0 g1", "b": "g0 g1"},
    ),
    "percentages count of the GPU that is chosen": (
        1,
        (init(percent("warm", 90), 0), percent("main", 60), percent("side", 40)),
        {"warm": "g0", "main": "g0", "side": "g0"},
    ),
    "best effort takes what is free at its time": (
        2,
        (init(best_effort("warm"), 0), declared("main", 24)),
        {"warm": "g0", "main": "g0"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_containers_get_their_gpus(name: str) -> None:
    """Containers that never run at once may have the same room, and all others have their own."""
    gpus, demands, expected = CASES[name]
    found = places(planned(*demands, gpus=gpus))
    assert {key: " ".join(sorted(value)) for key, value in found.items()} == expected


def test_an_init_container_prefers_the_gpu_of_the_containers() -> None:
    """An init container goes where the pod's container goes, although a policy likes another GPU better."""
    ledger = Ledger()
    taken = Grant(ContainerName("o"), GpuUuid("g0"), 512 * MIB, 60, 100, whole=False, line_bytes=512 * MIB)
    ledger.book(Booking(PodUid("other"), NODE, (taken,)))
    alone = places(planned(declared("warm", 1), ledger=ledger))
    assert alone == {"warm": ("g0",)}
    found = places(planned(init(declared("warm", 1), 0), declared("main", 4, 50), ledger=ledger))
    assert found == {"warm": ("g1",), "main": ("g1",)}


def test_a_sidecar_moves_out_of_the_way_of_an_init_container() -> None:
    """Where an init container fits only on the GPU that a policy prefers, the sidecar takes the tighter one."""
    demands = init(declared("proxy", 1), 0, sidecar=True), init(declared("warm", 24), 1), declared("main", 1)
    found = places(planned(*demands))
    assert (found["warm"], found["proxy"]) == (("g0",), ("g1",))


def test_an_init_container_chooses_before_a_sidecar_where_nothing_else_helps() -> None:
    """An init container that needs the freest GPU and the fullest one gets both, and the sidecar the one between."""
    ledger = Ledger()
    taken = Grant(ContainerName("o"), GpuUuid("g1"), 512 * MIB, 50, 100, whole=False, line_bytes=512 * MIB)
    ledger.book(Booking(PodUid("other"), NODE, (taken,)))
    demands = (
        init(declared("proxy", 1, 10), 0, sidecar=True),
        init(declared("warm", 1, 100, 2), 1),
        declared("main", 1),
    )
    found = places(planned(*demands, gpus=3, ledger=ledger))
    assert (set(found["warm"]), found["proxy"]) == ({"g0", "g2"}, ("g1",))


def test_an_init_container_that_fits_nowhere_refuses_the_pod() -> None:
    """A pod whose init container needs more than any GPU has waits, with the reason."""
    refused = planned(init(declared("warm", 25), 0), declared("main", 1))
    assert isinstance(refused, Refusal)
    assert refused.reasons == {NODE: (Reason.GPU_MEMORY.value,)}


def test_a_promise_to_an_init_container_is_kept_from_others() -> None:
    """A GPU promised to an init container is not given to another pod while the pod lives."""
    ledger = Ledger()
    first = planned(init(declared("warm", 20, 90), 0), declared("main", 2, 10), gpus=1, ledger=ledger)
    assert isinstance(first, Plan)
    ledger.book(replace(first.booking, pod=PodUid("first")))
    node = node_view(state("n", gpu("g0")))
    room = room_on(NODE, node.gpus[0], ledger)
    assert (room.free_bytes, room.free_share_pct, room.sharers) == (4 * GIB, 10, 1)
    assert isinstance(planned(declared("main", 5), gpus=1, ledger=ledger), Refusal)
    assert isinstance(planned(declared("main", 4, 10), gpus=1, ledger=ledger), Plan)


def test_the_ledger_refuses_a_whole_gpu_beside_a_sidecar() -> None:
    """Within a pod too, a container that owns a GPU alone has it alone while it runs."""
    a = GpuUuid("a")
    owner = Grant(
        ContainerName("i"), a, None, 100, 100, whole=True, line_bytes=24 * GIB, lifespan=Lifespan(1)
    )
    later = Grant(ContainerName("m"), a, GIB, 0, 100, whole=False, line_bytes=GIB)
    before = replace(later, container=ContainerName("s"), lifespan=Lifespan(0, sidecar=True))
    Ledger().book(Booking(PodUid("p"), NODE, (owner, later)))
    with pytest.raises(NotBookedError, match="one container's alone"):
        Ledger().book(Booking(PodUid("p"), NODE, (owner, before)))


def test_a_percentage_of_unlike_gpus_is_other_bytes_on_each() -> None:
    """A container with a quarter of two GPUs of different sizes has a quarter of each."""
    node = node_view(state("n", gpu("small", usable_gib=24), gpu("large", usable_gib=80)))
    found = plan_on(request("p", percent("main", 25, 30, 2)), node, Ledger(), HEADROOM)
    assert isinstance(found, Plan)
    assert {one.gpu: one.memory_bytes for one in found.booking.grants} == {
        "small": 6 * GIB,
        "large": 20 * GIB,
    }


def test_a_decision_gives_the_booking_back() -> None:
    """The annotations of a plan hold the order of its init containers, and give the same booking again."""
    found = planned(
        init(percent("warm", 50), 0), init(declared("proxy", 1), 1, sidecar=True), declared("main", 2)
    )
    assert isinstance(found, Plan)
    metadata = ObjectMeta(name="p", uid="p", annotations=decision_annotations(found, "2026-01-01T00:00:00Z"))
    read = booking_of(Pod(metadata=metadata, spec=PodSpec(nodeName="n")))
    assert read == found.booking
    assert start_of(found.booking) == StartOrder(
        (ContainerName("warm"), ContainerName("proxy")), (ContainerName("proxy"),)
    )
    warm = decided(found.booking)[ContainerName("warm")]
    assert [one.memory_bytes for one in warm] == [12 * GIB]


@given(pods, pods)
def test_the_larger_of_two_bookings_counts_no_less_than_either(one: PodDemand, other: PodDemand) -> None:
    """Where a decision was changed, also in the order of its init containers, the larger of both counts."""
    node = node_view(state("n", *(gpu(f"g{n}", usable_gib=40) for n in range(4))))
    found = [plan(Request(PodUid("p"), demand), [node], Ledger(), HEADROOM) for demand in (one, other)]
    bookings = [each.booking for each in found if isinstance(each, Plan)]
    if len(bookings) < 2:
        return
    ledger, both = Ledger(), larger(*bookings)
    for seen in node.gpus:
        counted = ledger.promise(both, seen.uuid)
        for booking in bookings:
            promise = ledger.promise(booking, seen.uuid)
            assert counted.share_pct >= promise.share_pct
            assert counted.expected_bytes >= promise.expected_bytes
            assert counted.sharers >= promise.sharers


@given(pods)
def test_the_promise_is_kubernetes_own_sum(demand: PodDemand) -> None:
    """On a single GPU, a pod's promise in any amount is the effective request that Kubernetes computes."""
    amounts = {one.container: 7 * n + 3 for n, one in enumerate(demand.containers)}

    def stated(one: ContainerDemand) -> Container:
        resources = ResourceRequirements(limits={"example.com/x": str(amounts[one.container])})
        policy = "Always" if one.lifespan.sidecar else None
        return Container(name=one.container, resources=resources, restartPolicy=policy)

    spec = PodSpec(
        containers=[stated(one) for one in demand.containers if one.lifespan.init is None],
        initContainers=[stated(one) for one in demand.containers if one.lifespan.init is not None],
    )
    grants = tuple(
        Grant(
            one.container,
            GpuUuid("a"),
            amounts[one.container],
            0,
            100,
            whole=False,
            line_bytes=amounts[one.container],
            lifespan=one.lifespan,
        )
        for one in demand.containers
    )
    promise = Ledger().promise(Booking(PodUid("p"), NODE, grants), GpuUuid("a"))
    assert promise.declared_bytes == needs_of(msgspec.structs.replace(Pod(), spec=spec)).amounts.get(
        "example.com/x", 0
    )
