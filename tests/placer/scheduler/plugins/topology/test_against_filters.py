"""For any cluster and any changes, rules about other pods answer on each node as kube-scheduler's filters do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.ledger import Ledger
from placer.scheduler.plugins.pod_counts import store
from placer.scheduler.plugins.topology import TopologyDryRun
from placer.scheduler.pods.constraints import NO_CONSTRAINTS, required_of
from placer.scheduler.pods.node_rules import rules_of
from placer.scheduler.profile import Profile
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod
from plimsoll.part.errors import InputError
from tests.placer.scheduler.plugins.topology import oracle
from tests.slow import examples

Object = dict[str, Any]

selectors = st.sampled_from(
    [
        None,
        {},
        {"matchLabels": {"app": "a"}},
        {"matchLabels": {"app": "a", "rev": "1"}},
        {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
        {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]},  # codespell:ignore
        {"matchExpressions": [{"key": "rev", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "rev", "operator": "DoesNotExist"}]},
    ]
)
labels = st.fixed_dictionaries(
    {}, optional={"app": st.sampled_from(["a", "b"]), "rev": st.sampled_from(["1", "2"])}
)
spaces = st.sampled_from(["default", "other", "third"])
space_selectors = st.sampled_from(
    [
        {},
        {"matchLabels": {"team": "x"}},
        {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
        {"matchExpressions": [{"key": "team", "operator": "Exists"}]},
    ]
)
keys = st.sampled_from(["zone", "host"])
constraints = st.fixed_dictionaries(
    {"maxSkew": st.integers(1, 2), "topologyKey": keys, "whenUnsatisfiable": st.just("DoNotSchedule")},
    optional={
        "labelSelector": selectors,
        "minDomains": st.integers(1, 4),
        "nodeAffinityPolicy": st.sampled_from(["Honor", "Ignore"]),
        "nodeTaintsPolicy": st.sampled_from(["Honor", "Ignore"]),
        "matchLabelKeys": st.sampled_from([["rev"], ["rev", "app"], ["none"]]),
    },
)
terms = st.fixed_dictionaries(
    {"topologyKey": keys, "labelSelector": selectors},
    optional={
        "namespaces": st.lists(spaces, min_size=1, max_size=2),
        "namespaceSelector": space_selectors,
    },
)


def affinity(name: str, most: int) -> st.SearchStrategy[Object]:
    """Required terms of one kind."""
    return st.lists(terms, max_size=most).map(lambda given: {name: {oracle.REQUIRED: given}})


specs = st.builds(
    lambda spread, beside, apart, disk, tolerates: {
        "containers": [{"name": "main"}],
        "topologySpreadConstraints": spread,
        "affinity": {**beside, **apart},
        **({"nodeSelector": {"disk": "fast"}} if disk else {}),
        **({"tolerations": [{"key": "t", "operator": "Exists"}]} if tolerates else {}),
    },
    st.lists(constraints, max_size=2),
    affinity("podAffinity", 2),
    affinity("podAntiAffinity", 2),
    st.booleans(),
    st.booleans(),
)
pods = st.tuples(spaces, labels, specs)
nodes = st.tuples(
    st.fixed_dictionaries(
        {},
        optional={
            "zone": st.sampled_from(["u", "v"]),
            "host": st.sampled_from(["0", "1", "2"]),
            "disk": st.just("fast"),
        },
    ),
    st.sampled_from([None, "NoSchedule", "PreferNoSchedule", "NoExecute"]),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("node"), st.integers(0, 3), nodes),
        st.tuples(st.just("node gone"), st.integers(0, 3)),
        st.tuples(st.just("pod"), st.integers(0, 5), st.integers(0, 3), pods),
        st.tuples(st.just("pod"), st.integers(0, 5), st.integers(0, 3), pods),
        st.tuples(st.just("ending"), st.integers(0, 5)),
        st.tuples(st.just("pod gone"), st.integers(0, 5)),
        st.tuples(st.just("namespace"), spaces, st.sampled_from([{}, {"team": "x"}, None])),
    ),
    min_size=5,
    max_size=25,
)


class Both:
    """One cluster, as the placer's index keeps it and as plain lists."""

    def __init__(self) -> None:
        self.profile = Profile(Ledger())
        self.cluster = self.profile.cache
        self.nodes: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.namespaces: dict[str, Object] = {}

    def do(self, step: tuple[Any, ...]) -> None:
        """Make one change in both."""
        match step:
            case "node", number, (given, effect):
                self.node(f"n{number}", given, effect)
            case "node gone", number:
                self.nodes.pop(f"n{number}", None)
                self.cluster.remove_node(NodeName(f"n{number}"))
            case "pod", number, on, (namespace, given, spec):
                known = self.pods.get(f"p{number}")  # a bound pod keeps its node and spec
                self.pod(f"p{number}", f"n{on}", namespace, given, spec if known is None else None)
            case "ending", number if f"p{number}" in self.pods:
                document = self.pods[f"p{number}"]
                document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                self.cluster.confirm(read(document))
            case "pod gone", number:
                self.pods.pop(f"p{number}", None)
                self.cluster.forget(PodUid(f"p{number}"))
            case "namespace", name, given:
                self.namespace(name, given)

    def node(self, name: str, given: Object, effect: str | None) -> None:
        """Add or change a node."""
        document = {
            "metadata": {"name": name, "labels": given},
            "spec": {"taints": [{"key": "t", "effect": effect}]} if effect else {},
            "status": {"allocatable": {"pods": "10"}},
        }
        self.nodes[name] = document
        self.cluster.put_node(msgspec.convert(document, Node))

    def pod(self, name: str, on: str, namespace: str, given: Object, spec: Object | None) -> None:
        """Add a pod with a node, or change its labels."""
        if spec is not None:
            self.pods[name] = document(name, namespace, given, {**spec, "nodeName": on})
        else:
            self.pods[name]["metadata"]["labels"] = given
        self.cluster.confirm(read(self.pods[name]))

    def namespace(self, name: str, given: Object | None) -> None:
        """Change the labels of a namespace, or remove it."""
        if given is None:
            self.namespaces.pop(name, None)
        else:
            self.namespaces[name] = given
        self.profile.topology.namespace_changed(name, given or {})

    def compare(
        self,
        asked: Object,
        without: frozenset[str] = frozenset(),
        beside: tuple[Object, ...] = (),
    ) -> None:
        """Compare the answers for one new pod on all nodes, without some pods and with some more."""
        left = [*(pod for name, pod in self.pods.items() if name not in without), *beside]
        expected = oracle.Cluster(self.nodes, left, self.namespaces)
        newcomer = read(asked)
        rules = required_of(newcomer, rules_of(newcomer))
        gone = [PodUid(name) for name in without]
        for name in self.nodes:
            more = [(NodeName(one["spec"]["nodeName"]), read(one)) for one in beside]
            labels = self.profile.topology.labels_of(NodeName(name))
            check = TopologyDryRun(self.profile.topology, newcomer, rules, labels, more)
            for one in gone:
                check.remove_pod(one)
            for one in reversed(gone):
                check.add_pod(one)
                check.remove_pod(one)
            found = check.problem_with_nominated() if beside else check.problem()
            assert found == expected.obstacle(asked, name), (name, asked)


