"""SIGTERM ends the placer with exit code 0 in every state that it can be in."""

import asyncio
import contextlib
import itertools
import json
import random
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.chaos.proxy import Proxy, Weather, proxy
from tests.placer.arrivals import bus, publish, report
from tests.placer.kube.objects import MEMORY
from tests.placer.placers import LEASE_S, Placers, free_lease, placers
from tests.servers.apiserver import ApiServer
from tests.servers.control_plane import ADMIN, control_plane
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until

pytestmark = pytest.mark.slow

AT_ONCE = 3
"""The number of placers in each state. Each placer needs seconds of a core to start."""
NODES = 4
PODS = 60
PAUSE_S = 0.01
"""Seconds between two rounds of reports. Without them, the reports alone keep two cores busy."""
BUSY = {"lease_s": LEASE_S}
"""For leaders that have to stay leaders. The others need no such Lease, and take a short one sooner."""
OWN = ("default", "kube-public", "kube-node-lease")
"""Namespaces, each with the Lease of one placer."""
SHARED = "kube-system"
"""The namespace of a Lease of which all placers but one wait for the end."""
NOBODY = "127.0.0.1:9"
"""An address at which no server listens."""


@pytest.fixture
async def all_of_them(
    tmp_path: Path, nats: EmbeddedServer, own_valkey: EmbeddedServer, apiserver: ApiServer
) -> AsyncIterator[Placers]:
    """Starts placers, each with a Lease of its own, so that each places."""
    settings = {"nats_url": nats.url, "redis_url": own_valkey.url, "kubeconfig": str(apiserver.kubeconfig())}
    for lease in (SHARED, *OWN):
        await free_lease(apiserver, lease)
    async with placers(tmp_path, lease_s="1", **settings) as running:
        yield running


async def start(running: Placers, until_line: str, **settings: str) -> None:
    """Start placers, and wait until each has logged a line."""
    for index in range(AT_ONCE):
        given = {"lease_namespace": OWN[index], **settings}
        await running.start(f"p{index}", **given)
    for placer in running.started:
        await placer.until(until_line)


async def end(running: Placers) -> None:
    """End all placers, each at another moment, and check their exit codes."""
    for placer in running.started:
        placer.process.terminate()
        await asyncio.sleep(random.uniform(0.0, 0.05))  # noqa: S311 - no secret; each placer ends at another moment
    assert [await placer.ended() for placer in running.started] == [0] * len(running.started)


async def test_before_nats_answers(all_of_them: Placers) -> None:
    """Placers that wait for NATS end with exit code 0."""
    await start(all_of_them, "nats is out of reach, retrying", nats_url=f"nats://{NOBODY}")
    await end(all_of_them)


async def test_before_redis_answers(all_of_them: Placers) -> None:
    """Leaders that have never reached Redis end with exit code 0."""
    await start(all_of_them, "lease taken", redis_url=f"redis://{NOBODY}")
    await end(all_of_them)


async def test_while_it_loads(all_of_them: Placers) -> None:
    """Placers end with exit code 0 at any moment between their start and their first decision."""
    await start(all_of_them, "http ready")
    await end(all_of_them)


async def test_while_it_follows(all_of_them: Placers) -> None:
    """A leader and its followers all end with exit code 0."""
    await start(all_of_them, "placer ready", lease_namespace=SHARED, **BUSY)
    await end(all_of_them)


@contextlib.asynccontextmanager
async def load(api: ApiServer, nats: EmbeddedServer, namespace: str) -> AsyncIterator[None]:
    """Pods to place, and hundreds of reports a second."""

    over = asyncio.Event()

    async def report_on() -> None:
        async with bus(nats) as jetstream:
            for seq in itertools.count(1):
                if over.is_set():
                    return
                await publish(jetstream, *(report(f"n{index}", seq) for index in range(NODES)))
                await asyncio.sleep(PAUSE_S)

    async def create() -> None:
        for index in range(PODS):
            await create_pod(api, namespace, pod_manifest(f"p{index}", {MEMORY: "64Mi"}))

    for index in range(NODES):
        await create_node(api, f"n{index}")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(report_on())
        tasks.create_task(create())
        yield
        over.set()


async def test_while_it_binds(
    all_of_them: Placers, apiserver: ApiServer, nats: EmbeddedServer, namespace: str
) -> None:
    """Placers end with exit code 0 in the middle of a burst of pods and reports."""
    async with load(apiserver, nats, namespace):
        await start(all_of_them, "placer ready", **BUSY)

        async def placed() -> bool:
            return any(placer.placed() for placer in all_of_them.started)

        await until(placed)
        await end(all_of_them)


async def test_while_redis_is_away(
    all_of_them: Placers,
    apiserver: ApiServer,
    nats: EmbeddedServer,
    own_valkey: EmbeddedServer,
    namespace: str,
) -> None:
    """Placers that lost Redis in the middle of a burst end with exit code 0."""
    async with load(apiserver, nats, namespace):
        await start(all_of_them, "the list is complete", **BUSY)
        await own_valkey.kill()
        for placer in all_of_them.started:
            await placer.until("reports wait for Redis")
        await end(all_of_them)


async def test_while_the_api_server_is_away(tmp_path: Path, all_of_them: Placers) -> None:
    """Leaders that lost the API server end with exit code 0."""
    async with control_plane(tmp_path / "cluster") as plane:
        await start(all_of_them, "lease taken", kubeconfig=str(plane.kubeconfig()))
        await plane.server.kill()
        for placer in all_of_them.started:
            await placer.until("lease not renewed, retrying")
        await end(all_of_them)


class _Slowest(random.Random):
    """Makes each request wait as long as the weather says."""

    def uniform(self, a: float, b: float) -> float:  # noqa: ARG002 - see the base class
        return b


@pytest.fixture
async def way(apiserver: ApiServer, tmp_path: Path) -> AsyncIterator[tuple[Proxy, Path]]:
    """A proxy before the API server, and a kubeconfig for it."""
    plane = apiserver.plane
    trusted = await asyncio.to_thread(ssl.create_default_context, cafile=plane.ca_file)
    async with proxy(plane.url, trusted, _Slowest()) as made:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": made.url}}],
            "users": [{"name": "u", "user": {"token": plane.tokens[ADMIN]}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        path = tmp_path / "by-proxy.kubeconfig"
        await asyncio.to_thread(path.write_text, json.dumps(config))
        yield made, path


@pytest.mark.parametrize("weather", [Weather(refused=1.0), Weather(slow_s=3600.0)], ids=["refuses", "stalls"])
async def test_while_the_api_server_refuses_or_stalls(
    all_of_them: Placers,
    apiserver: ApiServer,
    nats: EmbeddedServer,
    namespace: str,
    way: tuple[Proxy, Path],
    weather: Weather,
) -> None:
    """Leaders whose binds are answered with 429 and 500, or not at all, end with code 0 all the same."""
    made, kubeconfig = way
    async with load(apiserver, nats, namespace):
        await start(all_of_them, "lease taken", kubeconfig=str(kubeconfig), **BUSY)

        async def placed() -> bool:
            return any(placer.placed() for placer in all_of_them.started)

        await until(placed)
        made.weather = weather
        await asyncio.sleep(0.5)  # requests run into the weather
        await end(all_of_them)
    assert made.done or weather.slow_s
