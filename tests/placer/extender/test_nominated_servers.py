"""Preemption by the placer and by a stock kube-scheduler in front of it, on a real API server: both keep the room.

No kubelet runs here, so a deleted pod stays, with its deletion timestamp, until the test ends it.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll.ids import PodUid
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.extender.front import (
    MEMORY,
    Between,
    front_pod,
    gpu_node,
    kube_scheduler,
    serving_front,
)
from tests.placer.kube.world import gpu_of, scheduler
from tests.placer.scheduler.preemption.test_servers import CLASSES, end, is_ending
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_pod, pod_manifest
from tests.servers.waiting import until_true

LACKS = "Insufficient plimsoll.dev/gpu-memory"


@pytest.fixture(autouse=True)
async def classes(apiserver: ApiServer) -> AsyncIterator[None]:
    """Priority classes."""
    values = {"held-low": 1, "held-mid": 5, "held-high": 10}
    for name, value in values.items():
        await apiserver.must("POST", CLASSES, {"metadata": {"name": name}, "value": value})
    yield
    for name in values:
        await apiserver.must("DELETE", f"{CLASSES}/{name}")


def of_class(priority: str, manifest: Object) -> Object:
    """The pod with this class; one that is deleted ends only after ten minutes."""
    manifest["spec"] |= {"priorityClassName": f"held-{priority}", "terminationGracePeriodSeconds": 600}
    return manifest


async def test_the_placer_keeps_the_gpu_for_which_kube_scheduler_preempts(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """kube-scheduler evicts a pod and nominates its own. The placer's lower pod does not get that GPU meanwhile."""
    between = Between()
    async with (
        scheduler(apiserver, valkey, namespace) as world,
        serving_front(world.parts, between),
        kube_scheduler(apiserver, tmp_path, between),
    ):
        await gpu_node(world, "n1", 24)
        await create_pod(apiserver, namespace, of_class("low", front_pod("victim", {MEMORY: "12Gi"})))
        await world.until_bound("victim")
        useful = of_class("high", front_pod("useful", {MEMORY: "20Gi"}))
        uid = PodUid((await create_pod(apiserver, namespace, useful))["metadata"]["uid"])
        ending = await world.until("victim", is_ending)
        stored = await world.until("useful", lambda pod: bool(pod["status"].get("nominatedNodeName")))
        assert stored["status"]["nominatedNodeName"] == "n1"
        nominations = world.parts.core.profile.cache.nominator
        await until_true(lambda: (own := nominations.find(uid)) is not None and own.booking is not None)
        await create_pod(apiserver, namespace, of_class("mid", pod_manifest("thief", {MEMORY: "8Gi"})))
        await world.until_refused("thief", LACKS)
        victim = PodUid(ending["metadata"]["uid"])

        async def freed(_: Object) -> None:
            await until_true(lambda: world.ledger.booking(victim) is None)

        # A kube-scheduler that sees the end before the placer does would try in vain and give its nomination up.
        between.before["filter"] = freed
        await end(apiserver, namespace, "victim")
        assert gpu_of(await world.until_bound("useful")) == ("n1", "GPU-n1-0")
        assert "nodeName" not in (await world.pod("thief"))["spec"]
        await until_true(lambda: nominations.find(uid) is None)
