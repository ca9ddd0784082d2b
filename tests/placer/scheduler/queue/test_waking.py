"""On a real API server a change wakes the waiting pods that it could help, and no others."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from placer.scheduler.queue.lanes import QueuePlace
from plimsoll.placer_api.rpc import Resize
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, condition, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest, ready_condition
from tests.servers.waiting import until

NODE = "/api/v1/nodes/n1"


def sample(world: World, name: str, **labels: str) -> float:
    """A metric's value; 0 if there is none."""
    return world.metrics.registry.get_sample_value(f"plimsoll_placer_{name}", labels) or 0.0


def refusals(world: World) -> float:
    """The number of decisions that found no node for a GPU pod."""
    return sample(world, "decisions_total", outcome="unplaceable")


def probes(world: World) -> float:
    """The number of probes of a node for parked pods."""
    return sample(world, "probes_total", outcome="fit") + sample(world, "probes_total", outcome="unfit")


async def until_parked(world: World, pods: int) -> None:
    """Wait until this many pods are parked."""

    async def look() -> bool:
        return world.parts.queue.counts[QueuePlace.PARKED] == pods

    await until(look)


async def nothing(_: World) -> None:
    """Prepare nothing."""


async def occupy_gpu(world: World) -> None:
    """Place a pod on most of the node's GPU."""
    await create_pod(world.api, world.namespace, pod_manifest("first", {MEMORY: "20Gi"}))
    await world.until_bound("first")


async def occupy_cpu(world: World) -> None:
    """Let another scheduler place a pod on most of the node's CPU."""
    foreign = pod_manifest("first", {"cpu": "6"}, scheduler="default-scheduler")
    await create_pod(world.api, world.namespace, foreign)
    bind = {"metadata": {"name": "first"}, "target": {"kind": "Node", "name": "n1"}}
    await world.api.must("POST", f"/api/v1/namespaces/{world.namespace}/pods/first/binding", bind)


def patched(path: str, body: Object) -> Callable[[World], Awaitable[object]]:
    """Patch an object."""
    return lambda world: world.api.must("PATCH", path, body)


async def delete_first(world: World) -> None:
    """Delete the pod that was placed first."""
    path = f"/api/v1/namespaces/{world.namespace}/pods/first?gracePeriodSeconds=0"
    await world.api.must("DELETE", path)


async def end_first(world: World) -> None:
    """Let the pod that was placed first succeed."""
    path = f"/api/v1/namespaces/{world.namespace}/pods/first/status"
    await world.api.must("PATCH", path, {"status": {"phase": "Succeeded"}})


async def shrink_first(world: World) -> None:
    """Lower the line of the pod that was placed first."""
    await world.parts.resizer.resize(Resize(pod="first", namespace=world.namespace, gpu_memory="2Gi"))


@dataclass(frozen=True)
class Case:
    """A pod that waits for one reason, and the change that ends the wait.

    Attributes:
        wants: the resources of the pod that waits.
        text: a part of the reason that it waits for.
        change: ends the wait.
        prepare: makes the reason.
        selector: the node labels that the pod asks for.
        taints: taints of the node.
        ready: whether the node is ready.
        free_gib: the free memory of the node's GPU.
        retold: the number of other pods whose refusal names the reason that the change ends.
    """

    wants: dict[str, str]
    text: str
    change: Callable[[World], Awaitable[object]]
    prepare: Callable[[World], Awaitable[None]] = nothing
    selector: dict[str, str] = field(default_factory=dict)
    taints: tuple[dict[str, str], ...] = ()
    ready: bool = True
    free_gib: int = 24
    retold: int = 0


GPU = {MEMORY: "10Gi"}
TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}
CASES = {
    "memory freed": Case(GPU, "gpu-memory on one GPU", lambda world: world.report("n1", 12), free_gib=9),
    "GPU appeared": Case(GPU, "gpu-memory on one GPU", lambda world: world.report("n1", 9, 12), free_gib=9),
    "pod deleted": Case(GPU, "gpu-memory on one GPU", delete_first, occupy_gpu),
    "pod ended": Case(GPU, "gpu-memory on one GPU", end_first, occupy_gpu),
    "pod resized": Case(GPU, "gpu-memory on one GPU", shrink_first, occupy_gpu),
    "whole GPU emptied": Case(
        {"plimsoll.dev/gpu": "1"}, "a whole one was asked for", delete_first, occupy_gpu
    ),
    "CPU freed": Case({"cpu": "4"}, "Insufficient cpu", delete_first, occupy_cpu),
    "CPU freed for a GPU": Case({"cpu": "4", **GPU}, "Insufficient cpu", delete_first, occupy_cpu),
    "allocatable grew": Case(
        {"cpu": "10"},
        "Insufficient cpu",
        patched(f"{NODE}/status", {"status": {"capacity": {"cpu": "16"}, "allocatable": {"cpu": "16"}}}),
    ),
    "label added": Case(
        GPU,
        "node affinity/selector",
        patched(NODE, {"metadata": {"labels": {"zone": "a"}}}),
        selector={"zone": "a"},
    ),
    "taint removed": Case(
        GPU, "untolerated taint", patched(NODE, {"spec": {"taints": []}}), taints=(TAINT,), retold=1
    ),
    "node ready": Case(
        GPU,
        "were not ready",
        patched(f"{NODE}/status", {"status": {"conditions": [ready_condition(ready=True)]}}),
        ready=False,
        retold=1,
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_change_places_the_pod_that_it_helps_and_tries_no_other(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, name: str
) -> None:
    """The change ends the wait of one pod. Pods that wait for something else are not tried again."""
    case = CASES[name]
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1", taints=case.taints, ready=case.ready)
        await world.report("n1", case.free_gib)
        await case.prepare(world)
        others = [pod_manifest("too-large", {MEMORY: "25Gi"}), pod_manifest("elsewhere", {MEMORY: "1Gi"})]
        others[1]["spec"]["nodeSelector"] = {"nowhere": "x"}
        waiting = pod_manifest("p", case.wants)
        waiting["spec"]["nodeSelector"] = case.selector
        for manifest in (*others, waiting):
            await create_pod(apiserver, namespace, manifest)
        await until_parked(world, 3)
        assert case.text in condition(await world.until_refused("p", case.text))["message"]
        before = refusals(world)
        await case.change(world)
        await world.until_bound("p")
        await until_parked(world, 2)
        assert refusals(world) - before <= case.retold


async def test_reports_and_heartbeats_without_more_room_wake_nothing(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Reports with the same or less room, and a kubelet's heartbeats, lead to no probe and no decision."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 10)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        await create_pod(apiserver, namespace, pod_manifest("q", {MEMORY: "11Gi"}))
        elsewhere = pod_manifest("elsewhere", {MEMORY: "1Gi"})
        elsewhere["spec"]["nodeSelector"] = {"nowhere": "x"}
        await create_pod(apiserver, namespace, elsewhere)
        await until_parked(world, 3)
        before = refusals(world)
        for free_gib in (10, 9, 8, 9, 10):
            await world.report("n1", free_gib)
        beat = {"status": {"conditions": [ready_condition(ready=True)]}}
        await apiserver.must("PATCH", f"{NODE}/status", beat)
        await apiserver.must("PATCH", NODE, {"metadata": {"annotations": {"beat": "1"}}})
        await create_pod(apiserver, namespace, pod_manifest("last", {MEMORY: "1Gi"}))
        await world.until_bound("last")
        assert (refusals(world), probes(world)) == (before, 0)
        assert world.parts.queue.counts[QueuePlace.PARKED] == 3
