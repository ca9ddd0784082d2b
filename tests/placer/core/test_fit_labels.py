"""A node takes only pods that tolerate its taints and select its labels, as in kube-scheduler."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.tolerations import Tolerations
from placer.scheduler.node_info import node_info_of
from plimsoll.kube.models import NodeStatus, ObjectMeta, Pod, Taint, Toleration
from tests.placer.core.fits import ALLOCATABLE, Object, container, node, pod, why_not, why_not_on


def test_cordoned_node_is_unschedulable_unless_tolerated() -> None:
    """`kubectl cordon` keeps pods away, but not a daemon's that tolerates it."""
    there = node(unschedulable=True)
    assert why_not(pod(), there) == ("node(s) were unschedulable",)
    tolerating = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    assert why_not(tolerating, there) == ()


def test_node_that_is_not_ready_is_refused_even_before_it_is_tainted() -> None:
    """The Ready condition alone refuses a node, as the taint that a controller derives from it comes later."""
    conditions = [{"type": "Ready", "status": "Unknown"}]
    status = msgspec.convert({"allocatable": ALLOCATABLE, "conditions": conditions}, NodeStatus)
    there = msgspec.structs.replace(node(), status=status)
    assert why_not(pod(), there) == ("node(s) were not ready",)
    tolerating = {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}
    assert why_not(pod(tolerations=[tolerating]), there) == ()
    assert why_not(pod(tolerations=[tolerating | {"effect": "NoExecute"}]), there) == (
        "node(s) were not ready",
    )
    other = tolerating | {"key": "node.kubernetes.io/not-ready"}
    assert why_not(pod(tolerations=[other]), there) == ("node(s) were not ready",)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (None, False),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "value": "other"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"key": "k", "operator": "Gt", "value": "v"}, False),
    ],
)
def test_taints_repel_unless_tolerated(toleration: Object | None, tolerated: bool) -> None:  # noqa: FBT001
    """Key, value, effect and operator decide as in Kubernetes; an unknown operator tolerates nothing."""
    there = node(taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
    wanted = pod(tolerations=[toleration] if toleration else [])
    assert why_not(wanted, there) == (() if tolerated else ("node(s) had untolerated taint {k: v}",))


def test_preference_taint_does_not_repel() -> None:
    """A `PreferNoSchedule` taint repels no pod."""
    assert why_not(pod(), node(taints=[{"key": "k", "effect": "PreferNoSchedule"}])) == ()
    assert why_not(pod(), node(taints=[{"key": "k", "effect": "NoExecute"}])) == (
        "node(s) had untolerated taint {k: }",
    )


def affinity(*terms: Object) -> Object:
    """Required node affinity with these terms."""
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def test_affinity_terms_are_alternatives_and_their_parts_are_not() -> None:
    """Terms are alternatives, and all parts of a term must match.

    An empty term matches nothing, and `matchFields` selects by name.
    """
    zone_b = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert why_not(pod(affinity=affinity(zone_b, named)), node()) == ()
    assert why_not(pod(affinity=affinity(zone_b | named)), node()) != ()
    assert why_not(pod(affinity=affinity({})), node()) != ()
    assert why_not(pod(affinity=affinity(named), nodeSelector={"zone": "b"}), node()) != ()


def test_node_selector_and_operating_system() -> None:
    """Node selector and operating system must match the node's labels. The kubelet judges an unknown system."""
    assert why_not(pod(nodeSelector={"zone": "a"}), node()) == ()
    assert why_not(pod(nodeSelector={"zone": "b"}), node()) == (
        "node(s) didn't match Pod's node affinity/selector",
    )
    assert why_not(pod(os={"name": "windows"}), node()) == ("node(s) didn't match Pod's operating system",)
    assert why_not(pod(os={"name": "linux"}), node()) == ()


@pytest.mark.parametrize(("system", "fits"), [("linux", True), ("windows", False)])
def test_operating_system_of_a_pods_label_counts_as_for_the_kubelet(system: str, fits: bool) -> None:  # noqa: FBT001
    """The kubelet fails a pod whose label `kubernetes.io/os` names another system than its own."""
    labelled = msgspec.structs.replace(pod(), metadata=ObjectMeta(labels={"kubernetes.io/os": system}))
    assert (why_not(labelled, node()) == ()) is fits
    nowhere = msgspec.structs.replace(pod(os={"name": "linux"}), metadata=labelled.metadata)
    assert (why_not(nowhere, node()) == ()) is fits


texts = st.sampled_from([None, "", "a", "b"])


effects = st.sampled_from([None, "", "NoSchedule", "NoExecute"])


tolerations = st.builds(
    Toleration, texts, st.sampled_from([None, "", "Equal", "Exists", "Gt"]), texts, effects
)


taints = st.builds(Taint, st.sampled_from(["a", "b"]), st.sampled_from(["NoSchedule", "NoExecute"]), texts)


@given(st.lists(tolerations, max_size=3), taints)
def test_a_taint_is_tolerated_as_each_toleration_reads(given_: list[Toleration], taint: Taint) -> None:
    """For any tolerations, the result equals that of the rules read one by one."""
    with_them = msgspec.convert({"spec": {"tolerations": msgspec.to_builtins(given_)}}, Pod)
    plainly = any(
        (not one.effect or one.effect == taint.effect)
        and (not one.key or one.key == taint.key)
        and (
            one.operator == "Exists"
            or (one.operator in (None, "", "Equal") and (one.value or "") == (taint.value or ""))
        )
        for one in given_
    )
    assert Tolerations(with_them).tolerate(taint) == plainly


@pytest.mark.parametrize(
    ("labels", "opted_out"),
    [
        ({}, False),
        ({"plimsoll.dev/node": "off"}, True),
        ({"plimsoll.dev/node": "on"}, False),
        ({"mine/gpus": "off"}, False),
    ],
)
def test_a_node_opts_out_by_its_label(
    labels: dict[str, str],
    opted_out: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """No toleration helps against the label."""
    there = msgspec.structs.replace(node(), metadata=ObjectMeta(name="n1", labels=labels))
    wanted = pod(container(), tolerations=[{"operator": "Exists"}])
    found = why_not_on(wanted, node_info_of(there))
    assert found == (("node(s) had opted out of Plimsoll by label",) if opted_out else ())
