"""Policies that weigh a place by the target workload: FGD's worked arithmetic, and searches that miss nothing."""

from collections.abc import Sequence
from math import exp, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.candidates import Candidates
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import Policy, policy_named
from placer.core.policy_context import Request
from placer.core.target_workload import PodType, TargetWorkload, TypicalPod
from placer.core.view import GpuView, NodeView
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB
from tests.placer.core.worlds import plan
from tests.slow import examples

FRAGMENTATION, PLIMSOLL = policy_named("fragmentation", "test"), policy_named("plimsoll", "test")
MODELS = ("L4", "A100")


def share(pct: int) -> ContainerDemand:
    """A container that asks for a share of one GPU."""
    return ContainerDemand(ContainerName("main"), 1, 1, pct, 100, whole=False)


def whole(gpus: int) -> ContainerDemand:
    """A container that asks for whole GPUs."""
    return ContainerDemand(ContainerName("main"), gpus, None, 0, 100, whole=True)


def pod(
    name: str, *containers: ContainerDemand, cpu_milli: int = 1000, models: tuple[str, ...] = ()
) -> Request:
    """A request."""
    return Request(PodUid(name), PodDemand(containers, gpu_models=models), cpu_milli=cpu_milli)


def node(name: str, gpus: int, model: str = "L4") -> NodeView:
    """A node with this many idle GPUs."""
    cards = (GpuView(GpuUuid(f"{name}/{n}"), model, 1024 * GIB, 0, 100.0, 1.0, {}) for n in range(gpus))
    return NodeView(NodeName(name), (1, 1), tuple(cards))


def workload(*pod_types: tuple[PodType, float]) -> TargetWorkload:
    """A workload of these pod types with their popularities."""
    return TargetWorkload(TypicalPod(pod_type, popularity) for pod_type, popularity in pod_types)


def world(
    nodes: Sequence[NodeView], typical: TargetWorkload, cpu_milli: int = 8000
) -> tuple[Ledger, Candidates]:
    """A ledger and the candidates."""
    ledger = Ledger(typical)
    views = {one.node: one for one in nodes}
    candidates = Candidates(ledger, views.get)
    for one in nodes:
        ledger.spare_cpu.note(one.node, cpu_milli)
        candidates.note_report(one.node)
    return ledger, candidates


def test_fgd_score_follows_the_paper() -> None:
    """The score is the rounded sigmoid of the fragment removed: here 300 of a GPU become useless to half."""
    here = node("n", 1)
    ledger, _ = world([here], workload((PodType(1000, 1, 1000), 0.5), (PodType(1000, 1, 200), 0.5)))
    decided = plan_on(pod("p", share(70)), here, ledger, FRAGMENTATION)
    assert isinstance(decided, Plan)
    # Before: nothing is a fragment. After: the 300 left are useless to the pods of 1000, and to those of 200 useful.
    gradient = (0 - 0.5 * 300) / 1000
    assert decided.score == floor(100 / (1 + exp(-gradient))) / 100
    assert decided.sub_scores["node"] == {"lost_gpus": 0.85}


def test_share_goes_to_the_gpu_that_is_broken_already() -> None:
    """A share does not break an idle GPU while one that is broken already has the room."""
    for policy in (FRAGMENTATION, PLIMSOLL):
        here = node("n", 2)
        ledger, _ = world([here], workload((PodType(1000, 1, 1000), 0.5), (PodType(1000, 1, 300), 0.5)))
        first = plan_on(pod("p", share(30)), here, ledger, policy)
        assert isinstance(first, Plan)
        ledger.book(first.booking)
        second = plan_on(pod("q", share(30)), here, ledger, policy)
        assert isinstance(second, Plan)
        assert second.gpus == first.gpus


def test_plimsoll_spares_gpus_that_have_cpu_beside_them() -> None:
    """A pod with little CPU goes where CPU for its GPU is all that is left; FGD sees no difference there."""
    rich, poor = node("rich", 4), node("poor", 4)
    ledger, candidates = world([rich, poor], workload((PodType(4000, 1, 1000), 1.0)))
    ledger.spare_cpu.note(rich.node, 16_000)
    ledger.spare_cpu.note(poor.node, 5000)
    assert next(candidates.best_first(pod("p", whole(1)), PLIMSOLL)).node.node == "poor"


