"""On a real API server a change brings back the waiting pods that it could help, and no others."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from placer.scheduler.queue.queueing_hints import EVERYTHING
from placer.scheduler.queue.states import QueueState
from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.events import Phase, Task
from plimsoll.ids import NodeName, PodUid
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import MIB
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, condition, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest, ready_condition
from tests.servers.waiting import until, until_true

NODE = "/api/v1/nodes/n1"


def sample(world: World, name: str, **labels: str) -> float:
    """A metric's value; 0 if there is none."""
    return world.metrics.registry.get_sample_value(f"plimsoll_placer_{name}", labels) or 0.0


def refusals(world: World) -> float:
    """The number of decisions that found no node for a GPU pod."""
    return sample(world, "decisions_total", outcome="unplaceable")


def probes(world: World) -> float:
    """The number of probes of a node for unschedulable pods."""
    return sample(world, "probes_total", outcome="fit") + sample(world, "probes_total", outcome="unfit")


async def until_unschedulable(world: World, pods: int) -> None:
    """Wait until this many pods are unschedulable."""

    async def look() -> bool:
        return world.parts.queue.counts[QueueState.UNSCHEDULABLE] == pods

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
        await until_unschedulable(world, 3)
        assert case.text in condition(await world.until_refused("p", case.text))["message"]
        before = refusals(world)
        await case.change(world)
        await world.until_bound("p")
        await until_unschedulable(world, 2)
        assert refusals(world) - before <= case.retold


async def test_end_of_an_anti_affinity_rule_opens_the_other_nodes_of_its_domain(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """When a pod with a rule is deleted, pods that the rule kept out are tried on all nodes of the domain."""
    async with scheduler(apiserver, valkey, namespace) as world:
        for name in ("n1", "n2"):
            await create_node(apiserver, name, labels={"zone": "a"})
        await world.report("n1", 24)
        keeper = pod_manifest("first", scheduler="default-scheduler")
        term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
        keeper["spec"]["affinity"] = {
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        }
        await create_pod(apiserver, namespace, keeper)
        bind = {"metadata": {"name": "first"}, "target": {"kind": "Node", "name": "n2"}}
        await apiserver.must("POST", f"/api/v1/namespaces/{namespace}/pods/first/binding", bind)
        waiting = pod_manifest("p", GPU)
        waiting["metadata"]["labels"] = {"app": "x"}
        await create_pod(apiserver, namespace, waiting)
        await world.until_refused("p", "existing pods anti-affinity rules")
        await delete_first(world)
        await world.until_bound("p")


async def test_reports_and_heartbeats_without_more_room_bring_nothing_back(
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
        await until_unschedulable(world, 3)
        before = refusals(world)
        for free_gib in (10, 9, 8, 9, 10):
            await world.report("n1", free_gib)
        beat = {"status": {"conditions": [ready_condition(ready=True)]}}
        await apiserver.must("PATCH", f"{NODE}/status", beat)
        await apiserver.must("PATCH", NODE, {"metadata": {"annotations": {"beat": "1"}}})
        await create_pod(apiserver, namespace, pod_manifest("last", {MEMORY: "1Gi"}))
        await world.until_bound("last")
        assert (refusals(world), probes(world)) == (before, 0)
        assert world.parts.queue.counts[QueueState.UNSCHEDULABLE] == 3


async def test_equal_pods_share_one_decision_and_each_says_why_it_waits(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Ten equal pods cost one refusal, and room for three of them is filled at once."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 4)
        await create_node(apiserver, "n2")  # known before the pods, so that no change comes between them
        await world.report("n2", 1)
        await create_pod(apiserver, namespace, pod_manifest("p0", {MEMORY: "5Gi"}))
        await until_unschedulable(world, 1)
        names = [f"p{index}" for index in range(10)]
        for name in names[1:]:
            await create_pod(apiserver, namespace, pod_manifest(name, {MEMORY: "5Gi"}))
        for name in names:
            await world.until_refused(name, "2 Insufficient plimsoll.dev/gpu-memory on one GPU")
        assert refusals(world) == 1
        assert sample(world, "shared_refusals_total") == 9
        await world.report("n1", 16)

        async def bound() -> bool:
            pods = [await world.pod(name) for name in names]
            return sum("nodeName" in pod["spec"] for pod in pods) == 3

        await until(bound)
        await until_unschedulable(world, 7)
        assert refusals(world) == 2


async def test_pod_that_needs_less_than_was_assumed_brings_back_those_of_its_owner(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Once the first best-effort pod of an owner is measured, its sibling needs no more than that."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 1)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
        for name in ("first", "second"):
            manifest = pod_manifest(
                name, {"plimsoll.dev/gpu": "1"}, annotations={"plimsoll.dev/best-effort": "true"}
            )
            manifest["metadata"]["ownerReferences"] = [owner]
            await create_pod(apiserver, namespace, manifest)
            if name == "first":
                await world.until_bound("first")
        await until_unschedulable(world, 1)
        state = world.reports[NodeName("n1")]
        (gpu,) = state.gpus
        process = Task(
            pid=1,
            start_ticks=1,
            gpu=gpu.uuid,
            phase=Phase.LOADED,
            used_bytes=300 * MIB,
            peak_bytes=300 * MIB,
            pod=PodUid((await world.pod("first"))["metadata"]["uid"]),
        )
        measured = msgspec.structs.replace(gpu, tasks=(process,), used_bytes=gpu.used_bytes + 300 * MIB)
        world.reports.apply(msgspec.structs.replace(state, seq=state.seq + 1, gpus=(measured,)))
        await world.until_bound("second")


async def test_pod_is_placed_at_once_beside_many_hopeless_ones_that_are_tried_again(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A hundred hopeless pods of a hundred signatures come back again and again, and each new pod is placed."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        manifests = [pod_manifest(f"h{index}", {MEMORY: f"{30 + index}Gi"}) for index in range(100)]
        await asyncio.gather(*(create_pod(apiserver, namespace, manifest) for manifest in manifests))
        await until_unschedulable(world, 100)
        for index in range(5):
            world.parts.cluster_events.move_on(EVERYTHING)
            await create_pod(apiserver, namespace, pod_manifest(f"p{index}", {MEMORY: "1Gi"}))
            await world.until_bound(f"p{index}")
        # The API server shows a bind before the placer has read its answer.
        await until_true(lambda: len(world.parts.queue) == 100)
        assert len(list(world.ledger.bookings())) == 5
