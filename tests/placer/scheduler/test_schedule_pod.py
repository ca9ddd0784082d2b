"""Decisions on a whole cluster in memory: the best node, exact reasons, and as little work as that takes."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer import decide
from placer.core import assignment, selector
from placer.core.plan import Plan
from placer.core.policies import POLICIES
from placer.core.reasons import Reason, summary
from placer.core.refusal import Refusal
from placer.core.room import misfit
from placer.decide import MOST_UNFIT
from placer.scheduler import profile, schedule_pod
from placer.scheduler.plugins.node_affinity import REASON as NODE_AFFINITY
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import CHECKS
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import NodeSelectorRequirement, Pod
from tests.placer.kube.memory_cluster import MemoryCluster, pod, small
from tests.placer.kube.objects import Object
from tests.slow import examples

MANY = MOST_UNFIT + schedule_pod.FEW_NODES + 50
"""More nodes than one decision reads."""


async def test_reasons_of_all_nodes_name_the_most_free_memory() -> None:
    """The text has a reason for every node, and the most memory that is free on one GPU of those without enough."""
    world = MemoryCluster()
    for name, cpu in (("a", "8"), ("b", "8"), ("cpu", "1"), ("silent", "8")):
        world.node(name, cpu)
    world.report("a", 3, 11)
    world.report("b", 10, 10)
    world.report("cpu", 24)
    wanted = pod("p", "12Gi", cpu="2")
    assert isinstance(world.decide(wanted), Refusal)
    assert await world.why_not(wanted) == (
        "0/4 nodes are available: 2 Insufficient plimsoll.dev/gpu-memory on one GPU (most free: 11Gi on a), "
        "1 Insufficient cpu, 1 node(s) had no GPU report."
    )
    world.report("a", 1, 1)
    world.report("silent", 0)
    assert await world.why_not(wanted) == (
        "0/4 nodes are available: 3 Insufficient plimsoll.dev/gpu-memory on one GPU (most free: 10Gi on b), "
        "1 Insufficient cpu."
    )


async def test_pods_of_one_kind_share_a_refusal() -> None:
    """Once no node takes a pod, further pods of the kind read no node, and then only a node that changed."""
    world = small(MANY)
    assert await world.place(pod("p0", cpu="2")) is None
    read = world.nodes_read()
    for number in range(1, 10):
        assert await world.place(pod(f"p{number}", cpu="2")) is None
    assert world.nodes_read() == read
    world.node("n0007", cpu="4")
    assert await world.place(pod("p", cpu="2")) == "n0007"
    assert world.nodes_read() == read + 1


async def test_a_pod_finds_its_node_behind_many_that_do_not_fit() -> None:
    """A pod is placed on the only node that fits, though a decision does not read as many nodes as score better."""
    world = small(MANY)
    world.node("large", ram="32Gi")
    world.report("large", 5)
    wanted = pod("p", ram="16Gi")
    assert isinstance(world.decide(wanted), Refusal)
    assert world.nodes_read() <= MOST_UNFIT + schedule_pod.FEW_NODES
    assert await world.choice.explain(wanted) is None
    assert await world.place(wanted) == "large"


async def test_the_first_pod_of_a_policy_ranks_few_nodes_at_a_time() -> None:
    """A decision with a policy that nobody has used ranks a part of the nodes, and its explanation the others."""
    world = small(MANY)
    wanted, other = (replace(pod(name), policy=POLICIES["binpack"]) for name in "pq")
    decided = world.decide(wanted)
    assert isinstance(decided, Refusal)
    assert not decided.is_final
    unranked = sum(not world.decider.candidates.rank(wanted.policy, 1) for _ in range(MANY))
    assert unranked > MANY / 2
    assert await world.place(other) is not None


async def test_many_nodes_that_fit_behind_many_that_do_not_are_found() -> None:
    """Once `explain` has found nodes that fit, each decision takes one of them and reads a bounded number."""
    world = small(MANY)
    for number in range(2 * schedule_pod.FEW_NODES):
        world.node(f"large{number}", ram="16Gi")
        world.report(f"large{number}", 5)
    first = pod("p", ram="16Gi")
    assert isinstance(world.decide(first), Refusal)
    assert await world.choice.explain(first) is None
    for number in range(schedule_pod.FEW_NODES // 2):
        before = world.nodes_read()
        decided = world.decide(pod(f"p{number}", ram="16Gi"))
        assert isinstance(decided, Plan)
        assert world.nodes_read() - before <= MOST_UNFIT + schedule_pod.FEW_NODES


async def test_nodes_without_the_cpu_are_passed_over() -> None:
    """A pod gets the only node with its CPU at once, however many GPUs score better, and reads no other node."""
    world = small(MANY)
    world.node("large", cpu="8")
    world.report("large", 5)
    placed = world.decide(pod("p", cpu="2"))
    assert isinstance(placed, Plan)
    assert (placed.booking.node, world.nodes_read()) == ("large", 1)


@pytest.mark.parametrize("memory", ["4Gi", None])
async def test_a_decision_reads_a_bounded_number_of_nodes(memory: str | None) -> None:
    """A pod that no node takes costs a bounded number of readings each time, whatever the cluster's size."""
    world = small(MANY)
    before = world.nodes_read()
    assert isinstance(world.decide(pod("p", memory, ram="16Gi")), Refusal)
    assert world.nodes_read() - before <= MOST_UNFIT + schedule_pod.FEW_NODES


