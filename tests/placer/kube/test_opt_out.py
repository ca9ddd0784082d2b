"""Nodes opt out by a label: they take no more pods, and keep those that they have."""

from placer.core.room import room_on
from placer.scheduler.plugins.opt_out import REASON as OPTED_OUT
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, gpu_of, scheduler
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest

N1, GPU = NodeName("n1"), GpuUuid("GPU-n1-0")
LABEL = "plimsoll.dev/node"


async def label(world: World, value: str | None) -> None:
    """Set or remove the node's label."""
    await world.change_node(N1, {"metadata": {"labels": {LABEL: value}}})


def headroom(world: World) -> int:
    """Bytes that are free of promises on the node's GPU."""
    found = world.parts.context.decider.candidates.find(N1)
    assert found is not None
    return room_on(N1, found.node.gpus[0], world.parts.context.decider.ledger).free_bytes


async def test_a_node_that_opted_out_takes_no_pod_and_keeps_its_own(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The refusal names the label; what runs there stays promised; without the label the pod goes there."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, N1)
        await world.report(N1, 24)
        await create_pod(apiserver, namespace, pod_manifest("before", {MEMORY: "10Gi"}))
        assert gpu_of(await world.until_bound("before")) == (N1, GPU)
        await label(world, "off")
        await create_pod(apiserver, namespace, pod_manifest("after", {MEMORY: "10Gi"}))
        await world.until_refused("after", f"0/1 nodes are available: 1 {OPTED_OUT}.")
        assert headroom(world) == 14 * GIB
        await label(world, None)
        assert gpu_of(await world.until_bound("after")) == (N1, GPU)
