"""The free room of nodes and GPUs is right through assuming, binding, ending, and unexpected changes."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest

from placer.core.fit import Needs, needs_of
from placer.core.ledger import Booking, Grant, Ledger
from placer.kube.cluster import UNKNOWN_NODE, Cluster
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Node, Pod
from plimsoll.part.errors import InputError
from plimsoll.quantity import GIB
from plimsoll.resizes import Resized

N1 = NodeName("n1")


def node(name: str = "n1", cpu: str = "4") -> Node:
    """A node with so much CPU."""
    allocatable = {"cpu": cpu, "pods": "10", "memory": "8Gi"}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": allocatable}}, Node)


def pod(
    uid: str,
    cpu: str = "2",
    on: str | None = None,
    annotations: dict[str, str] | None = None,
    memory: str = "4Gi",
) -> Pod:
    """A pod that requests CPU and GPU memory. With `on` it is bound to this node and has one GPU."""
    given = {"gpus.plimsoll.dev/main": "GPU-1"} if on else {}
    document: dict[str, Any] = {
        "metadata": {"name": uid, "uid": uid, "annotations": given | (annotations or {})},
        "spec": {
            "nodeName": on,
            "containers": [
                {"name": "main", "resources": {"limits": {"cpu": cpu, "plimsoll.dev/gpu-memory": memory}}}
            ],
        },
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)


def booking(uid: str, on: str = "n1") -> Booking:
    """The booking of such a pod."""
    grant = Grant(ContainerName("main"), GpuUuid("GPU-1"), 4 * GIB, 0, 100, whole=False, line_bytes=4 * GIB)
    return Booking(PodUid(uid), NodeName(on), (grant,))


def assumed(cluster: Cluster, ledger: Ledger, uid: str) -> None:
    """Place a pod on n1 as a decision does."""
    ledger.book(booking(uid))
    cluster.assume(booking(uid), needs_of(pod(uid)))


def reasons(cluster: Cluster, cpu: str = "2", name: NodeName = N1) -> tuple[str, ...]:
    """The reasons against a pod with this CPU request."""
    wanted = pod("new", cpu)
    return cluster.misfits(wanted, needs_of(wanted), name)


def test_assumed_pod_counts_before_and_after_it_is_confirmed_and_once() -> None:
    """An assumed pod counts once: a confirmation, or a repeated one, does not count it again."""
    ledger = Ledger()
    cluster = Cluster(ledger)
    cluster.put_node(node())
    assumed(cluster, ledger, "a")
    assert (cluster.is_assumed(PodUid("a")), reasons(cluster, "2"), reasons(cluster, "3")) == (
        True,
        (),
        ("Insufficient cpu",),
    )
    for _ in range(2):
        cluster.confirm(pod("a", on="n1"))
        assert (cluster.is_assumed(PodUid("a")), reasons(cluster, "2"), reasons(cluster, "3")) == (
            False,
            (),
            ("Insufficient cpu",),
        )
    assert ledger.booking(PodUid("a")) == booking("a")


def test_released_pod_leaves_nothing_behind_in_load_and_ledger() -> None:
    """A released pod's room is free at once, whether it was assumed or bound. A second release does nothing."""
    ledger = Ledger()
    cluster = Cluster(ledger)
    cluster.put_node(node())
    assumed(cluster, ledger, "a")
    cluster.confirm(pod("b", on="n1"))
    for uid in ("a", "b"):
        assert cluster.release(PodUid(uid))
        assert not cluster.release(PodUid(uid))
    assert reasons(cluster, "4") == ()
    assert list(ledger.bookings()) == []


def test_bind_elsewhere_outranks_what_was_assumed() -> None:
    """A bind that the API server reports moves the pod and its GPU away from the assumed place."""
    ledger = Ledger()
    cluster = Cluster(ledger)
    cluster.put_node(node())
    cluster.put_node(node("n2"))
    assumed(cluster, ledger, "a")
    cluster.confirm(pod("a", on="n2"))
    assert (reasons(cluster, "4"), reasons(cluster, "4", NodeName("n2"))) == ((), ("Insufficient cpu",))
    assert ledger.on_gpu(N1, GpuUuid("GPU-1")) == ()
    assert len(ledger.on_gpu(NodeName("n2"), GpuUuid("GPU-1"))) == 1


def test_bound_pod_with_annotations_that_were_spoiled_counts_all_the_same() -> None:
    """A bound pod whose annotations were damaged later goes on counting, and the damage is reported."""
    ledger = Ledger()
    cluster = Cluster(ledger)
    cluster.put_node(node())
    with pytest.raises(InputError, match="gpu-share-limit"):
        cluster.confirm(pod("a", on="n1", annotations={"plimsoll.dev/gpu-share-limit": "lots"}))
    (held,) = ledger.on_gpu(N1, GpuUuid("GPU-1"))
    assert held.grants[0].memory_bytes == 4 * GIB
    assert reasons(cluster, "3") == ("Insufficient cpu",)


def test_node_that_left_and_came_back_still_has_its_pods() -> None:
    """A node without its object is refused. When the object is back, the node's pods count as before."""
    ledger = Ledger()
    cluster = Cluster(ledger)
    cluster.confirm(pod("a", on="n1"))
    assert reasons(cluster) == (UNKNOWN_NODE,)
    cluster.put_node(node())
    assert reasons(cluster, "3") == ("Insufficient cpu",)
    cluster.remove_node(N1)
    assert (reasons(cluster), set(cluster.nodes)) == ((UNKNOWN_NODE,), set())
    cluster.put_node(node(cpu="8"))
    assert (reasons(cluster, "6"), reasons(cluster, "7")) == ((), ("Insufficient cpu",))


