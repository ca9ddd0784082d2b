"""A pod with the inline volume goes only to nodes whose broker serves it."""

from collections.abc import AsyncIterator

import pytest

from plimsoll.broker.volume import DRIVER, csi_volume
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, scheduler
from tests.placer.scheduler.plugins.volumes.storage import STORAGE, purge_storage
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until_true

REFUSED = "0/2 nodes are available: 2 plimsoll.dev CSI driver is not installed on the node."


@pytest.fixture
async def world(apiserver: ApiServer, valkey: EmbeddedServer, namespace: str) -> AsyncIterator[World]:
    """A scheduler with nodes `a` and `b`; the broker of neither serves volumes."""
    async with scheduler(apiserver, valkey, namespace) as made:
        for name in ("a", "b"):
            await create_node(made.api, name)
            await made.report(name, 24)
        yield made
    await purge_storage(apiserver)


async def create_user(world: World, name: str) -> None:
    """Create a pod with the inline volume."""
    manifest = pod_manifest(name, {MEMORY: "1Gi"})
    manifest["spec"]["volumes"] = [csi_volume("plimsoll", "main")]
    await create_pod(world.api, world.namespace, manifest)


async def test_a_pod_waits_for_a_node_with_the_driver(world: World) -> None:
    """Only the volume ties a pod to the driver, and a driver that comes wakes the pod; other drivers do not help."""
    await create_user(world, "user")
    await world.until_refused("user", REFUSED)
    await create_pod(world.api, world.namespace, pod_manifest("plain", {MEMORY: "1Gi"}))
    await world.until_bound("plain")
    path = f"{STORAGE}/csinodes"
    for node, driver in (("a", "other.example.com"), ("b", DRIVER)):
        spec = {"drivers": [{"name": driver, "nodeID": node}]}
        await world.api.must("POST", path, {"metadata": {"name": node}, "spec": spec})
    assert (await world.until_bound("user"))["spec"]["nodeName"] == "b"
    await world.api.must("PATCH", f"{path}/b", {"spec": {"drivers": []}})
    serving = world.parts.core.profile.volumes.store.serving
    await until_true(lambda: not serving)
    await create_user(world, "later")
    await world.until_refused("later", REFUSED)
    await world.api.must("DELETE", f"{path}/a")
    spec = {"drivers": [{"name": DRIVER, "nodeID": "a"}]}
    await world.api.must("POST", path, {"metadata": {"name": "a"}, "spec": spec})
    assert (await world.until_bound("later"))["spec"]["nodeName"] == "a"