async def test_a_pod_that_no_gpu_can_take_reads_no_node() -> None:
    """A pod that wants more memory than any GPU has is refused by the ranking of candidates, and no node is read."""
    world = small(50)
    assert isinstance(world.decide(pod("p", "25Gi")), Refusal)
    assert world.nodes_read() == 0


async def test_a_selector_of_few_nodes_reads_only_these() -> None:
    """A nodeSelector, or a required affinity, that names few nodes limits the decision to them."""
    world = small(MANY)
    world.node("n0005", cpu="1", labels={"disk": "fast"})
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0009", "nowhere"]}]}
    both = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast", "slow"]}]}
    for name, spec, expected in (
        ("a", {"nodeSelector": {"disk": "fast"}}, "n0005"),
        ("b", _affinity(term), "n0009"),
        ("c", _affinity(both), None),  # n0005 is full now
    ):
        before = world.nodes_read()
        decided = world.decide(pod(name, **spec))
        assert (decided.booking.node if isinstance(decided, Plan) else None) == expected
        assert world.nodes_read() - before <= 2
    assert isinstance(world.decide(pod("d", nodeSelector={"disk": "none"})), Refusal)
    assert await world.why_not(pod("d", nodeSelector={"disk": "none"})) == (
        f"0/{MANY} nodes are available: {MANY} node(s) didn't match Pod's node affinity/selector."
    )
    assert await world.place(pod("e", nodeSelector={"zone": "z1"})) is not None


def _affinity(*terms: Object) -> Object:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


async def test_kept_out_pods_have_verdicts_of_their_own() -> None:
    """A rule that closes a zone refuses the pods that it selects, and no others of their kind, while it holds."""
    world = MemoryCluster()
    for name, zone in (("a", "x"), ("b", "x"), ("c", "y"), ("d", "y")):
        world.node(name, labels={"zone": zone}, unschedulable=name == "d")
        world.report(name, 24)
    for name, on in (("keeper0", "a"), ("keeper1", "d")):
        rule = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
        anti = {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}
        document = {
            "metadata": {"name": name, "uid": name},
            "spec": {
                "nodeName": on,
                "containers": [{"name": "main"}],
                "affinity": {"podAntiAffinity": anti},
            },
        }
        world.cluster.confirm(msgspec.json.decode(msgspec.json.encode(document), type=Pod))
    selected = pod("p", labels={"app": "x"})
    assert await world.place(selected) is None
    assert await world.why_not(selected) == (
        "0/4 nodes are available: 3 node(s) didn't satisfy existing pods anti-affinity rules, "
        "1 node(s) were unschedulable."
    )
    assert world.choice.obstacles(pod("other", labels={"app": "y"}), NodeName("c")) == ()
    world.cluster.forget(PodUid("keeper1"))
    assert await world.place(selected) == "c"
    world.cluster.remove_node(NodeName("c"))
    assert await world.place(pod("q", labels={"app": "x"})) is None
    world.cluster.remove_node(NodeName("a"))  # with the node, its keeper's rule is gone
    assert await world.place(pod("q", labels={"app": "x"})) == "b"


