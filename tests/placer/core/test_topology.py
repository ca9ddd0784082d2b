"""The policy `topology`: near sets for several GPUs, whole sets for later pods, one model for an owner's pods."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import combinations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.core.owners import owner_of
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies.topology import TOPOLOGY
from placer.core.policy_context import Request
from placer.core.reasons import Reason
from placer.core.refusal import Refusal
from placer.core.topology.hardware import Hardware, linked
from placer.core.view import NodeView, node_view
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.metrics import Metrics
from plimsoll.demand import ContainerDemand
from plimsoll.events import NodeState
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.quantity import GIB
from simulator.gaia.matrix import parse_matrix
from tests.placer.core.topology.matrices import DGX_1V, FIGURE_7
from tests.placer.core.worlds import declared, gpu, request, state, whole


def uuid(number: int, node: str = "n") -> str:
    """The UUID of a node's GPU."""
    return f"{node}-g{number}"


def hardware(matrix: str, node: str = "n") -> Hardware:
    """The hardware of a node with these links."""
    links = parse_matrix(matrix)
    return linked([GpuUuid(uuid(number, node)) for number in range(len(links))], links)


def report(matrix: str, node: str = "n", model: str = "NVIDIA L4") -> NodeState:
    """The report of an idle node with as many GPUs as the matrix has."""
    gpus = (gpu(uuid(number, node)) for number in range(len(parse_matrix(matrix))))
    return state(node, *(msgspec.structs.replace(one, model=model) for one in gpus))


def view(matrix: str) -> NodeView:
    """An idle node with these links."""
    return replace(node_view(report(matrix)), hardware=hardware(matrix))


def deciding(**nodes: str) -> Decider:
    """A decider over idle nodes, by name with their links."""
    made = Decider(ReportView(), Ledger(), Metrics())
    for name, matrix in nodes.items():
        made.reports.apply(report(matrix, name))
        made.reports.apply_hardware(NodeName(name), datetime.now(UTC), hardware(matrix, name))
    return made


def given_gpus(node: NodeView, ledger: Ledger, pod: str, *containers: ContainerDemand) -> list[int]:
    """Plan and book on a node; the numbers of the GPUs, in the order of the grants."""
    planned = plan_on(request(pod, *containers), node, ledger, TOPOLOGY)
    assert isinstance(planned, Plan), planned
    ledger.book(planned.booking)
    return [int(grant.gpu.rpartition("g")[2]) for grant in planned.booking.grants]


def test_gaias_experiments_with_the_policy() -> None:
    """Tables II to IV come out as published. In Table I, a single GPU leaves the cheapest pair whole instead."""
    assert sorted(given_gpus(view(FIGURE_7), Ledger(), "two", whole(gpus=2))) == [2, 3]
    assert given_gpus(view(FIGURE_7), Ledger(), "one", whole())[0] in {0, 1}
    ledger = Ledger()
    taken = request("taken", whole())
    planned = plan_on(taken, replace(view(FIGURE_7), gpus=view(FIGURE_7).gpus[2:3]), ledger, TOPOLOGY)
    assert isinstance(planned, Plan)
    ledger.book(planned.booking)  # gpu2, as in Figure 8(a)
    assert given_gpus(view(FIGURE_7), ledger, "beside", whole()) == [3]
    ledger.forget(PodUid("beside"))
    assert sorted(given_gpus(view(FIGURE_7), ledger, "pair", whole(gpus=2))) == [0, 1]


def test_fragments_are_used_up_first() -> None:
    """Parts of a GPU go to the GPU in use with the least room that suffices (Table II), and then to an empty one."""
    node, ledger = view(FIGURE_7), Ledger()
    first = given_gpus(node, ledger, "half", declared("main", 12, 50))
    assert given_gpus(node, ledger, "0.4", declared("main", 9, 40)) == first
    assert given_gpus(node, ledger, "0.1", declared("main", 2, 10)) == first
    other = given_gpus(node, ledger, "0.3", declared("main", 7, 30))
    assert other != first
    assert set(first + other) == {0, 1}  # the best pair is whole


def test_parts_of_several_gpus_lie_near_each_other() -> None:
    """A container with parts of two GPUs gets two with two NVLinks between them, also where others are emptier."""
    node, ledger = view(DGX_1V), Ledger()
    for number in range(3):
        one, other = given_gpus(node, ledger, f"p{number}", declared("main", 16, 60, gpus=2))
        assert parse_matrix(DGX_1V)[one][other].nvlinks == 2


