"""`/readyz` follows what is live now, and names what is missing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import aiohttp
import pytest

from placer.cluster_link import ClusterLink
from placer.kube.parts import KubeParts
from placer.readiness import GRACE_S
from plimsoll.kube.client import connect
from plimsoll.kube.lease import Lease
from plimsoll.kube.lease_rules import LeaseTiming
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import eventually
from tests.placer.placers import Placer, Placers, placers
from tests.servers.apiserver import ApiServer
from tests.servers.control_plane import ControlPlane, control_plane, until_ready
from tests.servers.waiting import until

READY = (200, "ok\n")


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[ControlPlane]:
    """An API server for one test, which kills it."""
    async with control_plane(tmp_path / "cluster") as running:
        yield running


@pytest.fixture
async def started(
    tmp_path: Path, own_nats: EmbeddedServer, valkey: EmbeddedServer, plane: ControlPlane
) -> AsyncIterator[Placers]:
    """Starts placers over servers that a test may kill."""
    given = {"nats_url": own_nats.url, "redis_url": valkey.url, "kubeconfig": str(plane.kubeconfig())}
    async with placers(tmp_path, **given) as running:
        yield running


async def until_missing(part: Placer, *texts: str) -> None:
    """Wait until the placer is not ready, and names all of these."""

    async def look() -> bool:
        status, text = await part.readiness()
        return status == 503 and all(one in text for one in texts)

    await until(look)


async def test_leader_and_follower_are_ready_while_everything_is_live(
    started: Placers, own_nats: EmbeddedServer, plane: ControlPlane
) -> None:
    """Each server that goes away makes both placers unready, with its name; once it is back, both are ready again."""
    both = [await started.start("left"), await started.start("right")]
    for part in both:
        await eventually(part.readiness, READY)
    await own_nats.kill()
    for part in both:
        await until_missing(part, "NATS is out of reach", "reports are not being read")
    await own_nats.start()
    for part in both:
        await eventually(part.readiness, READY)
    await plane.server.kill()
    for part in both:
        await until_missing(
            part,
            "a watch of pods, nodes or volumes is broken",
            "the API server does not answer about the lease",
        )
    await plane.server.start()
    await until_ready(plane)
    for part in both:
        await until_ready_or_replaced(part, started)


async def until_ready_or_replaced(part: Placer, started: Placers) -> None:
    """Wait until the placer is ready; a leader that lost the lease in the outage has ended, and is started anew."""

    async def look() -> bool:
        if part.process.returncode is not None:
            return True
        try:
            return await part.readiness() == READY
        except aiohttp.ClientError:  # its port closes some time before its process has ended
            return False

    await until(look)
    if part.process.returncode is not None:
        assert part.process.returncode == 1
        again = await started.start(f"{part.name}-again")
        await eventually(again.readiness, READY)


class Watched:
    """The parts of a front end whose watches broke some seconds ago."""

    def __init__(self, broken_s: float) -> None:
        self.synced = asyncio.Event()
        self.synced.set()
        self.watches = self
        self._broken_s = broken_s

    def broken_s(self) -> float:
        """See `Watches`."""
        return self._broken_s


@pytest.mark.parametrize(
    ("lease_s", "broken_s", "silent_s", "missing"),
    [
        (1, 4.9, 4.9, []),
        (1, 5.1, 0, ["a watch of pods, nodes or volumes is broken"]),
        (1, 0, 5.1, ["the API server does not answer about the lease"]),
        (30, 0, 20.9, []),
        (30, 0, 21.1, ["the API server does not answer about the lease"]),
    ],
)
async def test_short_gaps_are_no_outage(
    apiserver: ApiServer, lease_s: int, broken_s: float, silent_s: float, missing: list[str]
) -> None:
    """A gap of up to 5 s does not make a placer unready, nor does a Lease until the leader counts it as void."""
    now_s = 1000.0
    free = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "of-a-test"}}
    await apiserver.call("POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", free)
    async with connect(apiserver.kubeconfig()) as transport:
        lease = Lease(transport, "default", "of-a-test", "me", LeaseTiming(lease_s), clock=lambda: now_s)
        with contextlib.suppress(asyncio.CancelledError):
            task = asyncio.create_task(lease.run())
            await lease.held.wait()
            task.cancel()
            await task
        now_s += silent_s
        parts = cast("KubeParts", Watched(broken_s))
        assert ClusterLink(parts=parts, lease=lease).missing(GRACE_S) == missing


async def test_placer_without_nats_names_it(started: Placers, own_nats: EmbeddedServer) -> None:
    """A placer that cannot reach NATS is not ready, and names NATS and the last reports."""
    await own_nats.kill()
    part = await started.start("left")
    await until_missing(part, "NATS is out of reach", "the last reports are still being read")
