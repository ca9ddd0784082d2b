"""A report in a node's name that its monitor did not send: the password of the bus is the same on every node."""

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import gpu_of, scheduler
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest

REAL_GIB = 24
ADVERTISED = {MEMORY: f"{REAL_GIB}Gi", "plimsoll.dev/gpu-share": "100", "plimsoll.dev/gpu": "30"}
"""The annotations of a node with one GPU on the API server, where only its own monitor may write them."""


async def test_no_report_makes_room_that_the_node_does_not_show(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Ten GPUs of ten times the memory on the bus leave the node with what the API server shows."""
    await create_node(apiserver, "n1", ADVERTISED)
    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", *[10 * REAL_GIB] * 10, total_gib=10 * REAL_GIB)
        for number in range(2):
            await create_pod(apiserver, namespace, pod_manifest(f"p{number}", {MEMORY: f"{REAL_GIB // 2}Gi"}))
            await world.until_bound(f"p{number}")
        await create_pod(apiserver, namespace, pod_manifest("more", {MEMORY: "1Gi"}))
        await world.until_refused("more", f"Insufficient {MEMORY}")


async def test_the_next_report_of_the_monitor_counts_again(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A report that shows a full node stops new pods there until the monitor's next one, and no longer."""
    await create_node(apiserver, "n1", ADVERTISED)
    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", REAL_GIB)
        await world.report("n1", 0)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "1Gi"}))
        await world.until_refused("p", "0/1 nodes are available")
        await world.report("n1", REAL_GIB)
        assert gpu_of(await world.until_bound("p")) == ("n1", "GPU-n1-0")