@given(st.sets(st.integers(0, 7)), st.integers(1, 8))
def test_no_free_set_of_the_size_is_cheaper(used: set[int], count: int) -> None:
    """Whichever GPUs are used, the whole GPUs of a container cost no more than any other free set of the size."""
    node, ledger = view(DGX_1V), Ledger()
    for number in sorted(used):
        alone = replace(node, gpus=node.gpus[number : number + 1])
        assert given_gpus(alone, ledger, f"u{number}", whole()) == [number]
    planned = plan_on(request("p", whole(gpus=count)), node, ledger, TOPOLOGY)
    free = sorted(set(range(8)) - used)
    assert isinstance(planned, Plan) == (len(free) >= count)
    if isinstance(planned, Plan):
        shape = hardware(DGX_1V).shape
        places = tuple(int(grant.gpu.rpartition("g")[2]) for grant in planned.booking.grants)
        assert shape.cost(places) == min(map(shape.cost, combinations(free, count)))


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_node_with_the_nearest_gpus_is_chosen(count: int) -> None:
    """The node with the cheapest set of all is chosen; its links are in the decision's note."""
    decider = deciding(a=FIGURE_7, b=DGX_1V, c=FIGURE_7)
    planned = decider.decide(request("p", whole(gpus=count)), TOPOLOGY)
    assert isinstance(planned, Plan)
    assert (planned.booking.node, planned.note) == ("b", "links of main: NVLINK")
    assert {parts["nearness"] for parts in planned.sub_scores.values()} == {round(planned.score, 6)}


@given(st.lists(st.sampled_from([whole(), whole(gpus=2), declared("main", 8, 40, gpus=2)]), max_size=6))
def test_the_bound_of_a_node_is_the_score_of_its_plan(booked: list[ContainerDemand]) -> None:
    """Whatever is booked, a search gives each node the score of the plan there, so it finds the best one first."""
    decider = deciding(a=FIGURE_7, b=DGX_1V, c=FIGURE_7)
    for number, demand in enumerate(booked):
        decider.decide(request(f"p{number}", demand), TOPOLOGY)
    for demand in (whole(), whole(gpus=3), declared("main", 6, 30), declared("main", 6, 30, gpus=2)):
        asked = request("asked", demand)
        found = list(decider.candidates.best_first(asked, TOPOLOGY))
        for candidate in found:
            planned = decider.plan_on(asked, TOPOLOGY, candidate.node.node)
            assert isinstance(planned, Plan)
            assert candidate.score_bound == planned.score
        assert [one.score_bound for one in found] == sorted((one.score_bound for one in found), reverse=True)


def test_single_gpus_go_where_no_pair_breaks() -> None:
    """On several nodes, single GPUs come from the pairs that are broken, then from the farthest links."""
    decider = deciding(a=DGX_1V, b=FIGURE_7)
    nodes = [
        planned.booking.node
        for number in range(6)
        if isinstance(planned := decider.decide(request(f"p{number}", whole()), TOPOLOGY), Plan)
    ]
    assert nodes == ["b", "b", "b", "b", "a", "a"]


def test_unknown_links_count_as_equal_and_the_plan_says_so() -> None:
    """Without `node.info`, or for a GPU that it lacks, any GPUs do; a node with known links is preferred."""
    decider = deciding(b=FIGURE_7)
    decider.reports.apply(report(FIGURE_7, "a"))
    planned = decider.decide(request("p", whole(gpus=2)), TOPOLOGY)
    assert isinstance(planned, Plan)
    assert planned.booking.node == "b"
    on_a = decider.plan_on(request("q", whole(gpus=4)), TOPOLOGY, NodeName("a"))
    assert isinstance(on_a, Plan)
    assert on_a.note == "links between the GPUs of node a are not known, so all count as equal"


def with_owner(pod: str, *models: str, owner: str = "Deployment team/web") -> Request:
    """A pod of a workload that wants a GPU of one of these models."""
    plain = request(pod, declared("main", 12, 50), owner=owner)
    return replace(plain, demand=replace(plain.demand, gpu_models=models))


