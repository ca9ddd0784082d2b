"""From a manifest to a GPU with room, on real parts: API server, NATS, Valkey, monitors and brokers."""

import json
from pathlib import Path
from typing import NamedTuple

from plimsoll.events import Phase
from plimsoll.ids import NodeName
from plimsoll.quantity import GIB
from plimsoll_cli.demo.cluster import gpu_uuid
from tests.e2e.cluster import GPUS_PER_NODE, NODES, USABLE_BYTES, KubeCluster, kube_cluster, promised_bytes
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until


class Bad(NamedTuple):
    """A manifest that is refused, and the words of the refusal."""

    name: str
    annotations: dict[str, str]
    share: int
    field_and_value: str
    remedy: str


async def _until_loaded(cluster: KubeCluster, count: int) -> None:
    async def look() -> bool:
        loaded = {r.task.pid for r in await cluster.reports() if r.task and r.task.phase is Phase.LOADED}
        return len(loaded) >= count

    await until(look)
    await cluster.until_placer_caught_up()


BAD = (
    Bad(
        "percent",
        {},
        101,
        "spec.containers[main].resources[plimsoll.dev/gpu-share]: '101'",
        "give at most 100",
    ),
    Bad(
        "misspelled",
        {"plimsoll.dev/gpu-modle": "NVIDIA L4"},
        0,
        "metadata.annotations[plimsoll.dev/gpu-modle]: 'NVIDIA L4'",
        "did you mean plimsoll.dev/gpu-model?",
    ),
)


async def test_a_pod_waits_until_the_monitors_report_room_and_is_bound_to_it(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """A pod that fits nowhere has the exact reason for all three nodes.

    The exit of one task is enough: the pod is bound to its GPU, node and GPU in one write.
    """
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        hogs = [await cluster.load(node, gpu, "20Gi") for node in NODES for gpu in range(GPUS_PER_NODE)]
        await _until_loaded(cluster, len(hogs))
        await cluster.submit("patient", "8Gi", share=30)
        message = await cluster.until_told_why("patient")
        assert message.startswith(
            "0/3 nodes are available: 3 Insufficient plimsoll.dev/gpu-memory on one GPU"
        )
        hogs[3].kill()
        places = await cluster.until_bound("patient")
        assert places["patient"] == ("bravo", gpu_uuid(NodeName("bravo"), 1))
        pod = (await cluster.pods())["patient"]
        decision = json.loads(pod["metadata"]["annotations"]["plimsoll.dev/decision"])
        assert decision["policy"] == "headroom"

        async def notes() -> list[str]:
            events = await apiserver.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
            return [e["note"] for e in events["items"] if e["reason"] == "Scheduled"]

        assert await until(notes) == [f"Successfully assigned {namespace}/patient to bravo"]


async def test_a_burst_with_bad_manifests_is_never_overpacked(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Twenty pods at once fill six GPUs exactly: no GPU exceeds its memory, and each pod is bound once.

    Malformed manifests among them are refused with field, value and remedy.
    """
    declared = {f"pod-{index}": 7 * GIB for index in range(20)}
    fitting = len(NODES) * GPUS_PER_NODE * (USABLE_BYTES // (7 * GIB))
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        for bad in BAD:
            await cluster.submit(bad.name, "1Gi", share=bad.share, annotations=bad.annotations)
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
        for bad in BAD:
            message = await cluster.until_told_why(bad.name)
            assert bad.field_and_value in message
            assert bad.remedy in message
