"""A resident pod's required anti-affinity keeps the pods that it selects out of its domain."""

from typing import Any

import msgspec
import pytest

from placer.core.ledger import Ledger
from placer.core.policies.headroom import HEADROOM
from placer.scheduler.profile import Profile, understood
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Namespace, Pod
from tests.placer.kube.objects import Object, node_of, pod_of

KEPT_OUT = ("node(s) didn't satisfy existing pods anti-affinity rules",)


def pod(name: str, labels: Object | None = None, namespace: str = "default", **spec: Any) -> Pod:  # noqa: ANN401 - passed on
    """A pod with these labels."""
    return pod_of(name, labels=labels, metadata={"namespace": namespace}, **spec)


def by_app(operator: str, values: list[str] | None = None) -> Object:
    """A term that selects by the label `app`."""
    return {"labelSelector": {"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}}


def keeper(term: Object, on: str = "n1") -> Pod:
    """A bound pod with one required anti-affinity term."""
    rules = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", **term}]}
    return pod("keeper", nodeName=on, affinity={"podAntiAffinity": rules})


def cluster_of(*bound: Pod) -> Profile:
    """Nodes n1 and n2 in zone a, n3 in zone b, and n4 in none."""
    profile = Profile(Ledger())
    cluster = profile.cache
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", None)):
        cluster.put_node(node_of(name, {"zone": zone} if zone else {}))
    for one in bound:
        cluster.confirm(one)
    return profile


def kept_out_of(cluster: Profile, newcomer: Pod) -> set[str]:
    """The nodes that are closed to a newcomer."""
    nodes = [NodeName(f"n{index}") for index in range(1, 5)]
    info = understood(newcomer, HEADROOM)
    reasons = {node: cluster.filter(info, node) for node in nodes}
    assert set(reasons.values()) <= {(), KEPT_OUT}
    return {node for node, why in reasons.items() if why}


def test_rule_keeps_newcomers_out_of_the_whole_domain_until_its_pod_is_gone() -> None:
    """A rule closes all nodes of its zone to the pods that it selects, as long as its own pod exists."""
    cluster = cluster_of(keeper({"labelSelector": {"matchLabels": {"app": "x"}}}))
    assert kept_out_of(cluster, pod("new", {"app": "x"})) == {"n1", "n2"}
    assert kept_out_of(cluster, pod("new", {"app": "y"})) == set()
    cluster.cache.forget(PodUid("keeper"))
    assert kept_out_of(cluster, pod("new", {"app": "x"})) == set()


@pytest.mark.parametrize(
    ("term", "out"),
    [
        ({}, False),
        ({"labelSelector": {}}, True),
        (by_app("In", ["x"]), True),
        (by_app("NotIn", ["x"]), False),  # codespell:ignore notin
        (by_app("Exists"), True),
        (by_app("DoesNotExist"), False),
        ({"labelSelector": {}, "namespaces": ["other"]}, False),
        ({"labelSelector": {}, "namespaces": ["other", "default"]}, True),
        ({"labelSelector": {}, "namespaces": ["other"], "namespaceSelector": {}}, True),
        ({"labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "a"}}}, True),
        ({"labelSelector": {}, "namespaceSelector": {"matchLabels": {"team": "b"}}}, False),
        (
            {
                "labelSelector": {},
                "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "New"}]},
            },
            True,
        ),
    ],
)
def test_selectors_and_namespaces(term: Object, out: bool) -> None:  # noqa: FBT001
    """Labels and namespaces select as in Kubernetes; an unknown operator counts as a match."""
    cluster = cluster_of(keeper(term))
    cluster.pod_rules.put_namespace(
        msgspec.convert({"metadata": {"name": "default", "labels": {"team": "a"}}}, Namespace)
    )
    assert kept_out_of(cluster, pod("new", {"app": "x"})) == ({"n1", "n2"} if out else set())
