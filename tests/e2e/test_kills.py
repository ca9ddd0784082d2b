"""`kill -9` of any part loses nothing, places nothing twice, and publishes nothing twice."""

import asyncio
from pathlib import Path

import pytest

from plimsoll.envelope import decode_event
from plimsoll.quantity import GIB
from tests.e2e.cluster import ALPHA, NODES, USABLE_BYTES, KubeCluster, facts, kube_cluster, promised_bytes
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until


async def _until_told(cluster: KubeCluster, pid: int, what: str) -> None:
    async def look() -> bool:
        told = facts(await cluster.messages())
        return any(what in phases for (told_pid, _), phases in told.items() if told_pid == pid)

    await until(look)


async def test_a_task_killed_while_it_loads_is_told_as_exited_and_frees_its_memory(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """A task killed while it loads has one `exited`, and its room goes to a pod that needs all of it."""
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        slow = ("--steps", "100", "--step-ms", "100")
        tasks = [await cluster.load(node, gpu, "20Gi", *slow) for node in NODES for gpu in (0, 1)]
        for task in tasks:
            await _until_told(cluster, task.pid, "started")
        for task in tasks:
            task.kill()
        for task in tasks:
            await _until_told(cluster, task.pid, "exited")
        await cluster.submit("after", "22Gi")
        await cluster.until_bound("after")
        for phases in facts(await cluster.messages()).values():
            assert (phases.count("started"), phases.count("exited")) == (1, 1)
            assert phases[-1] == "exited"


@pytest.mark.slow
async def test_a_killed_monitor_tells_what_it_missed_and_nothing_twice(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """After a kill of the monitor a living and a dead task have one start and one exit each, and the epoch grew."""
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        stays, dies = await cluster.load(ALPHA, 0, "4Gi"), await cluster.load(ALPHA, 1, "4Gi")
        for task in (stays, dies):
            await _until_told(cluster, task.pid, "loaded")
        monitor = cluster.local.monitors[ALPHA]
        epoch = max(report.state.epoch for report in await cluster.reports() if report.state.node == ALPHA)
        await monitor.kill()
        dies.kill()
        await dies.wait()
        await monitor.restart()
        await _until_told(cluster, dies.pid, "exited")
        stays.kill()
        await _until_told(cluster, stays.pid, "exited")
        told = {pid: phases for (pid, _), phases in facts(await cluster.messages()).items()}
        assert told[stays.pid] == ["started", "loaded", "exited"]
        assert told[dies.pid] == ["started", "loaded", "exited"]
        assert max(r.state.epoch for r in await cluster.reports() if r.state.node == ALPHA) > epoch


@pytest.mark.slow
async def test_nats_killed_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Events from the time without NATS are in the stream afterwards, each once, and pods are placed by them."""
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        before = await cluster.load(ALPHA, 0, "4Gi")
        await _until_told(cluster, before.pid, "started")
        await cluster.local.nats.kill()
        during = await cluster.load(ALPHA, 1, "20Gi")
        before.kill()
        await before.wait()
        await cluster.submit("meanwhile", "4Gi")
        await asyncio.sleep(2)  # An outage takes some time.
        await cluster.local.nats.restart()
        await _until_told(cluster, before.pid, "exited")
        await _until_told(cluster, during.pid, "loaded")
        await cluster.until_bound("meanwhile")
        messages = await cluster.messages()
        told = {pid: phases for (pid, _), phases in facts(messages).items()}
        assert (told[before.pid].count("started"), told[before.pid].count("exited")) == (1, 1)
        assert told[during.pid] == ["started", "loaded"]
        ids = [decode_event(message).id for message in messages]
        assert len(ids) == len(set(ids))


async def test_redis_killed_in_the_middle_costs_a_rebuild_and_nothing_else(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Pods that arrive without the sorted list wait for it; none is lost, and none goes where no room is."""
    declared = {f"pod-{index}": 9 * GIB for index in range(12)}
    async with kube_cluster(tmp_path, apiserver, namespace) as cluster:
        for index, name in enumerate(declared):
            await cluster.submit(name, "9Gi")
            if index == 4:
                await cluster.local.valkey.kill()
            if index == 8:
                await cluster.local.valkey.restart()
        await cluster.until_bound(*declared)
        promised = promised_bytes(await cluster.pods(), declared)
        assert max(promised.values()) <= USABLE_BYTES
        assert sum(promised.values()) == 12 * 9 * GIB
