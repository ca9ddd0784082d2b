"""On a real API server the reasons of pods that wait follow the nodes, for each pod, by few writes."""

from placer.scheduler.queue.states import QueueState
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, condition, scheduler
from tests.placer.scheduler.event_handlers.test_on_api_server import refusals
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until

LARGE = {MEMORY: "30Gi"}
FULL = "Insufficient plimsoll.dev/gpu-memory on one GPU (most free: 24Gi on n1)"


async def until_all_are_told(world: World, pods: int, text: str) -> None:
    """Wait until the condition of each pod has exactly this text, and all pods are unschedulable."""
    names = [f"p{index}" for index in range(pods)]

    async def look() -> bool:
        return all([condition(await world.pod(name)).get("message") == text for name in names])

    await until(look)
    await until(lambda: _are_unschedulable(world, pods))


async def _are_unschedulable(world: World, pods: int) -> bool:
    return world.parts.core.queue.counts[QueueState.UNSCHEDULABLE] == pods


async def test_reasons_follow_nodes_that_come_and_leave(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """All pods of a signature get a new text when a node is cordoned, deleted, or comes. None is tried for that."""
    async with scheduler(apiserver, valkey, namespace) as world:
        for name in ("n1", "n2"):
            await create_node(apiserver, name)
            await world.report(name, 24 if name == "n1" else 8)
        for index in range(5):
            await create_pod(apiserver, namespace, pod_manifest(f"p{index}", LARGE))
        await until_all_are_told(world, 5, f"0/2 nodes are available: 2 {FULL}.")
        before = refusals(world)
        await apiserver.must("PATCH", "/api/v1/nodes/n2", {"spec": {"unschedulable": True}})
        text = f"0/2 nodes are available: 1 {FULL}, 1 node(s) were unschedulable."
        await until_all_are_told(world, 5, text)
        await apiserver.must("DELETE", "/api/v1/nodes/n2")
        await until_all_are_told(world, 5, f"0/1 nodes are available: 1 {FULL}.")
        assert refusals(world) == before
        await create_node(
            apiserver, "n3", {"cpu": "1"}, taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]
        )
        text = f"0/2 nodes are available: 1 {FULL}, 1 node(s) had untolerated taint {{k: v}}."
        await until_all_are_told(world, 5, text)


async def test_pod_that_comes_after_a_change_gets_the_new_reason(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that shares the refusal of its signature gets the present text, and each pod is written once a change."""
    async with scheduler(apiserver, valkey, namespace) as world:
        for name in ("n1", "n2", "n3"):
            await create_node(apiserver, name)
            await world.report(name, 24 if name == "n1" else 8)
        await create_pod(apiserver, namespace, pod_manifest("p0", LARGE))
        await until_all_are_told(world, 1, f"0/3 nodes are available: 3 {FULL}.")
        for name in ("n2", "n3"):
            await apiserver.must("DELETE", f"/api/v1/nodes/{name}")
        text = f"0/1 nodes are available: 1 {FULL}."
        await until_all_are_told(world, 1, text)
        before = refusals(world)
        await create_pod(apiserver, namespace, pod_manifest("p1", LARGE))
        await until_all_are_told(world, 2, text)
        assert refusals(world) == before
        assert len(world.published.refused) <= 4
