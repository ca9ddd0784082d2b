"""The nodes that a pod's selectors name hold every node that the selectors select."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.selector import selector_of, traits_of
from placer.scheduler.cache.labels import LabelIndex
from plimsoll.ids import NodeName
from plimsoll.kube.models import Node, Pod
from tests.slow import examples

Object = dict[str, Any]
KEYS, VALUES, NODES = ("a", "b"), ("1", "2", "3"), ("n1", "n2", "n3", "n4")

labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))
expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),  # codespell:ignore notin
        "values": st.lists(st.sampled_from(VALUES), min_size=1, max_size=2),
    }
)
fields = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),  # codespell:ignore notin
        "values": st.lists(st.sampled_from([*NODES, "gone"]), min_size=1, max_size=2),
    }
)
terms = st.fixed_dictionaries(
    {"matchExpressions": st.lists(expressions, max_size=1), "matchFields": st.lists(fields, max_size=1)}
)
required = st.one_of(st.none(), st.fixed_dictionaries({"nodeSelectorTerms": st.lists(terms, max_size=2)}))


@given(
    st.lists(st.dictionaries(st.sampled_from(NODES), labels), min_size=1, max_size=3),
    st.one_of(st.just({}), labels),
    required,
    st.integers(0, 4),
)
@settings(max_examples=examples(1000), deadline=None)
def test_named_nodes_hold_all_selected_ones(
    history: list[dict[str, Object]], selector: Object, affinity: Object | None, most: int
) -> None:
    """For any labels and any changes of them, no node that a pod selects is missing; and there are few nodes."""
    index = LabelIndex()
    before: dict[str, Object] = {}
    for after in history:
        for name in before.keys() | after.keys():
            index.put(NodeName(name), before.get(name, {}), after.get(name, {}))
        before = after
    terms = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}} if affinity else {}
    pod = msgspec.convert({"spec": {"nodeSelector": selector, "affinity": terms}}, Pod)
    named = index.named(pod, most)
    selected = {name for name, found in before.items() if _selects(pod, name, found)}
    if named is not None:
        assert selected <= set(named)
        assert len(named) <= most
    if selector and len(selected) > most:
        assert named is None
    some = [name for name, found in before.items() if selector.items() <= found.items()]
    if len(selector) == 1 and len(some) <= most:
        assert named is not None


def _selects(pod: Pod, name: str, found: Object) -> bool:
    document = {"metadata": {"name": name, "labels": found}}
    return selector_of(pod).selects(traits_of(msgspec.convert(document, Node)))
