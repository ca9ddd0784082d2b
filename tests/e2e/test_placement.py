"""From a manifest to a GPU with room, on real parts: API server, NATS, Valkey, monitors and brokers."""

import json
from pathlib import Path

import pytest

from plimsoll.cli.demo.cluster import gpu_uuid
from plimsoll.events import Phase
from plimsoll.ids import NodeName
from plimsoll.quantity import GIB
from tests.e2e.cluster import GPUS_PER_NODE, NODES, USABLE_BYTES, KubeCluster, kube_cluster, promised_bytes
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until


async def _until_loaded(cluster: KubeCluster, count: int) -> None:
    async def look() -> bool:
        loaded = {r.task.pid for r in await cluster.reports() if r.task and r.task.phase is Phase.LOADED}
        return len(loaded) >= count

    await until(look)
    await cluster.until_placer_caught_up()


async def test_a_pod_goes_where_the_monitors_say_there_is_room(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """If all GPUs but one are full of other tasks, the pod is bound to that one, node and GPU in one write."""
    room = (NodeName("bravo"), 1)
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        full = [(node, gpu) for node in NODES for gpu in range(GPUS_PER_NODE) if (node, gpu) != room]
        for node, gpu in full:
            await cluster.load(node, gpu, "20Gi")
        await _until_loaded(cluster, len(full))
        await cluster.submit("trainer", "8Gi", share=30)
        places = await cluster.until_bound("trainer")
        assert places["trainer"] == (room[0], gpu_uuid(*room))
        pod = (await cluster.pods())["trainer"]
        decision = json.loads(pod["metadata"]["annotations"]["plimsoll.dev/decision"])
        assert decision["policy"] == "headroom"

        async def notes() -> list[str]:
            events = await apiserver.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
            return [e["note"] for e in events["items"] if e["reason"] == "Scheduled"]

        assert await until(notes) == [f"Successfully assigned {namespace}/trainer to bravo"]


async def test_a_pod_that_fits_nowhere_waits_and_is_told_why_and_goes_when_room_is_made(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """The condition has the exact reason for all three nodes, and the exit of one task is enough to place the pod."""
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        hogs = [await cluster.load(node, gpu, "20Gi") for node in NODES for gpu in range(GPUS_PER_NODE)]
        await _until_loaded(cluster, len(hogs))
        await cluster.submit("patient", "8Gi")
        message = await cluster.until_told_why("patient")
        assert message.startswith(
            "0/3 nodes are available: 3 Insufficient plimsoll.dev/gpu-memory on one GPU"
        )
        hogs[3].kill()
        assert (await cluster.until_bound("patient"))["patient"] == ("bravo", gpu_uuid(NodeName("bravo"), 1))


async def test_a_burst_is_never_overpacked(tmp_path: Path, apiserver: ApiServer, namespace: str) -> None:
    """Twenty pods at once fill six GPUs exactly: no GPU exceeds its memory, and each pod is bound once."""
    declared = {f"pod-{index}": 7 * GIB for index in range(20)}
    fitting = len(NODES) * GPUS_PER_NODE * (USABLE_BYTES // (7 * GIB))
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        for name in declared:
            await cluster.submit(name, "7Gi")

        async def bound() -> bool:
            return (
                sum(bool(pod["spec"].get("nodeName")) for pod in (await cluster.pods()).values()) >= fitting
            )

        await until(bound)
        promised = promised_bytes(await cluster.pods(), declared)
        assert max(promised.values()) <= USABLE_BYTES
        assert sum(promised.values()) == fitting * 7 * GIB


@pytest.mark.parametrize(
    ("annotations", "share", "field", "value", "remedy"),
    [
        ({}, 101, "spec.containers[main].resources[plimsoll.dev/gpu-share]", "'101'", "give at most 100"),
        (
            {"plimsoll.dev/gpu-modle": "NVIDIA L4"},
            0,
            "metadata.annotations[plimsoll.dev/gpu-modle]",
            "'NVIDIA L4'",
            "did you mean plimsoll.dev/gpu-model?",
        ),
    ],
)
async def test_bad_manifests_are_answered_and_others_go_on(
    tmp_path: Path,
    apiserver: ApiServer,
    namespace: str,
    annotations: dict[str, str],
    share: int,
    field: str,
    value: str,
    remedy: str,
) -> None:
    """A malformed or unhandled manifest is refused with field, value and remedy, and a good pod is bound."""
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        await cluster.submit("bad", "1Gi", share=share, annotations=annotations)
        await cluster.submit("good", "1Gi")
        await cluster.until_bound("good")
        message = await cluster.until_told_why("bad")
        assert field in message
        assert value in message
        assert remedy in message
