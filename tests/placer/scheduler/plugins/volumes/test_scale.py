"""Decisions on pods with claims read few nodes, however many nodes and local volumes there are."""

from typing import Any

import msgspec

from plimsoll.kube.storage_models import Claim, StorageClass, Volume, VolumeStatus
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.scene import Scene, scene

NODES = 300
HOSTNAME = "kubernetes.io/hostname"


def local_volumes(made: Scene, count: int) -> None:
    """A class whose volumes are made by hand, and a local volume on each of the last nodes."""
    volumes = made.profile.volumes
    document: dict[str, Any] = {
        "metadata": {"name": "local"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    volumes.put_class(msgspec.convert(document, StorageClass))
    for number in range(NODES - count, NODES):
        term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [f"n{number:03}"]}]}
        spec = {
            "capacity": {"storage": "1Gi"},
            "storageClassName": "local",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        }
        meta = {"name": f"v{number:03}", "uid": f"v{number:03}", "resourceVersion": "1"}
        document = {"metadata": meta, "spec": spec, "status": {"phase": "Available"}}
        volumes.put_volume(msgspec.convert(document, Volume))


def claim(made: Scene, name: str, volume: str | None = None) -> None:
    """The watch shows a claim, bound to a volume or not."""
    meta: dict[str, Any] = {"name": name, "uid": name, "resourceVersion": "1"}
    spec: dict[str, Any] = {"storageClassName": "local"}
    if volume is not None:
        meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
        spec["volumeName"] = volume
    made.profile.volumes.put_claim(msgspec.convert({"metadata": meta, "spec": spec}, Claim))


def user(made: Scene, name: str) -> None:
    """The watch shows a pod that uses the claim of its name."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    made.show(made.pod(name, {MEMORY: "1Gi"}, volumes=volumes))


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
        claim(made, "bound", f"v{NODES - 1}")
        claim(made, "unbound")
        volumes = made.profile.volumes
        free = volumes.storage.shelf.volumes[f"v{NODES - 1}"].api
        volumes.put_volume(msgspec.structs.replace(free, status=VolumeStatus("Bound")))
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
            claim(made, f"web-{number}")
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
        claim(made, "web")
        await made.settle()
        assert made.pods["web"].spec.nodeName == f"n{NODES - 1}"
