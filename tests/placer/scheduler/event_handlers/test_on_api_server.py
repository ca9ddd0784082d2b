"""On a real API server many pods that wait share their refusals, and hold up no new pod."""

import asyncio

from placer.scheduler.queue.queueing_hints import EVERYTHING
from placer.scheduler.queue.states import QueueState
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, scheduler
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until, until_true


def sample(world: World, name: str, **labels: str) -> float:
    """A metric's value; 0 if there is none."""
    return world.metrics.registry.get_sample_value(f"plimsoll_placer_{name}", labels) or 0.0


def refusals(world: World) -> float:
    """The number of decisions that found no node for a GPU pod."""
    return sample(world, "decisions_total", outcome="unplaceable")


async def until_unschedulable(world: World, pods: int) -> None:
    """Wait until this many pods are unschedulable."""

    async def look() -> bool:
        return world.parts.core.queue.counts[QueueState.UNSCHEDULABLE] == pods

    await until(look)


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
            world.parts.core.cluster_events.move_on(EVERYTHING)
            await create_pod(apiserver, namespace, pod_manifest(f"p{index}", {MEMORY: "1Gi"}))
            await world.until_bound(f"p{index}")
        # The API server shows a bind before the placer has read its answer.
        await until_true(lambda: len(world.parts.core.queue) == 100)
        assert len(list(world.ledger.bookings())) == 5