def test_node_with_unreadable_allocatable_is_not_used() -> None:
    """A node with an unreadable amount is refused by name. Its earlier amounts are not used."""
    cluster = Cluster(Ledger())
    cluster.put_node(node())
    with pytest.raises(InputError, match="nodes/n1"):
        cluster.put_node(node(cpu="many"))
    assert not cluster.nodes
    assert not list(cluster.by_pods())


def test_nodes_with_fewer_pods_come_first() -> None:
    """Pods that need no GPU spread by number of pods, then by name."""
    ledger = Ledger()
    cluster = Cluster(ledger)
    for name in ("b", "a", "c"):
        cluster.put_node(node(name))
    ledger.book(Booking(PodUid("x"), NodeName("a"), ()))
    cluster.assume(Booking(PodUid("x"), NodeName("a"), ()), Needs({}, frozenset()))
    assert list(cluster.by_pods()) == ["b", "c", "a"]


def resized(uid: str, gib: int) -> Booking:
    """The booking of such a pod after a resize."""
    grant = Grant(
        ContainerName("main"), GpuUuid("GPU-1"), gib * GIB, 0, 100, whole=False, line_bytes=gib * GIB
    )
    return Booking(PodUid(uid), N1, (grant,))


def with_line(uid: str, gib: int) -> Pod:
    """Such a pod, bound, with a resized line."""
    return pod(uid, on="n1", annotations={"plimsoll.dev/lines": f'{{"main":{{"GPU-1":{gib * GIB}}}}}'})


def line_gib(ledger: Ledger, uid: str = "a") -> int:
    """The GiB that the ledger counts for the pod."""
    held = ledger.booking(PodUid(uid))
    assert held is not None
    return held.grants[0].line_bytes // GIB


def test_a_resized_pod_counts_by_its_line_from_the_first_look() -> None:
    """A new placer reads the line from its annotation, also if another annotation is damaged.

    Later changes count too.
    """
    ledger = Ledger()
    cluster = Cluster(ledger)
    cluster.confirm(with_line("a", 6))
    assert line_gib(ledger) == 6
    cluster.confirm(with_line("a", 9))
    assert line_gib(ledger) == 9
    spoiled = with_line("b", 6)
    assert spoiled.metadata.annotations is not None
    spoiled.metadata.annotations["plimsoll.dev/gpu-share-limit"] = "lots"
    with pytest.raises(InputError, match="gpu-share-limit"):
        cluster.confirm(spoiled)
    assert line_gib(ledger, "b") == 6


def test_a_share_that_the_watch_tells_anew_is_counted_anew() -> None:
    """A changed share counts when the watch shows it, also with an unchanged line or a damaged other annotation."""
    ledger = Ledger()
    cluster = Cluster(ledger)

    def told(share_pct: int, limit_pct: int, **others: str) -> tuple[int, int, int]:
        shares = f'{{"main":{{"share_pct":{share_pct},"limit_pct":{limit_pct}}}}}'
        named = {f"plimsoll.dev/{name}": value for name, value in others.items()}
        with suppress(InputError):
            cluster.confirm(pod("a", on="n1", annotations={"plimsoll.dev/shares": shares, **named}))
        held = ledger.booking(PodUid("a"))
        assert held is not None
        return held.grants[0].line_bytes // GIB, held.grants[0].share_pct, held.grants[0].limit_pct

    cluster.confirm(pod("a", on="n1"))
    assert told(40, 80) == (4, 40, 80)
    assert told(30, 80) == (4, 30, 80)
    assert told(30, 60) == (4, 30, 60)
    assert told(20, 50, lines="lots") == (4, 20, 50)
    assert told(101, 101) == (4, 0, 100)


def test_what_the_watch_tells_of_before_a_resize_does_not_undo_it() -> None:
    """A watch event from before a resize does not undo it.

    Once the watch has shown the resize, the watch decides again.
    """
    ledger = Ledger()
    cluster = Cluster(ledger)
    cluster.confirm(pod("a", on="n1"))
    cluster.assume_resize(resized("a", 6), Resized({ContainerName("main"): {GpuUuid("GPU-1"): 6 * GIB}}))
    cluster.confirm(pod("a", on="n1"))
    assert line_gib(ledger) == 6
    cluster.settle_resize(resized("a", 6), written=True)
    cluster.confirm(pod("a", on="n1"))
    assert line_gib(ledger) == 6
    cluster.confirm(with_line("a", 6))
    cluster.confirm(with_line("a", 9))
    assert line_gib(ledger) == 9


def test_a_resize_that_was_not_written_leaves_the_watch_the_last_word() -> None:
    """After a resize that was not written the watch decides. A pod that ended meanwhile does not come back."""
    ledger = Ledger()
    cluster = Cluster(ledger)
    cluster.confirm(pod("a", on="n1"))
    lines = Resized({ContainerName("main"): {GpuUuid("GPU-1"): 6 * GIB}})
    cluster.assume_resize(resized("a", 6), lines)
    cluster.settle_resize(resized("a", 6), written=False)
    assert line_gib(ledger) == 6
    cluster.confirm(pod("a", on="n1"))
    assert line_gib(ledger) == 4
    cluster.assume_resize(resized("a", 6), lines)
    cluster.release(PodUid("a"))
    cluster.settle_resize(resized("a", 6), written=True)
    assert ledger.booking(PodUid("a")) is None
