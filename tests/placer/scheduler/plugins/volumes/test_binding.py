"""Pods with claims on a real API server, with Kubernetes' own controllers of claims and a provisioner of the test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, condition, scheduler
from tests.placer.scheduler.plugins.volumes.storage import (
    CORE,
    DRIVER,
    HOSTNAME,
    ZONE,
    Provisioner,
    binding_controllers,
    create_claim,
    create_class,
    create_user,
    create_volume,
    get_claim,
    until_selected,
)
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until


@pytest.fixture(autouse=True)
async def controlled(apiserver: ApiServer, namespace: str, tmp_path: Path) -> AsyncIterator[None]:
    """Kubernetes' own controllers of claims run during each test."""
    assert namespace
    async with binding_controllers(apiserver, tmp_path / "controllers"):
        yield


@pytest.fixture
async def world(apiserver: ApiServer, valkey: EmbeddedServer, namespace: str) -> AsyncIterator[World]:
    """A scheduler with two nodes in two zones."""
    async with scheduler(apiserver, valkey, namespace) as made:
        await two_zones(made)
        yield made


async def two_zones(world: World) -> None:
    """Make node `a` in zone `za` and node `b` in zone `zb`, each with a GPU."""
    for name in ("a", "b"):
        await create_node(world.api, name, labels={ZONE: f"z{name}"})
        await world.report(name, 24)


async def test_replicas_with_local_volumes_go_to_the_nodes_of_their_volumes(world: World) -> None:
    """Each replica gets the smallest local volume that is large enough, and its node; a third waits."""
    api, namespace = world.api, world.namespace
    await create_class(api, "local")
    await create_volume(api, "local-a", "local", size="2Gi", label=(HOSTNAME, "a"))
    await create_volume(api, "local-b", "local", size="5Gi", label=(HOSTNAME, "b"))
    for index, size in enumerate(("4Gi", "1Gi", "1Gi")):
        await create_claim(api, namespace, f"data-{index}", "local", size=size)
        await create_user(api, namespace, f"web-{index}", f"data-{index}")
        if index < 2:
            await world.until_bound(f"web-{index}")
    nodes = [(await world.pod(f"web-{index}"))["spec"]["nodeName"] for index in range(2)]
    assert nodes == ["b", "a"]
    claim = await get_claim(api, namespace, "data-1")
    assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", "local-a")
    text = "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    await world.until_refused("web-2", text)
    await create_volume(api, "late", "local", label=(HOSTNAME, "b"))
    assert (await world.until_bound("web-2"))["spec"]["nodeName"] == "b"


async def test_replicas_with_zonal_volumes_stay_in_the_zones_of_their_volumes(world: World) -> None:
    """A provisioner makes volumes for the selected nodes; a replica that comes back goes to its volume's zone."""
    api, namespace = world.api, world.namespace
    await create_class(api, "zonal", DRIVER, zones=["zb"])
    async with Provisioner(api, namespace).running():
        for index in range(3):
            await create_claim(api, namespace, f"data-{index}", "zonal")
            await create_user(api, namespace, f"web-{index}", f"data-{index}")
        for index in range(3):
            assert (await world.until_bound(f"web-{index}"))["spec"]["nodeName"] == "b"
    await api.must("DELETE", f"{CORE}/namespaces/{namespace}/pods/web-0?gracePeriodSeconds=0")
    await world.change_node("b", {"spec": {"unschedulable": True}})
    await create_user(api, namespace, "web-0", "data-0")
    text = "1 node(s) didn't match PersistentVolume's node affinity, 1 node(s) were unschedulable."
    await world.until_refused("web-0", text)
    await world.change_node("b", {"spec": {"unschedulable": False}})
    assert (await world.until_bound("web-0"))["spec"]["nodeName"] == "b"


async def test_failed_provisioning_is_tried_again(world: World) -> None:
    """A provisioner that takes the selected node back frees the pod's place, and the pod is decided anew."""
    api, namespace = world.api, world.namespace
    await create_class(api, "zonal", DRIVER)
    provisioner = Provisioner(api, namespace, fails={"data"})
    async with provisioner.running():
        await create_claim(api, namespace, "data", "zonal")
        await create_user(api, namespace, "web", "data")
        await world.until_bound("web")
    events = await world.events("web", "FailedScheduling")
    note = 'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"'
    # The pod may be tried before the watches of nodes, classes and claims have shown theirs.
    assert [event["note"] for event in events].count(note) == 1


