"""A pod's registration with the broker, read back, is the pod's booking; a resize changes one container of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.policies.headroom import HEADROOM
from placer.core.registration import adopted, registered, registration
from placer.core.resize.registered import registered_resize
from placer.core.view import NodeView, node_view
from plimsoll.broker.wire import ContainerUse, Description, Register
from plimsoll.demand import ContainerDemand
from plimsoll.ids import ContainerName, NodeName, PodUid
from plimsoll.kube.models import ObjectMeta, Pod, PodSpec
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from tests.placer.core.worlds import best_effort, declared, gpu, init, plan, request, state, whole

POD = Pod(metadata=ObjectMeta(name="p", namespace="ns"), spec=PodSpec(containers=[]))
NODE = node_view(state("n", *(gpu(uuid) for uuid in "ABCDEF")))


def planned(ledger: Ledger, *containers: ContainerDemand, owner: str | None = None) -> Plan:
    """A plan for pod `u` on a node of six GPUs, booked."""
    decided = plan(request("u", *containers, owner=owner), [NODE], ledger, HEADROOM)
    assert isinstance(decided, Plan), decided
    ledger.book(decided.booking)
    return decided


def described(*requests: Register) -> Description:
    """A broker that has registered these pods; none has a process yet."""
    uses = (
        ContainerUse(
            pod=one.pod, namespace=one.namespace, pod_name=one.name, container=container, processes=()
        )
        for one in requests
        for container in one.containers
    )
    return Description(containers=tuple(uses))


demands = st.one_of(
    st.builds(
        declared, st.just("x"), st.integers(1, 4), share_pct=st.integers(0, 30), gpus=st.integers(1, 2)
    ),
    st.builds(best_effort),
    st.builds(whole),
)


@given(st.lists(demands, min_size=1, max_size=3), st.lists(st.sampled_from([None, False, True]), min_size=3))
def test_a_booking_read_back_grants_what_was_registered(
    containers: list[ContainerDemand], kinds: list[bool | None]
) -> None:
    """A booking read back from a registration has all grants, for every kind of container. Only the owner is lost."""
    named = [replace(one, container=ContainerName(f"c{place}")) for place, one in enumerate(containers)]
    named = [
        one if kind is None else init(one, place, sidecar=kind)
        for place, (one, kind) in enumerate(zip(named, kinds, strict=False))
    ]
    decided = planned(Ledger(), *named, owner="job")
    [(row, booking)] = adopted(NodeName("n"), described(registration(POD, decided)))
    assert booking == replace(decided.booking, owner=None)
    assert (row.namespace, row.name, row.uid, row.gpus) == ("ns", "p", "u", decided.gpus)


def test_the_registration_of_a_pod_is_found_among_others() -> None:
    """The registration of a pod holds all its containers and no others; it is None for an unknown pod."""
    ours = registration(POD, planned(Ledger(), declared("a", 1), declared("b", 2)))
    other = registration(POD, planned(Ledger(), declared("a", 4)))
    both = described(ours, Register(pod=PodUid("v"), namespace="ns", name="q", containers=other.containers))
    assert registered(both, PodUid("u")) == ours
    assert registered(both, PodUid("w")) is None


def test_a_resize_registers_the_whole_pod_with_one_container_changed() -> None:
    """A resize registers the whole pod anew, with the other container's line unchanged.

    The ledger does not change before the broker has answered.
    """
    ledger = Ledger()
    before = registration(POD, planned(ledger, declared("a", 1), declared("b", 2)))
    counted = ledger.booking(PodUid("u"))
    asked = Resize(pod="p", namespace="ns", gpu_memory="5Gi", container=before.containers[1].name)
    checked = registered_resize(asked, PodUid("u"), described(before), ledger, NODE)
    lines = [one.lines[0].line_bytes // GIB for one in checked.registration.containers]
    assert (checked.registration.pod, lines) == ("u", [1, 5])
    assert [line.line_bytes // GIB for line in checked.answer.after] == [5]
    assert ledger.booking(PodUid("u")) == counted


@pytest.mark.parametrize(("view", "pod"), [(NODE, "v"), (None, "v")])
def test_a_pod_that_is_not_registered_cannot_be_resized(view: NodeView | None, pod: str) -> None:
    """A resize of a pod without a registration is refused with the pod's name, with and without a report."""
    asked = Resize(pod="p", namespace="ns", gpu_memory="5Gi")
    with pytest.raises(InputError, match="'ns/p' holds no GPU now"):
        registered_resize(asked, PodUid(pod), Description(containers=()), Ledger(), view)
