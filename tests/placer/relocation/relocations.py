"""Small clusters for relocation, in a line each, and one look of the placer at the pods that wait."""

from typing import Any

from placer.relocation.relocator import Relocator
from placer.relocation.rules import RelocationMode, RelocationRules
from plimsoll.kube.models import Pod
from tests.placer.kube.objects import SHARE, Object
from tests.placer.kube.preemption_scene import PreemptionScene, on_gpu, pod

RULES = RelocationRules(RelocationMode.ON, after_s=0.0, rest_s=0.0)
COST = "plimsoll.dev/relocation-cost"
OWNER = {"uid": "set-1", "kind": "ReplicaSet", "name": "web", "controller": True}


def mover(
    name: str,
    gpu: str,
    share: int,
    cost: str | None = "1",
    owner: Object | None = None,
    namespace: str = "default",
    **more: Any,  # noqa: ANN401
) -> Pod:
    """A pod of a controller on this GPU; its annotation states what it costs to move it."""
    owners = [OWNER if owner is None else owner] if owner != {} else []
    metadata = {"namespace": namespace, "ownerReferences": owners}
    made = on_gpu(name, gpu, share=share, metadata=metadata, started="2026-01-01T00:00:00Z", **more)
    if cost is not None and made.metadata.annotations is not None:
        made.metadata.annotations[COST] = cost
    return made


def replacement(name: str, share: int) -> Pod:
    """The pod that the controller makes in place of a moved one."""
    return pod(
        name,
        limits={"cpu": "0", SHARE: str(share)},
        annotations={COST: "1"},
        metadata={"ownerReferences": [OWNER]},
    )


def wide(name: str = "wide", share: int = 90, priority: int = 0) -> Pod:
    """A pod that wants most of a GPU."""
    return pod(name, priority=priority, limits={"cpu": "0", SHARE: str(share)})


def halves(playing: PreemptionScene, *, cost: str | None = "1", **more: Any) -> None:  # noqa: ANN401 - passed on
    """Two nodes of one GPU, each half full; the pod on n1 may be moved."""
    for node in ("n1", "n2"):
        playing.scene.node(node)
        playing.scene.report(node, 24)
    playing.scene.show(mover("m1", "GPU-n1-0", 50, cost, **more))
    playing.scene.show(on_gpu("stone", "GPU-n2-0", share=50))


def pair(playing: PreemptionScene) -> None:
    """Two nodes of one GPU: on n1 two pods that may be moved, and room for both on n2, which is in use."""
    for node in ("n1", "n2"):
        playing.scene.node(node)
        playing.scene.report(node, 24)
    for name in ("m1", "m2"):
        playing.scene.show(mover(name, "GPU-n1-0", 40))
    playing.scene.show(on_gpu("stone", "GPU-n2-0", share=20))


async def wait(playing: PreemptionScene, *pods: Pod) -> None:
    """These pods wait, and are refused."""
    for one in pods:
        playing.scene.show(one)
    await playing.settle()


async def plan(playing: PreemptionScene) -> None:
    """Relocation reads the waiting pods once, and carries out what it found."""
    await relocator_of(playing).look()
    await playing.settle()


def relocator_of(playing: PreemptionScene) -> Relocator:
    """The part under test."""
    return playing.parts.controllers.relocator


def node_of(playing: PreemptionScene, name: str) -> str | None:
    """The node of a pod, as the watch shows it."""
    return playing.scene.pods[name].spec.nodeName


def other_halves(playing: PreemptionScene) -> None:
    """Two more nodes: on n3 a pod that may be moved, and room for it on n4."""
    for node in ("n3", "n4"):
        playing.scene.node(node, labels={"zone": "b"})
        playing.scene.report(node, 24)
    playing.scene.show(mover("m3", "GPU-n3-0", 60))
    playing.scene.show(on_gpu("more", "GPU-n4-0", share=40))
