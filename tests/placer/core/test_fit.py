"""Node fit follows kube-scheduler in its arithmetic, its order, and its wording."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core import fit
from placer.core.fit import HostPort, Load, Needs, Tolerations, misfits, needs_of, offer_of, rules_of
from plimsoll.kube.models import Node, NodeStatus, ObjectMeta, Pod, Taint, Toleration
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB

Object = dict[str, Any]
ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared with, never listened on
ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "10", "ephemeral-storage": "10Gi"}


def node(allocatable: Object | None = None, **spec: object) -> Node:
    """A node `n1` in zone `a`, Ready, with little room."""
    labels = {"zone": "a", "generation": "7", "kubernetes.io/os": "linux"}
    document = {
        "metadata": {"name": "n1", "labels": labels},
        "spec": spec,
        "status": {
            "allocatable": ALLOCATABLE | (allocatable or {}),
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.convert(document, Node)


def container(name: str = "main", requests: Object | None = None, **fields: object) -> Object:
    """A container that requests these amounts."""
    return {"name": name, "resources": {"requests": requests or {}}, **fields}


def pod(*containers: Object, **spec: object) -> Pod:
    """A pod of these containers, decoded from the API server's form."""
    document = {"metadata": {"name": "p"}, "spec": {"containers": list(containers) or [container()], **spec}}
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def why_not(candidate: Pod, there: Node, *residents: Pod) -> tuple[str, ...]:
    """The reasons against placing the pod on the node beside these resident pods."""
    load = Load()
    for resident in residents:
        load.add(needs_of(resident))
    return misfits(rules_of(candidate), needs_of(candidate), offer_of(there), load)


def cpu(amount: str) -> Pod:
    """A pod that requests CPU."""
    return pod(container(requests={"cpu": amount}))


def test_pod_that_fits_has_no_reason_against_it() -> None:
    """The last thousandth of a CPU and the last pod's place may be used."""
    assert why_not(cpu("1"), node({"pods": "2"}), cpu("2999m")) == ()
    assert why_not(cpu("1001m"), node({"pods": "2"}), cpu("2999m")) == ()


def test_every_resource_that_is_short_is_told() -> None:
    """A refusal lists "Too many pods" and each short resource as separate reasons, in kube-scheduler's wording."""
    asked = {"cpu": "5", "memory": "9Gi", "ephemeral-storage": "11Gi", "example.com/fpga": "1"}
    assert why_not(pod(container(requests=asked)), node({"pods": "0"})) == (
        "Too many pods",
        "Insufficient cpu",
        "Insufficient memory",
        "Insufficient ephemeral-storage",
        "Insufficient example.com/fpga",
    )


def test_all_residents_count_and_leave_no_trace() -> None:
    """The load is the sum over resident pods; a pod that leaves takes its whole part with it."""
    there, load = offer_of(node()), Load()
    wanted = cpu("2")
    for _ in range(2):
        load.add(needs_of(cpu("1500m")))
    assert misfits(rules_of(wanted), needs_of(wanted), there, load) == ("Insufficient cpu",)
    load.remove(needs_of(cpu("1500m")))
    assert misfits(rules_of(wanted), needs_of(wanted), there, load) == ()
    assert load.pods == 1


def test_our_own_resources_count_only_where_they_are_advertised() -> None:
    """The ledger alone decides GPU memory until a node advertises it.

    From then on the advertised amount counts too.
    """
    wanted = pod(container(requests={"plimsoll.dev/gpu-memory": "4Gi"}))
    assert why_not(wanted, node()) == ()
    advertising = node({"plimsoll.dev/gpu-memory": "6Gi"})
    assert why_not(wanted, advertising) == ()
    assert why_not(wanted, advertising, wanted) == ("Insufficient plimsoll.dev/gpu-memory",)