def test_scarce_model_is_kept() -> None:
    """A pod that accepts two models takes the one of which more is left for pods that name it."""
    nodes = [node(f"l{n}", 2, "L4") for n in range(9)] + [node("a", 2, "A100")]
    pod_types = [(PodType(1000, 1, 1000, models=(model,)), 0.5) for model in MODELS]
    _, candidates = world(nodes, workload(*pod_types))
    assert next(candidates.best_first(pod("p", whole(1)), PLIMSOLL)).node.node != "a"


def test_plimsoll_spreads_pods_that_declare_no_memory() -> None:
    """Two pods of unknown memory do not share a GPU while another GPU is free. FGD packs them."""
    undeclared = ContainerDemand(ContainerName("main"), 1, None, 20, 100, whole=False)
    for policy, gpus in ((PLIMSOLL, 2), (FRAGMENTATION, 1)):
        nodes = [node("a", 1), node("b", 1)]
        ledger, candidates = world(nodes, workload((PodType(1000, 1, 1000), 1.0)))
        given = set()
        for name in ("p", "q"):
            best = next(candidates.best_first(pod(name, undeclared), policy))
            placed = plan_on(pod(name, undeclared), best.node, ledger, policy)
            assert isinstance(placed, Plan)
            assert placed.score <= best.score_bound
            ledger.book(placed.booking)
            given.add(placed.booking.node)
        assert len(given) == gpus


demands = st.one_of(
    st.builds(share, st.integers(1, 10).map(lambda n: 10 * n)), st.builds(whole, st.integers(1, 3))
)
requests = st.tuples(
    st.lists(demands, max_size=2), st.integers(0, 5).map(lambda n: 500 * n), st.sampled_from([(), ("A100",)])
)


@settings(max_examples=examples(25), deadline=None)
@given(
    policy=st.sampled_from([FRAGMENTATION, PLIMSOLL]),
    sizes=st.lists(st.tuples(st.integers(1, 4), st.sampled_from(MODELS)), min_size=1, max_size=4),
    asked=st.lists(requests, max_size=8),
)
def test_search_misses_no_place(
    policy: Policy,
    sizes: list[tuple[int, str]],
    asked: list[tuple[list[ContainerDemand], int, tuple[str, ...]]],
) -> None:
    """A search yields every node on which a plan succeeds, with a bound that no plan passes, the best one first."""
    nodes = [node(f"n{n}", gpus, model) for n, (gpus, model) in enumerate(sizes)]
    typical = workload(
        (PodType(1000, 1, 300), 0.4),
        (PodType(2000, 1, 1000), 0.4),
        (PodType(2000, 2, 1000, models=("A100",)), 0.2),
    )
    ledger, candidates = world(nodes, typical)
    for number, (containers, cpu_milli, models) in enumerate(asked):
        named = [
            ContainerDemand(
                ContainerName(f"c{n}"), one.gpus, one.memory_bytes, one.share_pct, 100, whole=one.whole
            )
            for n, one in enumerate(containers)
        ]
        request = pod(f"p{number}", *named, cpu_milli=cpu_milli, models=models)
        found = list(candidates.best_first(request, policy))
        tried = {one.node: plan_on(request, one, ledger, policy) for one in nodes}
        placeable = {
            name: one.score
            for name, one in tried.items()
            if isinstance(one, Plan) and (ledger.spare_cpu.on(name) or 0) >= cpu_milli
        }
        bounds = {one.node.node: one.score_bound for one in found}
        assert placeable.keys() <= bounds.keys()
        assert all(score <= bounds[name] + 1e-9 for name, score in placeable.items())
        assert [one.score_bound for one in found] == sorted((one.score_bound for one in found), reverse=True)
        if len(named) == 1 and placeable:
            assert bounds[found[0].node.node] == pytest.approx(max(placeable.values()))
        best = plan(request, [one for one in nodes if one.node in placeable], ledger, policy)
        if isinstance(best, Plan):
            ledger.book(best.booking)
            spare = ledger.spare_cpu.on(best.booking.node) or 0
            ledger.spare_cpu.note(best.booking.node, spare - cpu_milli)


def test_unknown_policy_names_those_that_exist() -> None:
    """The message for a misspelt policy lists the loaded and the installed ones."""
    with pytest.raises(
        Exception, match="binpack, fragmentation, headroom, kang-literal, locality, plimsoll, topology"
    ):
        policy_named("fastest", "test")
