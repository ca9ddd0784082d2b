"""The free room of nodes and GPUs is right through assuming, binding, ending, and unexpected changes."""

import pytest

from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.core.policies.headroom import HEADROOM
from placer.scheduler.framework import UNKNOWN_NODE
from placer.scheduler.pods.needs import Needs, needs_of
from placer.scheduler.profile import Profile, understood
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Node, Pod
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from tests.placer.kube.decided import decided, decision_text
from tests.placer.kube.objects import MEMORY, node_of, pod_of

N1 = NodeName("n1")


def node(name: str = "n1", cpu: str = "4") -> Node:
    """A node with this much CPU."""
    return node_of(name, allocatable={"cpu": cpu, "pods": "10", "memory": "8Gi"})


def pod(
    uid: str,
    cpu: str = "2",
    on: str | None = None,
    annotations: dict[str, str] | None = None,
    memory: str = "4Gi",
) -> Pod:
    """A pod that requests CPU and GPU memory. With `on` it is bound to this node and has one GPU."""
    given = decided(decision_text("GPU-1", 4)) if on else {}
    return pod_of(uid, {"cpu": cpu, MEMORY: memory}, annotations=given | (annotations or {}), nodeName=on)


def booking(uid: str, on: str = "n1") -> Booking:
    """The booking of such a pod."""
    grant = Grant(ContainerName("main"), GpuUuid("GPU-1"), 4 * GIB, 0, 100, whole=False, line_bytes=4 * GIB)
    return Booking(PodUid(uid), NodeName(on), (grant,))


def assumed(profile: Profile, ledger: Ledger, uid: str) -> None:
    """Place a pod on n1 as a decision does."""
    ledger.book(booking(uid))
    profile.cache.assume(booking(uid), needs_of(pod(uid)), pod(uid))


def reasons(profile: Profile, cpu: str = "2", name: NodeName = N1) -> tuple[str, ...]:
    """The reasons against a pod with this CPU request."""
    return profile.filter(understood(pod("new", cpu), HEADROOM), name)


def test_assumed_pod_counts_before_and_after_it_is_confirmed_and_once() -> None:
    """An assumed pod counts once: a confirmation, or a repeated one, does not count it again."""
    ledger = Ledger()
    profile = Profile(ledger)
    cluster = profile.cache
    cluster.put_node(node())
    assumed(profile, ledger, "a")
    assert (cluster.is_assumed(PodUid("a")), reasons(profile, "2"), reasons(profile, "3")) == (
        True,
        (),
        ("Insufficient cpu",),
    )
    for _ in range(2):
        cluster.confirm(pod("a", on="n1"))
        assert (cluster.is_assumed(PodUid("a")), reasons(profile, "2"), reasons(profile, "3")) == (
            False,
            (),
            ("Insufficient cpu",),
        )
    assert ledger.booking(PodUid("a")) == booking("a")


def test_released_pod_leaves_nothing_behind_in_load_and_ledger() -> None:
    """A released pod's room is free at once, whether it was assumed or bound. A second release does nothing."""
    ledger = Ledger()
    profile = Profile(ledger)
    cluster = profile.cache
    cluster.put_node(node())
    assumed(profile, ledger, "a")
    cluster.confirm(pod("b", on="n1"))
    for uid in ("a", "b"):
        assert cluster.forget(PodUid(uid))
        assert not cluster.forget(PodUid(uid))
    assert reasons(profile, "4") == ()
    assert list(ledger.bookings()) == []


def test_bind_elsewhere_outranks_what_was_assumed() -> None:
    """A bind that the API server reports moves the pod and its GPU away from the assumed place."""
    ledger = Ledger()
    profile = Profile(ledger)
    cluster = profile.cache
    cluster.put_node(node())
    cluster.put_node(node("n2"))
    assumed(profile, ledger, "a")
    cluster.confirm(pod("a", on="n2"))
    assert (reasons(profile, "4"), reasons(profile, "4", NodeName("n2"))) == ((), ("Insufficient cpu",))
    assert ledger.on_gpu(N1, GpuUuid("GPU-1")) == ()
    assert len(ledger.on_gpu(NodeName("n2"), GpuUuid("GPU-1"))) == 1


def test_bound_pod_with_annotations_that_were_spoiled_counts_all_the_same() -> None:
    """A bound pod whose own annotations are damaged counts by its decision."""
    ledger = Ledger()
    profile = Profile(ledger)
    cluster = profile.cache
    cluster.put_node(node())
    cluster.confirm(pod("a", on="n1", annotations={"plimsoll.dev/gpu-share-limit": "lots"}))
    (held,) = ledger.on_gpu(N1, GpuUuid("GPU-1"))
    assert held.grants[0].memory_bytes == 4 * GIB
    assert held.doubt is None
    assert reasons(profile, "3") == ("Insufficient cpu",)


def test_node_that_left_and_came_back_still_has_its_pods() -> None:
    """A node without its object is refused. When the object is back, the node's pods count as before."""
    ledger = Ledger()
    profile = Profile(ledger)
    cluster = profile.cache
    cluster.confirm(pod("a", on="n1"))
    assert reasons(profile) == (UNKNOWN_NODE,)
    cluster.put_node(node())
    assert reasons(profile, "3") == ("Insufficient cpu",)
    cluster.remove_node(N1)
    assert (reasons(profile), set(cluster.nodes)) == ((UNKNOWN_NODE,), set())
    cluster.put_node(node(cpu="8"))
    assert (reasons(profile, "6"), reasons(profile, "7")) == ((), ("Insufficient cpu",))


def test_node_with_unreadable_allocatable_is_not_used() -> None:
    """A node with an unreadable amount is refused by name. Its earlier amounts are not used."""
    profile = Profile(Ledger())
    cluster = profile.cache
    cluster.put_node(node())
    with pytest.raises(InputError, match="nodes/n1"):
        cluster.put_node(node(cpu="many"))
    assert not cluster.nodes
    assert not list(cluster.by_pods())


def test_nodes_with_fewer_pods_come_first() -> None:
    """Pods that need no GPU spread by number of pods, then by name."""
    ledger = Ledger()
    profile = Profile(ledger)
    cluster = profile.cache
    for name in ("b", "a", "c"):
        cluster.put_node(node(name))
    ledger.book(Booking(PodUid("x"), NodeName("a"), ()))
    cluster.assume(Booking(PodUid("x"), NodeName("a"), ()), Needs({}, frozenset()), Pod())
    assert list(cluster.by_pods()) == ["b", "c", "a"]
