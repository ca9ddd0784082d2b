"""If a server of the scheduler dies and comes back, every pod is placed once and no card is overfull."""

import asyncio
import contextlib
from collections import Counter

import pytest

from placer.scheduler.event_handlers.watches import TIMING
from placer.stores.scores import ScoresAwayError
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import gpu_of, scheduler
from tests.placer.listed import listed_scores
from tests.servers.apiserver import ApiServer
from tests.servers.control_plane import until_ready
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until

PODS = 40


async def test_burst_through_a_killed_api_server_is_placed_once_and_fits(
    own_apiserver: ApiServer, valkey: EmbeddedServer
) -> None:
    """Binds that a SIGKILL cut off are found by reading or sent again, and no GPU is promised too much."""
    async with scheduler(own_apiserver, valkey, "default") as world:
        for name in ("n1", "n2"):
            await create_node(own_apiserver, name)
            await world.report(name, 24, 24)
        manifests = [pod_manifest(f"p{index}", {MEMORY: "2Gi"}) for index in range(PODS)]
        first, rest = manifests[: PODS // 2], manifests[PODS // 2 :]
        await asyncio.gather(*(create_pod(own_apiserver, "default", manifest) for manifest in first))
        await own_apiserver.plane.server.kill()  # The kill comes while the burst is being bound.
        await own_apiserver.plane.server.start()
        await until_ready(own_apiserver.plane)
        await asyncio.gather(*(create_pod(own_apiserver, "default", manifest) for manifest in rest))

        async def look() -> list[tuple[str, str]] | None:
            pods = (await own_apiserver.get("/api/v1/namespaces/default/pods"))["items"]
            return [gpu_of(pod) for pod in pods] if all("nodeName" in pod["spec"] for pod in pods) else None

        places = await until(look)
        assert places is not None
        assert sum(Counter(places).values()) == PODS
        assert max(Counter(places).values()) <= 12
        assert len({one.pod for one in world.ledger.bookings()}) == PODS
        told = Counter(placement.name for placement in world.published.bound)
        assert max(told.values()) == 1


def test_watches_of_a_placer_are_tried_again_within_two_seconds() -> None:
    """However long an API server was away, a placer's watches wait for 2 s at most."""
    pauses = TIMING.pauses()
    assert max(pauses.next_s() for _ in range(100)) <= 2


async def test_pods_are_placed_while_redis_is_away_and_the_list_has_them_when_it_is_back(
    apiserver: ApiServer, own_valkey: EmbeddedServer, namespace: str
) -> None:
    """Pods with and without a GPU are placed while Redis is dead; its list then follows promises and reports."""
    async with scheduler(apiserver, own_valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await own_valkey.kill()
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "18Gi"}))
        assert gpu_of(await world.until_bound("p")) == ("n1", "GPU-n1-0")
        await create_pod(apiserver, namespace, pod_manifest("plain"))
        await world.until_bound("plain")
        assert world.published.refused == []
        await own_valkey.start()

        async def listed() -> bool:
            with contextlib.suppress(ScoresAwayError):
                return (await listed_scores(world.scores))[0] == {"n1": pytest.approx(0.25, abs=1e-4)}
            return False

        await until(listed)
