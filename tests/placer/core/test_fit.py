"""Node fit follows kube-scheduler in its arithmetic, its order, and its wording."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.scheduler.node_info import Requested
from placer.scheduler.plugins.node_resources_fit import MOST_SHORTAGES
from placer.scheduler.pods.needs import HostPort, Needs, needs_of
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from tests.placer.core.fits import Object, container, cpu, node, pod, why_not

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared with, never listened on


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


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "example.com/fpga"]), st.integers(0, 8 * GIB))


@given(st.lists(st.tuples(AMOUNTS, st.integers(1, 3)), max_size=8))
def test_load_is_the_sum_of_who_is_there(residents: list[tuple[dict[str, int], int]]) -> None:
    """After any arrivals and departures the load is the sum over the pods that stayed, and zero when all left."""
    pods = [
        needs_of(pod(container(requests=amounts, ports=[{"hostPort": number}])))
        for amounts, number in residents
    ]
    load, fresh = Requested(), Requested()
    for needs in pods:
        load.add(needs)
    for needs in pods[::2]:
        load.remove(needs)
    for needs in pods[1::2]:
        fresh.add(needs)
    assert (+load.amounts, load.ports, load.pods) == (+fresh.amounts, fresh.ports, fresh.pods)


def test_a_refusal_names_a_bounded_number_of_resources() -> None:
    """A pod that asks for thousands of resources which no node has is refused for some of them."""
    asked = {f"example.com/r{index}": "1" for index in range(2000)}
    reasons = why_not(pod(container(requests=asked)), node())
    assert reasons == tuple(f"Insufficient example.com/r{index}" for index in range(MOST_SHORTAGES))


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
    load, left = Requested(), Requested()
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
    assert left == Requested(amounts=left.amounts)