def test_replicas_stay_on_one_model() -> None:
    """An owner's pods stay on the model of the first, wait where it is full, and mix if they list several models."""
    decider = Decider(ReportView(), Ledger(), Metrics())
    pair = "GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X"
    for name, model in (("a", "NVIDIA L4"), ("b", "NVIDIA A10")):
        decider.reports.apply(report(pair, name, model))
    first = [decider.decide(with_owner(f"p{number}"), TOPOLOGY) for number in range(4)]
    assert len({one.booking.node for one in first if isinstance(one, Plan)}) == 1
    refused = decider.decide(with_owner("p4"), TOPOLOGY)
    assert isinstance(refused, Refusal)
    assert isinstance(decider.decide(with_owner("p5", "NVIDIA L4", "NVIDIA A10"), TOPOLOGY), Plan)
    assert isinstance(decider.decide(with_owner("q", owner="Deployment team/other"), TOPOLOGY), Plan)


def test_only_pods_of_one_controller_stay_on_one_model() -> None:
    """Pods without a controller that have one image use every model; so does a replica that names a model itself."""
    decider = Decider(ReportView(), Ledger(), Metrics())
    pair = "GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X"
    for name, model in (("a", "NVIDIA L4"), ("b", "NVIDIA A10")):
        decider.reports.apply(report(pair, name, model))
    document = {
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {"containers": [{"name": "main", "image": "cuda"}]},
    }
    bare = owner_of(msgspec.convert(document, Pod))
    assert bare is not None
    nodes = [decider.decide(with_owner(f"p{number}", owner=bare), TOPOLOGY) for number in range(8)]
    assert [type(one) for one in nodes] == [Plan] * 8
    for number in range(8):
        decider.ledger.forget(PodUid(f"p{number}"))
    for number, model in enumerate(("NVIDIA L4", "NVIDIA A10", "NVIDIA L4")):
        assert isinstance(decider.decide(with_owner(f"q{number}", model), TOPOLOGY), Plan)


def test_the_most_free_memory_is_not_that_of_a_gpu_refused_for_its_model() -> None:
    """Memory counts on GPUs that lack nothing else, so a node with GPUs of another model alone names none."""
    decider = Decider(ReportView(), Ledger(), Metrics())
    mixed = gpu("A", other_bytes=20 * GIB), msgspec.structs.replace(gpu("B"), model="NVIDIA A10")
    decider.reports.apply(state("n", *mixed))
    decider.reports.apply(state("m", msgspec.structs.replace(gpu("C"), model="NVIDIA A10")))
    decider.ledger.restore(replace(booked("p", "A", 1), owner="Deployment team/web"))
    decider.ledger.restore(booked("x", "B", 14))
    decider.ledger.restore(booked("y", "C", 14, node="m"))
    refused = decider.plan_on(with_owner("q"), TOPOLOGY, NodeName("n"))
    assert isinstance(refused, Refusal)
    assert refused.best_free_bytes == 3 * GIB
    refused = decider.plan_on(with_owner("q"), TOPOLOGY, NodeName("m"))
    assert isinstance(refused, Refusal)
    assert refused.best_free_bytes is None


def booked(pod: str, uuid: str, gib: int, node: str = "n") -> Booking:
    """A pod that is promised this much memory of a GPU."""
    grant = Grant(ContainerName("main"), GpuUuid(uuid), gib * GIB, 0, 100, whole=False, line_bytes=gib * GIB)
    return Booking(PodUid(pod), NodeName(node), (grant,))


def test_the_refusal_names_the_model_and_ends_with_the_owners_pods() -> None:
    """A node of another model is refused for it. When the owner has no pod there any more, the pod fits."""
    decider = Decider(ReportView(), Ledger(), Metrics())
    pair = "GPU0 GPU1\nGPU0 X PIX\nGPU1 PIX X"
    for name, model in (("a", "NVIDIA L4"), ("b", "NVIDIA A10")):
        decider.reports.apply(report(pair, name, model))
    freed: list[str] = []
    decider.ledger.owner_models.on_freed(lambda: freed.append("freed"))
    placed = decider.decide(with_owner("p"), TOPOLOGY)
    assert isinstance(placed, Plan)
    other = NodeName({"a": "b", "b": "a"}[placed.booking.node])
    found = [one.node.node for one in decider.candidates.best_first(with_owner("q"), TOPOLOGY)]
    assert found == [placed.booking.node]  # else a decision could end before it reads a node of the model
    refused = decider.plan_on(with_owner("q"), TOPOLOGY, other)
    assert isinstance(refused, Refusal)
    assert refused.reasons == {other: (Reason.OWNER_MODEL.value,)}
    decider.ledger.forget(PodUid("p"))
    assert freed == ["freed"]
    assert isinstance(decider.plan_on(with_owner("q"), TOPOLOGY, other), Plan)