def document(name: str, namespace: str, given: Object, spec: Object) -> Object:
    """A pod in the API's form."""
    return {"metadata": {"name": name, "uid": name, "namespace": namespace, "labels": given}, "spec": spec}


def read(given: Object) -> Pod:
    """A pod as the placer reads it."""
    return msgspec.json.decode(msgspec.json.encode(given), type=Pod)


@contextmanager
def kept(rules: int, places: int) -> Iterator[None]:
    """An index that keeps the counts of only this many rules."""
    with patch.object(store, "MOST_CONSTRAINTS", rules), patch.object(store, "MOST_NODES", places):
        yield


@given(steps, st.lists(pods, min_size=1, max_size=4), st.sampled_from([(1, 10), (2, 3), (1024, 1_000_000)]))
@settings(max_examples=examples(400), deadline=None)
def test_every_node_gets_the_answer_of_kube_schedulers_filters(
    changes: list[tuple[Any, ...]], asking: list[Any], caps: tuple[int, int]
) -> None:
    """After each change, new pods get the same reason on each node, or none; also where few counts are kept."""
    both = Both()
    with kept(*caps):
        for step in changes:
            both.do(step)
            for number, (namespace, given, spec) in enumerate(asking):
                both.compare(document(f"new{number}", namespace, given, spec))


