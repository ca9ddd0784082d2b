"""`plimsoll resize` from the command line to the library, on real parts, and with parts killed in the middle."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from plimsoll.broker.pages import GpuLimit, Limits
from plimsoll.envelope import decode_event, event_type
from plimsoll.events import Limit
from plimsoll.quantity import GIB
from plimsoll_cli.demo.cluster import gpu_uuid
from tests.e2e.cluster import ALPHA, USABLE_BYTES, KubeCluster, kube_cluster
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import PATIENCE_S, until

GPU = gpu_uuid(ALPHA, 0)
PLACE = (str(ALPHA), GPU)


async def resize(
    cluster: KubeCluster, name: str, size: str, timeout_s: float = PATIENCE_S
) -> tuple[int, str]:
    """Request a new line."""
    return await change(cluster, name, "--gpu-memory", size, timeout_s=timeout_s)


async def change(
    cluster: KubeCluster, name: str, *options: str, timeout_s: float = PATIENCE_S
) -> tuple[int, str]:
    """Run `plimsoll resize` as an operator does; returns exit code and output."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "resize", "-n", cluster.namespace, name),
        *(*options, "--timeout-s", str(timeout_s), "--kubeconfig", str(cluster.api.kubeconfig())),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def placed(cluster: KubeCluster, name: str, memory: str, share: int = 0) -> None:
    """Place a pod on alpha's first GPU."""
    await cluster.submit(name, memory, share, {"plimsoll.dev/gpu-id": GPU})
    assert (await cluster.until_bound(name))[name] == PLACE


async def page_of(cluster: KubeCluster, name: str) -> GpuLimit:
    """The limits that the pod's processes read for their GPU, once they are laid out."""
    uid = (await cluster.pods())[name]["metadata"]["uid"]
    page = cluster.local.broker_root(ALPHA) / "limits" / uid / "main" / "limits"

    async def is_laid_out() -> bool:
        return await asyncio.to_thread(page.exists)

    await until(is_laid_out)
    limits = Limits.from_buffer_copy(await asyncio.to_thread(page.read_bytes))
    found: GpuLimit = limits.gpus[0]
    return found


async def line_bytes(cluster: KubeCluster, name: str) -> int:
    """The line of these processes."""
    return int((await page_of(cluster, name)).line_bytes)


async def shares(cluster: KubeCluster, name: str) -> tuple[int, int]:
    """The share and limit of these processes."""
    page = await page_of(cluster, name)
    return page.share_pct, page.limit_pct


