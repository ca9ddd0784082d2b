"""A selector that was read once selects the nodes that the API's own rules select."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.selector import selector_of, traits_of
from plimsoll.kube.models import Node, NodeSelectorRequirement, NodeSelectorTerm, Pod
from plimsoll.quantity import plain_int
from tests.slow import examples

Object = dict[str, Any]
KEYS = ("zone", "generation", "metadata.name")
VALUES = ("a", "b", "7", "-3", "07", "")
NOT_IN = "NotIn"  # codespell:ignore notin
OPERATORS = ("In", NOT_IN, "Exists", "DoesNotExist", "Gt", "Lt", "Near")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
requirements = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "operator": st.sampled_from(OPERATORS),
        "values": st.one_of(st.none(), st.lists(st.sampled_from(VALUES), max_size=3)),
    }
)
listed = st.lists(requirements, max_size=2)
terms = st.fixed_dictionaries({"matchExpressions": listed, "matchFields": st.one_of(st.just([]), listed)})
affinities = st.one_of(st.none(), st.fixed_dictionaries({"nodeSelectorTerms": st.lists(terms, max_size=4)}))


@given(labels, st.one_of(st.just({}), labels), affinities)
@settings(max_examples=examples(2000), deadline=None)
def test_a_selector_selects_as_its_terms_read_one_by_one(
    found: Object, wanted: Object, affinity: Object | None
) -> None:
    """For any labels and terms, the result equals that of the rules in their plainest form."""
    node = msgspec.convert({"metadata": {"name": "a", "labels": found}}, Node)
    pod = selecting(wanted, affinity)
    assert selector_of(pod).selects(traits_of(node)) == plainly_selected(pod, node)


@pytest.mark.parametrize(
    ("term", "selected"),
    [
        ({}, False),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, True),
        ({"matchExpressions": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, False),
        ({"matchExpressions": [{"key": "generation", "operator": "Gt", "values": ["6"]}]}, True),
        ({"matchExpressions": [{"key": "generation", "operator": "Lt", "values": ["7"]}]}, False),
        ({"matchExpressions": [{"key": "generation", "operator": "Lt", "values": ["8", "9"]}]}, False),
        ({"matchExpressions": [{"key": "zone", "operator": "Gt", "values": ["6"]}]}, False),
        ({"matchExpressions": [{"key": "zone", "operator": NOT_IN, "values": ["b"]}]}, True),
        ({"matchExpressions": [{"key": "rack", "operator": "Exists"}]}, False),
    ],
)
def test_a_term_selects_by_labels_and_by_the_name(term: Object, *, selected: bool) -> None:
    """The name is a field and no label; numbers are compared with one bound; an empty term selects nothing."""
    document = {"metadata": {"name": "n1", "labels": {"zone": "a", "generation": "7"}}}
    pod = selecting({}, {"nodeSelectorTerms": [term]})
    assert selector_of(pod).selects(traits_of(msgspec.convert(document, Node))) == selected


def test_terms_that_list_values_of_one_label_cost_one_check() -> None:
    """Thousands of terms with one list each cost a node as much as a single list of all their values."""
    terms = [
        {"matchExpressions": [{"key": "rack", "operator": "In", "values": [f"r{i}", f"s{i}"]}]}
        for i in range(2000)
    ]
    selector = selector_of(selecting({}, {"nodeSelectorTerms": terms}))
    assert selector.checks == 1
    assert selector.selects({"rack": "s1999"})
    assert not selector.selects({"rack": "r2000"})


def selecting(wanted: Object, affinity: Object | None) -> Pod:
    """A pod with these selectors."""
    nodes = {"requiredDuringSchedulingIgnoredDuringExecution": affinity}
    spec = {"nodeSelector": wanted, "affinity": {"nodeAffinity": nodes}}
    return msgspec.convert({"spec": spec}, Pod)


def plainly_selected(pod: Pod, node: Node) -> bool:
    """Whether the pod's selectors select the node, term by term and value by value."""
    found = node.metadata.labels or {}
    assert pod.spec.affinity is not None
    assert pod.spec.affinity.nodeAffinity is not None
    required = pod.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution
    if any(found.get(key) != value for key, value in (pod.spec.nodeSelector or {}).items()):
        return False
    return required is None or any(_term_holds(term, node) for term in required.nodeSelectorTerms)


def _term_holds(term: NodeSelectorTerm, node: Node) -> bool:
    expressions, fields = term.matchExpressions or (), term.matchFields or ()
    if not expressions and not fields:
        return False
    names = {"metadata.name": node.metadata.name}
    of_labels = all(_holds(one, node.metadata.labels or {}) for one in expressions)
    return of_labels and all(_holds(one, names) for one in fields)


def _holds(requirement: NodeSelectorRequirement, found: Mapping[str, str]) -> bool:
    value, values = found.get(requirement.key), requirement.values or []
    number, bound = plain_int(value or ""), plain_int(values[0]) if len(values) == 1 else None
    comparable = number is not None and bound is not None
    known = {
        "In": value in values,
        NOT_IN: value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
        "Gt": comparable and (number or 0) > (bound or 0),
        "Lt": comparable and (number or 0) < (bound or 0),
    }
    return known.get(requirement.operator, False)
