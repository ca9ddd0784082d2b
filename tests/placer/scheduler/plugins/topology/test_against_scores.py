"""For any cluster and any changes, wishes about other pods order the nodes as kube-scheduler's scores do."""

from collections.abc import Mapping
from itertools import permutations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.node_scores import NodeScore
from placer.scheduler.plugins.inter_pod_affinity import SCORE as AFFINITY
from placer.scheduler.plugins.pod_topology_spread import SCORE as SPREAD
from placer.scheduler.pods.constraints import preferred_of
from placer.scheduler.pods.node_rules import rules_of
from plimsoll.ids import NodeName
from tests.placer.scheduler.plugins.topology import oracle, scores
from tests.placer.scheduler.plugins.topology.test_against_filters import (
    Both,
    constraints,
    document,
    kept,
    labels,
    read,
    spaces,
    steps,
    terms,
)
from tests.slow import examples

Object = dict[str, Any]
EQUAL = 1e-9
SOFT = {"whenUnsatisfiable": "ScheduleAnyway", "minDomains": None}
weighted = st.builds(
    lambda weight, term: {"weight": weight, "podAffinityTerm": term}, st.integers(1, 100), terms
)
constrained = st.builds(lambda one: {**one, **SOFT}, constraints)


def spec(spread: list[Object], beside: list[Object], apart: list[Object], **more: object) -> Object:
    """A pod's spec with these wishes."""
    affinity = {"podAffinity": {scores.PREFERRED: beside}, "podAntiAffinity": {scores.PREFERRED: apart}}
    return {
        "containers": [{"name": "main"}],
        "topologySpreadConstraints": spread,
        "affinity": affinity,
        **more,
    }


# With several constraints, each weighs by the number of its domains. kube-scheduler counts domains of nodes that fit,
# and the placer all that count, so here every node fits such a pod.
wishing = st.one_of(
    st.builds(
        spec,
        st.lists(constrained.map(lambda one: {**one, "nodeTaintsPolicy": "Ignore"}), max_size=3),
        st.lists(weighted, max_size=2),
        st.lists(weighted, max_size=2),
    ),
    st.builds(
        lambda one, disk, tolerates: spec(
            [one],
            [],
            [],
            **({"nodeSelector": {"disk": "fast"}} if disk else {}),
            **({"tolerations": [{"key": "t", "operator": "Exists"}]} if tolerates else {}),
        ),
        constrained,
        st.booleans(),
        st.booleans(),
    ),
)


def fits(pod: Object, node: Object) -> bool:
    """Whether the node has the labels that the pod asks for, and no taint that it does not tolerate."""
    wanted: Object = pod["spec"].get("nodeSelector", {})
    taints = node["spec"].get("taints", [])
    repels = any(one["effect"] != "PreferNoSchedule" for one in taints) and "tolerations" not in pod["spec"]
    return oracle.labels_of(node).items() >= wanted.items() and not repels


def compare(both: Both, asked: Object) -> None:
    """Compare the order of any two nodes that fit one new pod."""
    pod = read(asked)
    wishes = preferred_of(pod, rules_of(pod))
    both.profile.topology.counts.prepare(wishes, 10_000)
    stated = {one.name: one for one in both.profile.topology.scores(wishes)}
    cluster = oracle.Cluster(both.nodes, [*both.pods.values()], both.namespaces)
    one_only = len(asked["spec"]["topologySpreadConstraints"]) <= 1
    fitting = [node for node in both.nodes.values() if not one_only or fits(asked, node)]
    if SPREAD in stated:
        spread = scores.spread(cluster, asked, fitting)
        scored = {name: -score for name, score in spread.items() if score is not None}
        _same_order(both, stated[SPREAD], scored, is_strict=True)
        assert all(_met(both, stated[SPREAD], name) == 0 for name in spread.keys() - scored.keys())
    if AFFINITY in stated:
        near = scores.affinity(cluster, asked, fitting)
        keys = {one.topology_key for one in wishes.weighted}
        _same_order(both, stated[AFFINITY], near)
        labelled = {name: near[name] for name in near if keys <= oracle.labels_of(both.nodes[name]).keys()}
        _same_order(both, stated[AFFINITY], labelled, is_strict=True)


def _same_order(
    both: Both, wish: NodeScore, expected: Mapping[str, float], *, is_strict: bool = False
) -> None:
    """A node that is better here is better there, and if `is_strict`, a node that is better there is better here."""
    found = {name: _met(both, wish, name) for name in expected}
    assert all(0 <= met <= 1 for met in found.values())
    for (one, first), (other, second) in permutations(expected.items(), 2):
        if found[one] > found[other] + EQUAL:
            assert first > second, (wish.name, one, other)
        if is_strict and first > second + EQUAL:
            assert found[one] > found[other], (wish.name, one, other)


def _met(both: Both, wish: NodeScore, name: str) -> float:
    offer = both.cluster.node(NodeName(name))
    assert offer is not None
    return wish.of(offer)


@given(
    steps,
    st.lists(st.tuples(spaces, labels, wishing), min_size=1, max_size=4),
    st.sampled_from([(1, 10), (2, 3), (1024, 1_000_000)]),
)
@settings(max_examples=examples(100), deadline=None)
def test_nodes_are_ordered_as_by_kube_schedulers_scores(
    changes: list[tuple[Any, ...]], asking: list[Any], caps: tuple[int, int]
) -> None:
    """After each change, the node that meets the wishes better also has the better score in kube-scheduler."""
    both = Both()
    with kept(*caps):
        for step in changes:
            both.do(step)
            for number, (namespace, given, asked) in enumerate(asking):
                compare(both, document(f"new{number}", namespace, given, asked))