async def resized_events(cluster: KubeCluster) -> list[tuple[int, int, int]]:
    """GiB, share and limit of every `limit.resized` in the stream, in order."""
    events = [decode_event(message) for message in await cluster.messages()]
    told = [msgspec.json.decode(e.data, type=Limit) for e in events if e.type == event_type("limit.resized")]
    return [(limit.line_bytes // GIB, limit.share_pct, limit.limit_pct) for limit in told]


async def written(cluster: KubeCluster, name: str) -> int:
    """The line in the pod's decision."""
    decision = json.loads((await cluster.pods())[name]["metadata"]["annotations"]["plimsoll.dev/decision"])
    [grant] = decision["containers"]["main"]
    line_bytes: int = grant["line_bytes"]
    return line_bytes


async def fits(cluster: KubeCluster, name: str, memory: str) -> bool:
    """Whether one more program of the pod can allocate this much."""
    program = await cluster.start_in(name, PLACE, memory, "--iterations", "3")
    await program.communicate()
    return program.returncode == 0


async def test_a_running_pod_is_raised_refused_and_lowered(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """A raise takes free room at once and never room promised to others.

    A lowering ends no program that holds more.
    """
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
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


@pytest.mark.slow
async def test_resizes_at_once_never_promise_the_same_room_twice(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Two pods never both get the same room, and of two sizes for one pod the same one stands everywhere."""
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        await placed(cluster, "a", "4Gi")
        await placed(cluster, "b", "4Gi")
        outcomes = await asyncio.gather(resize(cluster, "a", "18Gi"), resize(cluster, "b", "18Gi"))
        assert sorted(code for code, _ in outcomes) == [0, 2], outcomes
        assert await line_bytes(cluster, "a") + await line_bytes(cluster, "b") <= USABLE_BYTES
        outcomes = await asyncio.gather(resize(cluster, "a", "1Gi", 20), resize(cluster, "a", "2Gi", 20))
        assert 0 in [code for code, _ in outcomes], outcomes
        assert await line_bytes(cluster, "a") == await written(cluster, "a")
        assert await written(cluster, "a") in {GIB, 2 * GIB}


@pytest.mark.slow
async def test_a_placer_killed_in_the_middle_loses_no_line(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """After a kill of the placer a repeated request is enough, and the next placer counts the new line."""
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
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
    """Without the node's broker the old line holds and the message says so.

    The broker applies and confirms the new line later. A repeated request for a pod that was deleted before the
    broker is back says that the pod is gone.
    """
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        await placed(cluster, "job", "4Gi")
        await placed(cluster, "doomed", "4Gi")
        for name in ("job", "doomed"):
            assert await fits(cluster, name, "16Mi")
        await cluster.local.brokers[ALPHA].kill()

        async def is_told(name: str) -> bool:
            code, output = await resize(cluster, name, "6Gi", 3)
            assert (code, await line_bytes(cluster, name)) == (1, 4 * GIB), output
            # A placer on a slow machine may need the three seconds for itself.
            return "the broker on alpha did not confirm in 3 s; the values before stay" in output

        for name in ("job", "doomed"):
            await until(partial(is_told, name))
        path = f"/api/v1/namespaces/{namespace}/pods/doomed?gracePeriodSeconds=0"
        await apiserver.must("DELETE", path)
        await cluster.local.brokers[ALPHA].restart()
        code, output = await resize(cluster, "job", "6Gi")
        assert (code, await line_bytes(cluster, "job")) == (0, 6 * GIB), output
        code, output = await resize(cluster, "doomed", "6Gi")
        assert code == 2, output
        assert "does not exist" in output


async def test_shares_are_raised_refused_and_lowered_while_a_program_runs(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Shares on one GPU never exceed 100, alone or changed with the line, and an event confirms each change."""
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        await placed(cluster, "job", "4Gi", 30)
        await placed(cluster, "neighbour", "4Gi", 50)
        holder = await cluster.start_in("job", PLACE, "1Gi", "--hold-seconds", "600")
        assert holder.stdout is not None
        await holder.stdout.readline()
        await cluster.submit("late", "1Gi", 30, {"plimsoll.dev/gpu-id": GPU})
        assert "Insufficient plimsoll.dev/gpu-share" in await cluster.until_told_why("late")
        code, output = await change(cluster, "job", "--gpu-share", "60", "--gpu-memory", "6Gi")
        assert (code, await shares(cluster, "job"), await line_bytes(cluster, "job")) == (
            2,
            (30, 100),
            4 * GIB,
        )
        assert (
            f"gpu-share: '60' does not fit: 50 % of {GPU} are promised to others; give at most 50" in output
        )
        wanted = ("--gpu-share", "50", "--gpu-share-limit", "80", "--gpu-memory", "6Gi")
        code, output = await change(cluster, "job", *wanted)
        assert (code, await shares(cluster, "job"), await line_bytes(cluster, "job")) == (
            0,
            (50, 80),
            6 * GIB,
        )
        changed = "line 4Gi -> 6Gi, share 30 % -> 50 %, limit 100 % -> 80 %, holds "
        assert f"{namespace}/job: {GPU} on alpha: {changed}" in output
        code, output = await change(cluster, "neighbour", "--gpu-share", "20")
        assert (code, await shares(cluster, "neighbour")) == (0, (20, 100)), output
        assert output.endswith(f"{GPU} on alpha: share 50 % -> 20 %\n")
        await cluster.until_bound("late")
        assert await resized_events(cluster) == [(6, 50, 80), (4, 20, 100)]
        assert holder.returncode is None


@pytest.mark.slow
async def test_changed_shares_outlive_placer_and_broker(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """The next placer and broker keep changed shares. A share that moved between pods meanwhile moves completely."""
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        # Lists come in order of names: the pod that takes the room stands before the pod that gives it.
        await placed(cluster, "a-taker", "2Gi", 20)
        await placed(cluster, "b-giver", "2Gi", 60)
        assert (await change(cluster, "b-giver", "--gpu-share", "70", "--gpu-share-limit", "90"))[0] == 0
        await cluster.placer.kill()
        await cluster.local.brokers[ALPHA].kill()
        await cluster.placer.restart()

        async def gives() -> bool:
            code, output = await change(cluster, "b-giver", "--gpu-share", "20", timeout_s=3)
            assert code == 1, output
            return "the broker on alpha did not confirm in 3 s; the values before stay" in output

        await until(gives)
        code, output = await change(cluster, "a-taker", "--gpu-share", "81")
        assert (code, "20 % of" in output) == (2, True), output
        assert (await change(cluster, "a-taker", "--gpu-share", "80", timeout_s=3))[0] == 1
        assert await shares(cluster, "b-giver") == (70, 90)
        await cluster.local.brokers[ALPHA].restart()
        for name, share, after in (("a-taker", "80", (80, 100)), ("b-giver", "20", (20, 90))):
            code, output = await change(cluster, name, "--gpu-share", share)
            assert (code, await shares(cluster, name)) == (0, after), output