@pytest.mark.parametrize(
    ("spec", "milli"),
    [
        ({"containers": [container("a", {"cpu": "1"}), container("b", {"cpu": "500m"})]}, 1500),
        # An init container runs alone: the greater of the two.
        ({"initContainers": [container("i", {"cpu": "3"})]}, 3000),
        ({"initContainers": [container("i", {"cpu": "500m"})]}, 1000),
        # A sidecar runs beside the containers, and beside init containers after it, not before it.
        ({"initContainers": [container("s", {"cpu": "2"}, restartPolicy="Always")]}, 3000),
        (
            {
                "initContainers": [
                    container("s", {"cpu": "2"}, restartPolicy="Always"),
                    container("i", {"cpu": "3"}),
                ]
            },
            5000,
        ),
        (
            {
                "initContainers": [
                    container("i", {"cpu": "3500m"}),
                    container("s", {"cpu": "2"}, restartPolicy="Always"),
                ]
            },
            3500,
        ),
        ({"overhead": {"cpu": "250m"}}, 1250),
        # The pod's own level outranks its containers' sum; overhead comes on top.
        ({"resources": {"requests": {"cpu": "4"}}, "overhead": {"cpu": "250m"}}, 4250),
        # A limit alone is a request of as much.
        ({"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [container(requests={"cpu": "0.0001"})]}, 1),
    ],
)
def test_effective_request_is_kubernetes_arithmetic(spec: Object, milli: int) -> None:
    """Init containers, sidecars, pod-level resources and overhead add up as Kubernetes adds them up."""
    document = {"containers": [container(requests={"cpu": "1"})], **spec}
    containers = document.pop("containers")
    assert needs_of(pod(*containers, **document)).amounts["cpu"] == milli


def test_pod_level_extended_resources_are_ignored() -> None:
    """The pod level counts for CPU, memory and huge pages only; extended resources come from containers."""
    wanted = pod(
        container(requests={"example.com/fpga": "1"}), resources={"requests": {"example.com/fpga": "5"}}
    )
    assert needs_of(wanted).amounts == {"example.com/fpga": 1}


def test_unreadable_amount_is_refused_by_name() -> None:
    """A malformed amount is refused with its container and resource, as the API server may not have checked it."""
    with pytest.raises(InputError, match=r"spec\.containers\[main\]\.resources\[cpu\]: 'two'"):
        needs_of(cpu("two"))


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


@pytest.mark.parametrize(
    ("key", "operator", "values", "matches"),
    [
        ("zone", "In", ["a", "b"], True),
        ("zone", "In", ["b"], False),
        ("zone", "NotIn", ["a"], False),  # codespell:ignore notin
        ("absent", "NotIn", ["a"], True),  # codespell:ignore notin
        ("zone", "Exists", None, True),
        ("absent", "Exists", None, False),
        ("absent", "DoesNotExist", None, True),
        ("zone", "DoesNotExist", None, False),
        ("generation", "Gt", ["6"], True),
        ("generation", "Gt", ["7"], False),
        ("generation", "Lt", ["8"], True),
        ("generation", "Lt", ["7"], False),
        ("zone", "Gt", ["1"], False),
        ("absent", "Lt", ["1"], False),
    ],
)
def test_required_node_affinity(key: str, operator: str, values: list[str] | None, matches: bool) -> None:  # noqa: FBT001
    """Each operator selects by labels as in Kubernetes."""
    expression = {"key": key, "operator": operator, "values": values}
    wanted = pod(affinity=affinity({"matchExpressions": [expression]}))
    assert why_not(wanted, node()) == (
        () if matches else ("node(s) didn't match Pod's node affinity/selector",)
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


def port(number: int, protocol: str | None = None, address: str | None = None) -> Pod:
    """A pod that takes a port of its node."""
    return pod(
        container(ports=[{"containerPort": 80, "hostPort": number, "protocol": protocol, "hostIP": address}])
    )


@pytest.mark.parametrize(
    ("wanted", "free"),
    [
        (port(8080), False),
        (port(8081), True),
        (port(8080, "UDP"), True),
        (port(8080, address="10.0.0.1"), False),
        (pod(container(ports=[{"containerPort": 8080}])), True),
        (pod(container(ports=[{"containerPort": 8080}]), hostNetwork=True), False),
    ],
)
def test_host_ports_clash_by_protocol_and_address(wanted: Pod, free: bool) -> None:  # noqa: FBT001
    """A port on all addresses clashes with the same port on any address. Other protocols and ports do not clash."""
    reason = "node(s) didn't have free ports for the requested pod ports"
    assert why_not(wanted, node(), port(8080)) == (() if free else (reason,))


def test_same_port_on_two_addresses_does_not_clash() -> None:
    """Two pods may have the same port on different addresses of the node."""
    assert why_not(port(80, address="10.0.0.1"), node(), port(80, address="10.0.0.2")) == ()


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/fpga"]), st.integers(0, 8 * GIB))


@given(st.lists(st.tuples(AMOUNTS, st.integers(1, 3)), max_size=8))
def test_load_is_the_sum_of_who_is_there(residents: list[tuple[dict[str, int], int]]) -> None:
    """After any arrivals and departures the load is the sum over the pods that stayed, and zero when all left."""
    pods = [
        needs_of(pod(container(requests=amounts, ports=[{"hostPort": number}])))
        for amounts, number in residents
    ]
    load, fresh = Load(), Load()
    for needs in pods:
        load.add(needs)
    for needs in pods[::2]:
        load.remove(needs)
    for needs in pods[1::2]:
        fresh.add(needs)
    assert (+load.amounts, load.ports, load.pods) == (+fresh.amounts, fresh.ports, fresh.pods)


def test_a_refusal_names_a_bounded_number_of_resources() -> None:
    """A pod that asks for thousands of resources which no node has is refused for some of them."""
    asked = {f"example.com/r{index}": "1" for index in range(5000)}
    reasons = why_not(pod(container(requests=asked)), node())
    assert reasons == tuple(f"Insufficient example.com/r{index}" for index in range(fit.MOST_SHORTAGES))


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


ports = st.frozensets(
    st.builds(
        HostPort,
        st.sampled_from(["TCP", "UDP"]),
        st.sampled_from([ANY_ADDRESS, "10.0.0.1"]),
        st.integers(1, 2),
    ),
    max_size=3,
)


@given(st.lists(ports, max_size=3), ports)
def test_ports_clash_as_each_pair_reads(
    taken: list[frozenset[HostPort]], wanted: frozenset[HostPort]
) -> None:
    """Two ports clash if number and protocol are equal and the addresses are equal, or one is any address."""
    load, left = Load(), Load()
    for one in taken:
        load.add(Needs({}, one))
        left.add(Needs({}, one))
    plainly = any(
        (new.protocol, new.port) == (old.protocol, old.port)
        and (new.address == old.address or ANY_ADDRESS in (new.address, old.address))
        for new in wanted
        for one in taken
        for old in one
    )
    assert any(map(load.clashes, wanted)) == plainly
    for one in taken:
        left.remove(Needs({}, one))
    assert left == Load(amounts=left.amounts)


@pytest.mark.parametrize(
    ("labels", "asked", "opted_out"),
    [
        ({}, {}, False),
        ({"plimsoll.dev/node": "off"}, {}, True),
        ({"plimsoll.dev/node": "on"}, {}, False),
        ({"mine/gpus": "off"}, {}, False),
        ({"mine/gpus": "off"}, {"opt_out_label": "mine/gpus"}, True),
    ],
)
def test_a_node_opts_out_by_its_label(
    labels: dict[str, str],
    asked: dict[str, str],
    opted_out: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """No toleration helps against the label, which the settings may name otherwise."""
    there = msgspec.structs.replace(node(), metadata=ObjectMeta(name="n1", labels=labels))
    wanted = pod(container(), tolerations=[{"operator": "Exists"}])
    found = misfits(rules_of(wanted), needs_of(wanted), offer_of(there, **asked), Load())
    assert found == (("node(s) had opted out of Plimsoll by label",) if opted_out else ())
