"""The line of a bound pod holds: the broker lays out the placer's decision where a kubelet finds it."""

import asyncio
import json
from functools import partial
from pathlib import Path

from plimsoll.ids import NodeName
from tests.e2e.cluster import ALPHA, KubeCluster, kube_cluster
from tests.placer.kube.objects import MEMORY, SHARE
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_pod, pod_manifest
from tests.servers.waiting import until


async def _run_in(
    cluster: KubeCluster, name: str, place: tuple[str, str], memory: str
) -> tuple[int, list[str]]:
    """Run a pod's program on its node; returns exit code and output."""
    program = await cluster.start_in(name, place, memory, "--iterations", "3")
    output, _ = await program.communicate()
    assert program.returncode is not None
    return program.returncode, output.decode().splitlines()


async def test_a_bound_pods_line_holds_its_program(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Within the declared 4Gi a program runs.

    Past it the program gets CUDA's out-of-memory error, and an event follows.
    """
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        await cluster.submit("job", "4Gi")
        place = (await cluster.until_bound("job"))["job"]
        returned, lines = await _run_in(cluster, "job", place, "3Gi")
        assert returned == 0, lines
        returned, lines = await _run_in(cluster, "job", place, "5Gi")
        assert returned == 2, lines
        assert json.loads(lines[-1])["error"] == "CUDA_ERROR_OUT_OF_MEMORY"

        async def denied() -> bool:
            return any(b"dev.plimsoll.limit.denied" in message for message in await cluster.messages())

        await until(denied)


async def test_each_container_of_a_pod_has_a_line_of_its_own(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """An init container of 20Gi runs on the GPU of a container of 4Gi, and another container beside that one.

    Each pod has its own line. The placer keeps 20Gi of the GPU for the pod, so a pod of 10Gi waits for that GPU.
    """
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        manifest = pod_manifest("job", {MEMORY: "4Gi", SHARE: "30"})
        image = manifest["spec"]["containers"][0]
        manifest["spec"]["containers"] += [
            {**image, "name": "side", "resources": {"limits": {MEMORY: "2Gi"}}}
        ]
        warm = {MEMORY: "20Gi", SHARE: "90"}
        manifest["spec"]["initContainers"] = [{**image, "name": "warm", "resources": {"limits": warm}}]
        await create_pod(apiserver, namespace, manifest)
        place = (await cluster.until_bound("job"))["job"]
        annotations = (await cluster.pods())["job"]["metadata"]["annotations"]
        places = {
            name: (place[0], annotations[f"gpus.plimsoll.dev/{name}"]) for name in ("warm", "main", "side")
        }
        assert places["warm"] in (places["main"], places["side"])
        for name, memory, code in (
            ("warm", "19Gi", 0),
            ("main", "5Gi", 2),
            ("main", "3Gi", 0),
            ("side", "3Gi", 2),
            ("side", "1Gi", 0),
        ):
            program = await cluster.start_in("job", places[name], memory, "--iterations", "3", container=name)
            await program.communicate()
            assert (name, memory, program.returncode) == (name, memory, code)
        await cluster.submit("other", "10Gi", annotations={"plimsoll.dev/gpu-id": places["warm"][1]})
        assert "Insufficient plimsoll.dev/gpu-memory" in await cluster.until_told_why("other")


async def test_a_deleted_pods_directories_go(tmp_path: Path, apiserver: ApiServer, namespace: str) -> None:
    """A deleted pod's directories go from its node, also if the broker was down at the deletion."""
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        for name, broker_is_away in (("job", False), ("other", True)):
            await cluster.submit(name, "4Gi")
            place = (await cluster.until_bound(name))[name]
            uid = (await cluster.pods())[name]["metadata"]["uid"]
            broker = cluster.local.brokers[NodeName(place[0])]
            limits = cluster.local.broker_root(NodeName(place[0])) / "limits" / uid
            exists, gone = partial(_is_laid_out, limits), partial(_is_gone, limits)
            await until(exists)
            if broker_is_away:
                await broker.kill()
            await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")
            if broker_is_away:
                assert await exists()
                await broker.restart()
            await until(gone)


async def _is_laid_out(limits: Path) -> bool:
    """Whether a pod's directory is whole: the record, which a broker that starts reads, comes last."""
    return await asyncio.to_thread((limits / "record.json").exists)


async def _is_gone(limits: Path) -> bool:
    return not await asyncio.to_thread(limits.exists)