async def test_verdicts_of_few_kinds_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kinds whose verdicts are kept are bounded, and a kind that was dropped gets the same answer."""
    monkeypatch.setattr(schedule_pod, "SIGNATURES", 3)
    world = small(5)
    for cpu in ("2", "3", "4", "5", "6", "2"):
        wanted = pod(f"p{cpu}", cpu=cpu)
        assert isinstance(world.decide(wanted), Refusal)
        assert await world.why_not(wanted) == "0/5 nodes are available: 5 Insufficient cpu."
    assert len(world.choice._known) == 3


async def test_pods_without_a_gpu_go_where_fewest_pods_are() -> None:
    """Pods without a GPU spread over the nodes, each decision reading one node."""
    world = small(50)
    places = [await world.place(pod(f"p{number}", None)) for number in range(50)]
    assert len(set(places)) == 50
    assert world.nodes_read() == 50


placing = st.tuples(
    st.just("place"),
    st.sampled_from([None, "8Gi"]),
    st.sampled_from(["1", "3"]),
    st.sampled_from([{}, {}, {"disk": "fast"}]),
)
reporting = st.tuples(st.just("report"), st.integers(0, 3), st.lists(st.sampled_from([0, 3, 9]), max_size=2))
small_clusters = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 3), st.sampled_from(["1", "4"]), st.booleans()),
        st.tuples(st.just("gone"), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 39)),
        reporting,
        reporting,
        placing,
        placing,
        placing,
    ),
    min_size=4,
    max_size=40,
)


@given(small_clusters, st.integers(1, 3), st.integers(1, 3), st.sampled_from([1, CHECKS]))
@settings(max_examples=examples(500), deadline=None)
async def test_no_pod_is_refused_while_a_node_has_a_place(
    steps: list[tuple[Any, ...]], few: int, most_unfit: int, checks: int
) -> None:
    """For any changes, a pod is placed exactly if a node fits it, and a refusal sums up all nodes' reasons.

    The bounds of one decision are small here, so that clusters of four nodes pass them. In half of the cases every
    pod counts as one that takes long on each node.
    """
    world = MemoryCluster()
    for index in range(3):
        world.node(f"n{index}", "4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule_pod, "FEW_NODES", few)
        patch.setattr(schedule_pod, "SLICE", 2)
        patch.setattr(profile, "CHECKS", checks)
        patch.setattr(decide, "MOST_UNFIT", most_unfit)
        for number, step in enumerate(steps):
            match step:
                case ("node", index, cpu, fast):
                    world.node(f"n{index}", cpu, {"disk": "fast"} if fast else {})
                case ("gone", index):
                    world.cluster.remove_node(NodeName(f"n{index}"))
                case ("report", index, free):
                    world.report(f"n{index}", *free)
                case ("end", index):
                    world.cluster.forget(PodUid(f"p{index}"))
                case ("place", memory, cpu, selector):
                    wanted = pod(f"p{number}", memory, cpu, nodeSelector=selector)
                    whys = {node: world.choice.obstacles(wanted, node) for node in world.cluster.nodes}
                    fitting = {node for node, why in whys.items() if not why}
                    place = await world.place(wanted)
                    assert (place in fitting) if fitting else place is None
                    if not fitting:
                        text = await world.why_not(wanted)
                        assert text is not None
                        assert re.sub(r" \(most free: [^)]*\)", "", text) == summary(len(whys), whys)


class Work:
    """The checks of selectors and GPUs that decisions make."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: Counter[str] = Counter()
        check_of = selector.check_of

        def counted_check_of(written: NodeSelectorRequirement, prefix: str = "") -> selector.Check:
            return self._counted("requirements", check_of(written, prefix))

        patch.setattr(selector, "check_of", counted_check_of)
        patch.setattr(assignment, "misfit", self._counted("rooms", misfit))

    def _counted(self, what: str, check: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: object) -> object:
            self.done[what] += 1
            return check(*args)

        return counted

    def pieces(self, world: MemoryCluster, wanted: PodInfo) -> Iterator[Plan | str | None]:
        """Decide once, or explain, in pieces that nothing interrupts; gives None after each, then the result."""
        self.done.clear()
        decided = world.decide(wanted)
        yield decided if isinstance(decided, Plan) else None
        if isinstance(decided, Refusal):
            explaining = world.choice.explain(wanted)
            while True:
                self.done.clear()
                try:
                    explaining.send(None)
                except StopIteration as end:
                    yield end.value.text if end.value is not None else None
                    return
                yield None