async def test_pod_waits_for_a_claim_that_is_missing_and_then_unbound(world: World) -> None:
    """A pod says which claim is missing, and is placed as soon as the claim is bound."""
    api, namespace = world.api, world.namespace
    await create_class(api, "now", mode="Immediate")
    await create_user(api, namespace, "web", "data")
    await world.until_refused("web", '0/2 nodes are available: persistentvolumeclaim "data" not found.')
    await create_claim(api, namespace, "data", "now")
    await world.until_refused("web", "available: pod has unbound immediate PersistentVolumeClaims.")
    await create_volume(api, "disk", "now", label=(ZONE, "za"))
    assert (await world.until_bound("web"))["spec"]["nodeName"] == "a"


async def test_ephemeral_volume_belongs_to_its_pod(world: World) -> None:
    """A pod with an ephemeral volume waits for its claim, and a claim of somebody else is not used."""
    api, namespace = world.api, world.namespace
    await create_class(api, "zonal", DRIVER)
    await create_claim(api, namespace, "thief-scratch", "zonal")
    async with Provisioner(api, namespace).running():
        for name in ("good", "thief"):
            pod = pod_manifest(name, {MEMORY: "1Gi"})
            template = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "zonal",
                "resources": {"requests": {"storage": "1Gi"}},
            }
            ephemeral = {"volumeClaimTemplate": {"spec": template}}
            pod["spec"]["volumes"] = [{"name": "scratch", "ephemeral": ephemeral}]
            await create_pod(api, namespace, pod)
        await world.until_bound("good")
    where = f"PVC {namespace}/thief-scratch was not created for pod {namespace}/thief (pod is not owner)"
    await world.until_refused("thief", where)


async def test_pods_go_on_while_others_wait_for_volumes(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A claim that nobody provisions times out and frees its pod's room. No other pod waits for it."""
    async with scheduler(apiserver, valkey, namespace, binds_at_once=1, volumes_s=3) as world:
        await two_zones(world)
        await create_class(apiserver, "zonal", DRIVER)
        for name in ("slow-0", "slow-1"):
            await create_claim(apiserver, namespace, name, "zonal")
            await create_user(apiserver, namespace, name, name, memory="20Gi")
            await until_selected(world, name)
        await create_pod(apiserver, namespace, pod_manifest("quick", {MEMORY: "1Gi"}))
        await world.until_bound("quick")
        text = "binding volumes: context deadline exceeded; claims not bound within 3 s: slow-0"
        assert condition(await world.until_refused("slow-0", text))["reason"] == "SchedulerError"
        async with Provisioner(apiserver, namespace).running():
            for name in ("slow-0", "slow-1"):
                await world.until_bound(name)


async def test_pod_deleted_during_the_wait_frees_its_room(world: World) -> None:
    """A pod that is deleted while its claim is provisioned holds no room, and no other claim of its is written."""
    api, namespace = world.api, world.namespace
    await create_class(api, "zonal", DRIVER)
    await create_claim(api, namespace, "data", "zonal")
    await create_user(api, namespace, "web", "data", memory="20Gi")
    await until_selected(world, "data")
    await api.must("DELETE", f"{CORE}/namespaces/{namespace}/pods/web?gracePeriodSeconds=0")

    async def is_free() -> bool:
        return not world.ledger.bookings() and not world.parts.core.claims.binder._by_pod

    await until(is_free)


async def test_next_placer_goes_on_where_the_last_one_waited(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A placer that is restarted while claims are provisioned keeps the selected node, and binds the pod there."""
    async with scheduler(apiserver, valkey, namespace) as first:
        await two_zones(first)
        await create_class(apiserver, "zonal", DRIVER)
        await create_claim(apiserver, namespace, "data", "zonal")
        await create_user(apiserver, namespace, "web", "data")
        node = await until_selected(first, "data")
    async with scheduler(apiserver, valkey, namespace) as second:
        for name in ("a", "b"):
            await second.report(name, 24)
        async with Provisioner(apiserver, namespace).running():
            assert (await second.until_bound("web"))["spec"]["nodeName"] == node