@given(
    steps,
    pods,
    st.frozensets(st.sampled_from([f"p{number}" for number in range(6)])),
    st.lists(st.tuples(st.integers(0, 3), pods), max_size=3),
)
@settings(max_examples=examples(300), deadline=None)
def test_pods_that_are_left_out_or_added_count_so(
    changes: list[tuple[Any, ...]],
    asked: tuple[str, Object, Object],
    without: frozenset[str],
    added: list[tuple[int, tuple[str, Object, Object]]],
) -> None:
    """The answer without some pods, and with others, is that of a cluster that is so, and nothing changes."""
    both = Both()
    for step in changes:
        both.do(step)
    namespace, given, spec = asked
    newcomer = document("new", namespace, given, spec)
    beside = tuple(
        document(f"more{number}", space, own, {**more, "nodeName": f"n{on}"})
        for number, (on, (space, own, more)) in enumerate(added)
    )
    both.compare(newcomer, without, beside)
    both.compare(newcomer)


@given(steps, pods)
@settings(max_examples=examples(200), deadline=None)
def test_an_answer_that_changed_has_another_state_and_was_announced_where_a_node_became_fit(
    changes: list[tuple[Any, ...]], asked: tuple[str, Object, Object]
) -> None:
    """Equal states mean equal answers. Where a node became fit, one of the pod's topics was announced."""
    both = Both()
    announced: set[object] = set()
    both.profile.topology.on_change(announced.update)
    namespace, given, spec = asked
    newcomer = read(document("new", namespace, given, spec))
    rules = required_of(newcomer, rules_of(newcomer))
    before: tuple[object, dict[str, str | None]] | None = None
    for step in changes:
        topics = both.profile.topology.topics(newcomer, rules)
        announced.clear()
        both.do(step)
        answers = {
            name: both.profile.topology.problem(newcomer, rules, NodeName(name)) for name in both.nodes
        }
        state = both.profile.topology.state(newcomer, rules)
        changed = f"n{step[1]}" if step[0] == "node" else None  # a changed node is probed by itself
        same = [name for name in answers if before is not None and name in before[1] and name != changed]
        if before is not None and before[0] == state:
            assert all(answers[name] == before[1][name] for name in same)
        if before is not None and any(answers[name] is None and before[1][name] for name in same):
            assert announced & topics
        before = state, answers


def test_unknown_operator_of_an_existing_pods_term_counts_as_met() -> None:
    """A new pod waits rather than breaks a term that a later version of Kubernetes understands."""
    both = Both()
    both.node("n0", {"zone": "u"}, None)
    selector = {"matchExpressions": [{"key": "team", "operator": "New"}]}
    term = {"topologyKey": "zone", "labelSelector": selector, "namespaceSelector": selector}
    both.pod("p0", "n0", "other", {}, {"affinity": {"podAntiAffinity": {oracle.REQUIRED: [term]}}})
    newcomer = read(document("new", "default", {}, {}))
    assert both.profile.topology.problem(newcomer, NO_CONSTRAINTS, NodeName("n0")) == oracle.EXISTING


def test_rules_that_would_hold_up_other_pods_are_refused() -> None:
    """A pod with too many rules, or with too many requirements in them, is refused with their number."""
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
    wide = {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(300)]}
    for rules, message in (
        ([term] * 65, "'65' rules are more than the 64"),
        ([term | {"labelSelector": wide}], "'300' requirements are more than the 256"),
    ):
        spec = {"containers": [{"name": "main"}], "affinity": {"podAntiAffinity": {oracle.REQUIRED: rules}}}
        pod = read(document("p", "default", {}, spec))
        with pytest.raises(InputError, match=message):
            required_of(pod, rules_of(pod))


@pytest.mark.parametrize("operator", ["Gt", "In2"])
def test_selector_with_an_unknown_operator_is_refused(operator: str) -> None:
    """A pod whose selector cannot be decided is refused by name."""
    selector = {"matchExpressions": [{"key": "app", "operator": operator, "values": ["1"]}]}
    term = {"topologyKey": "zone", "labelSelector": selector}
    spec = {"containers": [{"name": "main"}], "affinity": {"podAffinity": {oracle.REQUIRED: [term]}}}
    pod = read(document("p", "default", {}, spec))
    with pytest.raises(InputError, match=rf"spec\.affinity\.podAffinity: '{operator}' is no operator"):
        required_of(pod, rules_of(pod))
