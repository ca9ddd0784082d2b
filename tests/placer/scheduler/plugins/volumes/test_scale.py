"""Decisions on pods with claims read few nodes, however many nodes and local volumes there are."""

from tests.placer.kube.objects import MEMORY
from tests.placer.kube.scene import Scene, scene
from tests.placer.scheduler.plugins.volumes.objects import (
    HOSTNAME,
    NO_PROVISIONER,
    bound_claim,
    claim_of,
    class_of,
    on_nodes_with,
    using,
    volume_of,
)

NODES = 300


def local_volumes(made: Scene, count: int) -> None:
    """A class whose volumes are made by hand, and a local volume on each of the last nodes."""
    store = made.profile.volumes.store
    store.put(class_of(provisioner=NO_PROVISIONER))
    for number in range(NODES - count, NODES):
        store.put(volume_of(f"v{number:03}", nodeAffinity=on_nodes_with(HOSTNAME, f"n{number:03}")))


def user(made: Scene, name: str) -> None:
    """The watch shows a pod that uses the claim of its name."""
    made.show(made.pod(name, {MEMORY: "1Gi"}, volumes=using(name)))


def nodes(made: Scene) -> None:
    """Make the nodes; the last one has the least free memory, so no decision comes to it by itself."""
    for number in range(NODES):
        name = f"n{number:03}"
        made.node(name, {HOSTNAME: name})
        made.report(name, 4 if number == NODES - 1 else 20)


async def test_pod_goes_to_the_node_of_its_local_volume_at_once() -> None:
    """A pod with a bound local volume, and one that gets the only volume, read one node each."""
    async with scene() as made:
        nodes(made)
        local_volumes(made, 2)
        made.profile.volumes.store.put(bound_claim("bound", f"v{NODES - 1}"))
        made.profile.volumes.store.put(claim_of("unbound"))
        made.profile.volumes.store.put(
            volume_of(f"v{NODES - 1}", phase="Bound", nodeAffinity=on_nodes_with(HOSTNAME, f"n{NODES - 1}"))
        )
        for name, last in (("bound", NODES - 1), ("unbound", NODES - 2)):
            before = made.decider.nodes_read
            user(made, name)
            await made.settle()
            assert made.pods[name].spec.nodeName == f"n{last}"
            assert made.decider.nodes_read == before + 1


async def test_waiting_replicas_share_one_refusal_and_go_with_their_volumes() -> None:
    """Replicas whose claims are alike are judged once. Each volume that comes places one of them."""
    async with scene() as made:
        nodes(made)
        local_volumes(made, 0)
        for number in range(20):
            made.profile.volumes.store.put(claim_of(f"web-{number}"))
            user(made, f"web-{number}")
        await made.settle()
        assert all(made.is_unschedulable(name) for name in made.pods)
        assert made.refusal("web-7") == (
            "0/300 nodes are available: 300 node(s) didn't find available persistent volumes to bind."
        )
        read = made.decider.nodes_read
        local_volumes(made, 3)
        await made.settle()
        assert sum(made.is_placed(name) for name in made.pods) == 3
        assert not made.missed()
        assert made.decider.nodes_read - read < 50


async def test_pod_without_its_claim_waits_alone_and_is_tried_when_the_claim_comes() -> None:
    """Only a change of its claim brings the pod back, not a change of nodes."""
    async with scene() as made:
        nodes(made)
        local_volumes(made, 1)
        user(made, "web")
        await made.settle()
        assert made.refusal("web") == '0/300 nodes are available: persistentvolumeclaim "web" not found.'
        tries = made.tries
        made.node("n000", {HOSTNAME: "n000", "new": "label"}, cpu="64")
        await made.settle()
        assert (made.tries, made.is_unschedulable("web")) == (tries, True)
        made.profile.volumes.store.put(claim_of("web"))
        await made.settle()
        assert made.pods["web"].spec.nodeName == f"n{NODES - 1}"
