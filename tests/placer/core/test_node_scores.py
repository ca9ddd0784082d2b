"""A node alone meets preferences in part or wholly."""

from typing import Any

import msgspec
import pytest

from placer.core.node_scores import (
    PREFERENCES_SHARE,
    PREFERRED,
    UNTAINTED,
    TotalScore,
    node_scores,
    total_score,
)
from placer.core.tolerations import Tolerations
from placer.scheduler.node_info import NodeInfo, node_info_of
from plimsoll.kube.models import Node, Pod

Object = dict[str, Any]


def offer(labels: Object | None = None, *taints: str) -> NodeInfo:
    """A node `n1` with these labels, and a `PreferNoSchedule` taint of each key."""
    document = {
        "metadata": {"name": "n1", "labels": labels or {}},
        "spec": {"taints": [{"key": key, "effect": "PreferNoSchedule"} for key in taints]},
    }
    return node_info_of(msgspec.convert(document, Node))


def prefers(weight: int, key: str, *values: str) -> Object:
    """A preferred term."""
    term = {"key": key, "operator": "In", "values": list(values)}
    return {"weight": weight, "preference": {"matchExpressions": [term]}}


def answer(there: NodeInfo, *preferred: Object, tolerations: tuple[Object, ...] = ()) -> TotalScore:
    """How far the node suits a pod with these preferred terms."""
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": list(preferred)}}
    document = {"spec": {"containers": [], "affinity": affinity, "tolerations": list(tolerations)}}
    pod = msgspec.json.decode(msgspec.json.encode(document), type=Pod)
    return total_score(node_scores(pod, Tolerations(pod)), there)


def test_a_pod_without_preferences_is_content_with_a_node_without_taints() -> None:
    """The explanation omits preferences that the pod does not have."""
    assert answer(offer()) == TotalScore(1.0, {})


def test_preferred_terms_count_by_their_weight() -> None:
    """The part is the weight of the terms that hold, of the weight of all."""
    terms = prefers(30, "disk", "ssd"), prefers(10, "zone", "a", "b")
    assert answer(offer({"disk": "ssd", "zone": "b"}), *terms).parts[PREFERRED] == 1
    assert answer(offer({"disk": "ssd"}), *terms).parts[PREFERRED] == 0.75
    assert answer(offer({"zone": "a"}), *terms).parts[PREFERRED] == 0.25
    assert answer(offer(), *terms).parts[PREFERRED] == 0


@pytest.mark.parametrize("idle", [{"weight": 5}, {"weight": 5, "preference": {}}, prefers(0, "disk", "ssd")])
def test_terms_without_effect_are_left_out(idle: Object) -> None:
    """An empty term selects no node, and one of weight 0 adds nothing."""
    assert answer(offer({"disk": "ssd"}), idle) == TotalScore(1.0, {})
    assert answer(offer({"disk": "ssd"}), idle, prefers(7, "disk", "ssd")).parts[PREFERRED] == 1


def test_terms_read_fields_and_all_requirements() -> None:
    """A term holds if all of its expressions and fields hold."""
    term = prefers(1, "disk", "ssd")
    term["preference"]["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    assert answer(offer({"disk": "ssd"}), term).parts[PREFERRED] == 1
    term["preference"]["matchFields"][0]["values"] = ["n2"]
    assert answer(offer({"disk": "ssd"}), term).parts[PREFERRED] == 0


def test_each_taint_that_discourages_counts_unless_it_is_tolerated() -> None:
    """More such taints are worse; a tolerated one is none."""
    parts = [answer(offer({}, *taints)).parts.get(UNTAINTED, 1) for taints in ((), ("a",), ("a", "b"))]
    assert parts == [1, 0.5, pytest.approx(1 / 3, abs=1e-6)]
    tolerated = answer(offer({}, "a"), tolerations=({"key": "a", "operator": "Exists"},))
    assert tolerated == TotalScore(1.0, {})
    elsewhere = answer(
        offer({}, "a"), tolerations=({"key": "a", "operator": "Exists", "effect": "NoSchedule"},)
    )
    assert elsewhere.parts == {UNTAINTED: 0.5}


def test_all_preferences_together_are_a_small_part_of_a_score() -> None:
    """Weights are kube-scheduler's: taints 3, node affinity 2."""
    found = answer(offer({"disk": "hdd"}, "a"), prefers(1, "disk", "ssd"))
    assert found.ratio == pytest.approx((3 * 0.5 + 2 * 0) / 5)
    assert 0 < found.score < PREFERENCES_SHARE
    assert found.parts == {UNTAINTED: 0.5, PREFERRED: 0}
