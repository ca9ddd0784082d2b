"""The live page's stream of a placer for a real kube-apiserver."""

from pathlib import Path

from plimsoll.events import NodeState
from plimsoll.placer_api.live import LiveNode, WaitingPods
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import bus, publish
from tests.placer.live.world import Stream, card, decoded, reading, state
from tests.placer.placers import free_lease
from tests.placer.test_app import placer
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest


def reported() -> NodeState:
    """The node's report: one GPU, nothing on it."""
    return state("n1", card("GPU-1"))


async def placed_names(stream: Stream) -> list[str]:
    """The names of the pods on the node, once there are some."""
    while True:
        _, data = await stream.until("nodes")
        for node in decoded(data, list[LiveNode]):
            if node.gpus[0].pods:
                return [pod.name for pod in node.gpus[0].pods]


async def refused(stream: Stream, name: str) -> WaitingPods:
    """The waiting pods, once this one alone waits and has a reason."""
    while True:
        waiting = decoded((await stream.until("waiting"))[1], WaitingPods)
        if [pod.name for pod in waiting.pods if pod.reason] == [name] and waiting.total == 1:
            return waiting


async def test_pods_of_a_cluster_are_shown_by_name(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer, namespace: str
) -> None:
    """A pod that is bound stands on its GPU, and one that fits nowhere waits with its demand and its refusal."""
    settings = {
        "unheld_pods": "place",
        "kubeconfig": str(apiserver.kubeconfig()),
        "lease_s": "15",
        "http_port": "0",
    }
    await free_lease(apiserver)
    async with bus(nats) as jetstream:
        await publish(jetstream, reported())
        await create_node(
            apiserver,
            "n1",
            {"plimsoll.dev/gpu-memory": "24Gi", "plimsoll.dev/gpu-share": "100", "plimsoll.dev/gpu": "30"},
        )
        async with placer(tmp_path, nats, valkey, **settings) as part, reading(part.url) as stream:
            memory = "plimsoll.dev/gpu-memory"
            await create_pod(apiserver, namespace, pod_manifest("fits", {memory: "8Gi"}))
            assert await placed_names(stream) == ["fits"]
            await create_pod(apiserver, namespace, pod_manifest("waits", {memory: "20Gi"}))
            waiting = await refused(stream, "waits")
            [pod] = waiting.pods
            assert (pod.namespace, pod.name, pod.asks, waiting.total) == (
                namespace,
                "waits",
                "20Gi on 1 GPU",
                1,
            )
            assert pod.reason.startswith("0/1 nodes are available")
            assert pod.since
