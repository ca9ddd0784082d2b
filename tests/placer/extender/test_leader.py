"""Two placers as processes: only the one that holds the Lease answers kube-scheduler, and the next one fences."""

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from placer.scheduler.binding.fence import FENCE
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import bus, eventually, publish, report
from tests.placer.extender.front import MEMORY, asked, front_pod, order
from tests.placer.placers import Placer, Placers, free_lease, placers
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, get_pod


@pytest.fixture
async def started(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer
) -> AsyncIterator[Placers]:
    """Starts placers of one cluster that serve their extender."""
    await free_lease(apiserver)
    settings = {"nats_url": nats.url, "redis_url": valkey.url, "kubeconfig": str(apiserver.kubeconfig())}
    async with placers(tmp_path, extender_port="0", **settings) as running:
        yield running


async def extender_of(placer: Placer) -> int:
    """The port of its extender."""
    return (await placer.until("extender ready")).port


async def readiness(port: int) -> int:
    """The status of `/readyz` there."""
    async with aiohttp.request("GET", f"http://127.0.0.1:{port}/readyz") as answer:
        return answer.status


async def test_only_the_leader_answers_and_the_next_one_fences_its_late_binds(
    nats: EmbeddedServer, apiserver: ApiServer, namespace: str, started: Placers
) -> None:
    """A follower says that it does not lead. Once it leads, it binds; a pod to which its dead predecessor may have
    been writing has a new version by then.
    """
    async with bus(nats) as jetstream:
        await create_node(apiserver, "n1")
        leader = await started.start("left")
        await leader.until("lease taken")
        follower = await started.start("right")
        await publish(jetstream, report("n1"))
        await eventually(leader.readiness, (200, "ok\n"))
        await eventually(follower.readiness, (200, "ok\n"))
        ports = await extender_of(leader), await extender_of(follower)
        await eventually(lambda: readiness(ports[0]), 200)
        assert await readiness(ports[1]) == 503
        pods = [
            await create_pod(apiserver, namespace, front_pod(name, {MEMORY: "2Gi"})) for name in ("p", "q")
        ]
        for verb, question in (
            ("filter", {"Pod": pods[0], "NodeNames": ["n1"]}),
            ("bind", order(pods[0], "n1")),
        ):
            refused = (await asked(ports[1], verb, question))["Error"]
            assert "this placer does not hold the lease" in refused
        assert await asked(ports[0], "bind", order(pods[0], "n1")) == {"Error": ""}
        assert "plimsoll_placer_extender_requests_total" in await leader.metrics()
        leader.process.send_signal(signal.SIGKILL)
        await eventually(lambda: readiness(ports[1]), 200)
        assert (await follower.until("late writes fenced off")).pods >= 1
        waiting = await get_pod(apiserver, namespace, "q")
        assert FENCE in waiting["metadata"]["annotations"]
        assert await asked(ports[1], "bind", order(pods[0], "n1")) == {"Error": ""}
        assert await asked(ports[1], "bind", order(pods[1], "n1")) == {"Error": ""}
