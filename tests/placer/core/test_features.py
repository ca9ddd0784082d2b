"""Nodes must have the abilities that a pod needs: its policy on supplemental groups, and declared features."""

from typing import Any

import msgspec
import pytest

from placer.core.policies.headroom import HEADROOM
from placer.scheduler.node_info import node_info_of
from placer.scheduler.plugins.node_declared_features import HOST_NETWORK, RESTART_ALL, NodeDeclaredFeatures
from placer.scheduler.profile import understood
from plimsoll.kube.models import Node, Pod
from tests.placer.core.fits import why_not_on

Object = dict[str, Any]
REASON = "node(s) didn't support SupplementalGroupsPolicy=Strict"
RESTARTING = {"name": "main", "restartPolicyRules": [{"action": "RestartAllContainers"}]}


def pod(*containers: Object, **spec: object) -> Pod:
    """A pod with these containers."""
    document = {"spec": {"containers": list(containers) or [{"name": "main"}], **spec}}
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def node(**status: object) -> Node:
    """A node that reports this."""
    return msgspec.convert(
        {"metadata": {"name": "n1"}, "status": {"allocatable": {"pods": "9"}, **status}}, Node
    )


def why_not(candidate: Pod, there: Node) -> tuple[str, ...]:
    """The reasons against the node."""
    return why_not_on(candidate, node_info_of(there))


@pytest.mark.parametrize(
    ("policy", "features", "reasons"),
    [
        ("Strict", {"supplementalGroupsPolicy": True}, ()),
        ("Strict", {"supplementalGroupsPolicy": False}, (REASON,)),
        ("Strict", {}, (REASON,)),
        ("Strict", None, (REASON,)),
        ("Merge", None, ()),
    ],
)
def test_strict_groups_need_a_runtime_that_keeps_them(
    policy: str, features: Object | None, reasons: tuple[str, ...]
) -> None:
    """The kubelet fails a pod with the strict policy on any node that does not say that it can keep it."""
    wanted = pod(securityContext={"supplementalGroupsPolicy": policy})
    assert why_not(wanted, node(features=features)) == reasons


def test_security_context_without_a_policy_needs_nothing() -> None:
    """Other fields of the security context change nothing."""
    assert why_not(pod(securityContext={"runAsUser": 1}), node()) == ()


@pytest.mark.parametrize(
    ("wanted", "features"),
    [
        (pod(), set()),
        (pod(RESTARTING), {RESTART_ALL}),
        (pod({"name": "main", "restartPolicyRules": [{"action": "Restart"}]}), set()),
        (pod(initContainers=[RESTARTING]), {RESTART_ALL}),
        (pod(hostNetwork=True, hostUsers=False), {HOST_NETWORK}),
        (pod(hostNetwork=True), set()),
        (pod(hostNetwork=True, hostUsers=True), set()),
        (pod(hostUsers=False), set()),
        (pod(RESTARTING, hostNetwork=True, hostUsers=False), {RESTART_ALL, HOST_NETWORK}),
    ],
)
def test_features_follow_from_the_pods_fields(wanted: Pod, features: set[str]) -> None:
    """Kubernetes infers two features from a pod, in containers and in init containers."""
    needed = NodeDeclaredFeatures().pre_filter(understood(wanted, HEADROOM))
    assert set(needed or ()) == features


def test_a_node_must_declare_each_feature() -> None:
    """Having one feature of two is not enough, and a feature that is not needed does no harm."""
    wanted = pod(RESTARTING, hostNetwork=True, hostUsers=False)
    both = [RESTART_ALL, HOST_NETWORK, "FeatureOfTomorrow"]
    assert why_not(wanted, node(declaredFeatures=[RESTART_ALL])) == (
        "node(s) didn't match Pod's required features",
    )
    assert why_not(wanted, node()) == ("node(s) didn't match Pod's required features",)
    assert why_not(wanted, node(declaredFeatures=both)) == ()
    assert why_not(pod(), node()) == ()
