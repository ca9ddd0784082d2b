"""On a real API server, replicas with rules about other pods go where kube-scheduler would allow it."""

import asyncio
from collections import Counter
from typing import Any

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, scheduler
from tests.placer.scheduler.plugins.topology.rules import REQUIRED, spread
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


def replica(name: str, spec: Object, **labels: str) -> Object:
    """A replica of a Deployment, as its ReplicaSet would make it."""
    manifest = pod_manifest(name, {MEMORY: "1Gi"})
    manifest["metadata"]["labels"] = {"app": "x", **labels}
    manifest["spec"] |= spec
    return manifest


async def nodes(world: World, zones: dict[str, str]) -> None:
    """Make nodes with a GPU in these zones."""
    for name, zone in zones.items():
        await create_node(world.api, name, labels={ZONE: zone})
        await world.report(name, 24)


async def places(world: World, names: list[str]) -> list[str]:
    """The nodes of pods, once all have one."""
    return [(await world.until_bound(name))["spec"]["nodeName"] for name in names]


async def test_replicas_spread_over_zones_and_the_next_waits_for_the_full_zone(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Replicas that come together are counted at once: no zone ever has two more than another.

    `matchLabelKeys` leaves out the pods of the last rollout. Where a zone has no room, the next replica waits for it.
    """
    async with scheduler(apiserver, valkey, namespace) as world:
        zones = {"n1": "a", "n2": "a", "n3": "b", "n4": "c"}
        await nodes(world, zones)
        rule = spread("x", ZONE, matchLabelKeys=["pod-template-hash"])
        old = replica("old", {"nodeSelector": {HOST: "n1"}}, **{"pod-template-hash": "1"})
        await create_pod(apiserver, namespace, old)
        names = [f"p{number}" for number in range(6)]
        await asyncio.gather(
            *(
                create_pod(apiserver, namespace, replica(name, rule, **{"pod-template-hash": "2"}))
                for name in names
            )
        )
        assert Counter(zones[node] for node in await places(world, names)) == {"a": 2, "b": 2, "c": 2}
        await world.report("n4", 0)
        full = replica("next", rule, **{"pod-template-hash": "2"})
        await create_pod(apiserver, namespace, full)
        assert zones[(await world.until_bound("next"))["spec"]["nodeName"]] in "ab"
        for name in ("later", "last"):
            await create_pod(apiserver, namespace, replica(name, rule, **{"pod-template-hash": "2"}))
        await asyncio.gather(*(world.until_refused(name, SKEWED) for name in await waiting(world)))
        await world.report("n4", 20)
        await places(world, ["later", "last"])


SKEWED = "node(s) didn't match pod topology spread constraints"


async def waiting(world: World) -> list[str]:
    """The one of two late replicas that finds no place: the other filled up the zones with room."""
    for name in ("later", "last"):
        await world.until(
            name, lambda pod: bool(pod["spec"].get("nodeName") or pod["status"].get("conditions"))
        )
    pods: list[dict[str, Any]] = [await world.pod(name) for name in ("later", "last")]
    return [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]


async def test_tenants_do_not_share_a_zone(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """With `mismatchLabelKeys`, pods of one tenant share a zone, and pods of another tenant stay out of it."""
    async with scheduler(apiserver, valkey, namespace) as world:
        zones = {"n1": "a", "n2": "a", "n3": "b"}
        await nodes(world, zones)
        tenants = {"matchExpressions": [{"key": "tenant", "operator": "Exists"}]}
        term = {"topologyKey": ZONE, "labelSelector": tenants, "mismatchLabelKeys": ["tenant"]}
        rule = {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}
        first = replica("first", {**rule, "nodeSelector": {HOST: "n1"}}, tenant="t")
        await create_pod(apiserver, namespace, first)
        await world.until_bound("first")
        for name, tenant in (("second", "u"), ("third", "v")):
            await create_pod(apiserver, namespace, replica(name, rule, tenant=tenant))
            if name == "second":
                assert await places(world, [name]) == ["n3"]
        await world.until_refused("third", "3 node(s) didn't match pod anti-affinity rules")
        await create_pod(apiserver, namespace, replica("mate", rule, tenant="t"))
        (place,) = await places(world, ["mate"])
        assert zones[place] == "a"
