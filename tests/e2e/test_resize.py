"""`plimsoll resize` from the command line to the library, on real parts, and with parts killed in the middle."""

import asyncio
import json
import os
import sys
from pathlib import Path

from plimsoll.cli.local_cluster import gpu_uuid
from plimsoll.layout import Limits
from plimsoll.names import NodeName
from plimsoll.quantity import GIB
from tests.e2e.cluster import USABLE_BYTES, KubeCluster, kube_cluster
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until

ALPHA = NodeName("alpha")
GPU = gpu_uuid(ALPHA, 0)
PLACE = (str(ALPHA), GPU)


async def resize(cluster: KubeCluster, name: str, size: str, timeout_s: float = 60) -> tuple[int, str]:
    """What an operator types, and what comes of it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "resize", "-n", cluster.namespace, name),
        *("--gpu-memory", size, "--timeout-s", str(timeout_s)),
        env={**os.environ, "PLIMSOLL_NATS_URL": cluster.local.nats.url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def placed(cluster: KubeCluster, name: str, memory: str) -> None:
    """A pod on alpha's first GPU."""
    await cluster.submit(name, memory, annotations={"plimsoll.dev/gpu-id": GPU})
    assert (await cluster.until_bound(name))[name] == PLACE


async def line_bytes(cluster: KubeCluster, name: str) -> int:
    """The line that the pod's processes read."""
    uid = (await cluster.pods())[name]["metadata"]["uid"]
    page = cluster.local.broker_root(ALPHA) / "limits" / uid / "main" / "limits"
    return int(Limits.from_buffer_copy(await asyncio.to_thread(page.read_bytes)).gpus[0].line_bytes)


async def written(cluster: KubeCluster, name: str) -> int | None:
    """The line in the pod's annotation; None before the first resize."""
    annotations = (await cluster.pods())[name]["metadata"]["annotations"]
    line_bytes: int | None = json.loads(annotations.get("plimsoll.dev/lines", "{}")).get("main", {}).get(GPU)
    return line_bytes


async def fits(cluster: KubeCluster, name: str, memory: str) -> bool:
    """Whether one more program of the pod's gets so much."""
    program = await cluster.start_in(name, PLACE, memory, "--iterations", "3")
    await program.communicate()
    return program.returncode == 0


async def test_a_running_pod_is_raised_refused_and_lowered(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Room is given at once; none is given that others were promised; nothing that runs is ended below its use."""
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        await placed(cluster, "job", "4Gi")
        await placed(cluster, "neighbour", "10Gi")
        holder = await cluster.start_in("job", PLACE, "3Gi", "--hold-seconds", "600")
        assert holder.stdout is not None
        await holder.stdout.readline()
        assert not await fits(cluster, "job", "2Gi")
        code, output = await resize(cluster, "job", "6Gi")
        assert (code, await line_bytes(cluster, "job")) == (0, 6 * GIB), output
        assert f"{namespace}/job: {GPU} on alpha: line 4Gi -> 6Gi, holds " in output
        assert await fits(cluster, "job", "2Gi")
        code, output = await resize(cluster, "job", "14Gi")
        assert (code, await line_bytes(cluster, "job")) == (2, 6 * GIB), output
        assert "gpu-memory: '14Gi' does not fit" in output
        code, output = await resize(cluster, "job", "1Gi")
        assert (code, await line_bytes(cluster, "job")) == (0, GIB), output
        assert "growth is refused until it is below" in output
        assert holder.returncode is None
        assert not await fits(cluster, "job", "16Mi")
        await placed(cluster, "newcomer", "8Gi")


async def test_resizes_at_once_never_promise_the_same_room_twice(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Two pods want what only one can have; and of two sizes for one pod, one stands everywhere."""
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        await placed(cluster, "a", "4Gi")
        await placed(cluster, "b", "4Gi")
        outcomes = await asyncio.gather(resize(cluster, "a", "18Gi"), resize(cluster, "b", "18Gi"))
        assert sorted(code for code, _ in outcomes) == [0, 2], outcomes
        assert await line_bytes(cluster, "a") + await line_bytes(cluster, "b") <= USABLE_BYTES
        outcomes = await asyncio.gather(resize(cluster, "a", "1Gi", 20), resize(cluster, "a", "2Gi", 20))
        assert 0 in [code for code, _ in outcomes], outcomes
        assert await line_bytes(cluster, "a") == await written(cluster, "a")
        assert await written(cluster, "a") in {GIB, 2 * GIB}


async def test_a_placer_killed_in_the_middle_loses_no_line(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Whatever the killed one had done, asking again is enough; and the next one counts the new line."""
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        await placed(cluster, "job", "4Gi")

        async def is_written() -> bool:
            return await written(cluster, "job") == 20 * GIB

        asked = asyncio.create_task(resize(cluster, "job", "20Gi", 10))
        await until(is_written)
        await cluster.placer.kill()
        code, output = await asked
        assert code in {0, 1}, output
        await cluster.placer.restart()

        async def confirmed() -> bool:
            return (await resize(cluster, "job", "20Gi"))[0] == 0

        await until(confirmed)
        assert await line_bytes(cluster, "job") == 20 * GIB
        await cluster.submit("late", "5Gi", annotations={"plimsoll.dev/gpu-id": GPU})
        assert "Insufficient plimsoll.dev/gpu-memory" in await cluster.until_told_why("late")
        assert (await resize(cluster, "job", "2Gi"))[0] == 0
        await cluster.until_bound("late")


async def test_what_is_not_confirmed_is_not_called_done(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """With the node's broker away the old line holds and it says so; back, it applies and confirms the new one.

    A pod that is deleted before the broker is back is told as gone when asked for again.
    """
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        await placed(cluster, "job", "4Gi")
        await placed(cluster, "doomed", "4Gi")
        for name in ("job", "doomed"):
            assert await fits(cluster, name, "16Mi")
        await cluster.local.brokers[ALPHA].kill()
        for name in ("job", "doomed"):
            code, output = await resize(cluster, name, "6Gi", 3)
            assert (code, await line_bytes(cluster, name)) == (1, 4 * GIB), output
            assert "the broker on alpha did not confirm in 3 s; what was before holds" in output
        path = f"/api/v1/namespaces/{namespace}/pods/doomed?gracePeriodSeconds=0"
        await apiserver.must("DELETE", path)
        await cluster.local.brokers[ALPHA].restart()
        code, output = await resize(cluster, "job", "6Gi")
        assert (code, await line_bytes(cluster, "job")) == (0, 6 * GIB), output
        code, output = await resize(cluster, "doomed", "6Gi")
        assert code == 2, output
        assert "does not exist" in output