def wordy(terms: int, zone: str) -> Object:
    """The affinity of this many terms, of which only the last can select a node, by its zone."""
    none = [
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}, {"key": f"k{i}", "operator": "Exists"}]}
        for i in range(terms - 1)
    ]
    last = {"key": "zone", "operator": "In", "values": [zone]}
    return _affinity(*none, {"matchExpressions": [last, {"key": "zone", "operator": "Exists"}]})


@pytest.mark.parametrize(("zone", "expected"), [("far", "large"), ("none", None)])
async def test_no_selector_holds_the_loop_up(
    monkeypatch: pytest.MonkeyPatch, zone: str, expected: str | None
) -> None:
    """A pod with nearly as many terms as are read ends rightly, in pieces as long as those of other pods."""
    work, world, terms = Work(monkeypatch), small(MANY), 400
    world.node("large", labels={"zone": "far"})
    world.report("large", 5)
    wanted, longest = pod("p", **wordy(terms, zone)), 0
    ends: list[Plan | str | None] = [None]
    while ends[-1] is None:
        assert ends.count(None) < 1000, "the pod is neither placed nor refused"
        for one in work.pieces(world, wanted):
            longest = max(longest, work.done["requirements"])
            ends.append(one)
    end = ends[-1]
    if expected is None:
        assert end == f"0/{MANY + 1} nodes are available: {MANY + 1} {NODE_AFFINITY}."
    else:
        assert isinstance(end, Plan)
        assert end.booking.node == expected
    most = (MOST_UNFIT + schedule_pod.FEW_NODES) * CHECKS
    assert 2 * terms < longest <= most + 2 * 2 * terms, "a piece ends with the node that passes its budget"


async def test_a_pod_of_many_containers_is_placed_in_one_short_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decision compares fewer nodes, the more containers have to be placed on each."""
    work, world = Work(monkeypatch), MemoryCluster()
    for number in range(decide.MOST_PLANS):
        world.node(f"n{number}")
        world.report(f"n{number}", *[24] * 8)
    containers = [
        {"name": f"c{i}", "resources": {"limits": {"plimsoll.dev/gpu-memory": "512Mi"}}} for i in range(200)
    ]
    (placed,) = work.pieces(world, pod("p", containers=containers))
    assert isinstance(placed, Plan)
    assert len(placed.booking.grants) == 200
    assert work.done["rooms"] <= 2 * 200 * 8
    hopeless = pod(
        "q", containers=[*containers, *({**one, "name": f"d{i}"} for i, one in enumerate(containers))]
    )
    *_, why = work.pieces(world, hopeless)
    assert why == f"0/64 nodes are available: 64 {Reason.GPU_SHARERS.value}."


async def test_a_node_that_an_explanation_found_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod is placed on the node that its explanation found, although other kinds were refused meanwhile."""
    monkeypatch.setattr(schedule_pod, "SIGNATURES", 2)
    world = small(MANY)
    world.node("large", labels={"zone": "far"}, ram="32Gi")
    world.report("large", 5)
    wanted = pod("p", ram="16Gi")
    assert isinstance(world.decide(wanted), Refusal)
    assert await world.choice.explain(wanted) is None
    for cpu in ("9", "10", "11"):
        assert await world.place(pod(cpu, cpu=cpu)) is None
    decided = world.decide(wanted)
    assert isinstance(decided, Plan)
    assert decided.booking.node == "large"


def test_preferences_do_not_tell_signatures_apart() -> None:
    """Pods with unlike preferences share their refusals: no refusal reads a preference."""
    term = {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}
    prefers = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}]}
    signatures = {
        name: pod(name, affinity=affinity).signature
        for name, affinity in {
            "plain": {},
            "prefers": {"nodeAffinity": prefers},
            "requires": _affinity(term)["affinity"],
        }.items()
    }
    assert signatures["plain"] == signatures["prefers"] != signatures["requires"]
