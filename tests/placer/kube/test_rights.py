"""The front end needs no right beyond the documented ones."""

import asyncio
from collections.abc import Sequence
from functools import partial

from plimsoll.cli.demo.servers import EmbeddedServer
from plimsoll.kube.client import connect
from plimsoll.kube.lease import Lease
from plimsoll.placer_api.rpc import Resize
from tests.placer.kube.volumes.storage import (
    create_claim,
    create_class,
    create_user,
    create_volume,
    purge_storage,
    until_selected,
)
from tests.placer.kube.world import MEMORY, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until

RBAC = "rbac.authorization.k8s.io"
ROLE = "plimsoll-placer-for-a-test"
RULES = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch", "delete"]},
    {"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
    {
        "apiGroups": [""],
        "resources": ["persistentvolumeclaims", "persistentvolumes"],
        "verbs": ["list", "watch", "patch"],
    },
    {
        "apiGroups": ["storage.k8s.io"],
        "resources": [
            "storageclasses",
            "csinodes",
            "csidrivers",
            "csistoragecapacities",
            "volumeattachments",
        ],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "watch"]},
]
LEASE_RULES = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
]


async def grant(apiserver: ApiServer, path: str, kind: str, rules: Sequence[Object]) -> None:
    """Make a role of this kind with these rules, and give it to the placer's user."""
    await apiserver.must("POST", f"{path}/{kind.lower()}s", {"metadata": {"name": ROLE}, "rules": rules})
    binding = {
        "metadata": {"name": ROLE},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": ROLE},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": "plimsoll-placer"}],
    }
    await apiserver.must("POST", f"{path}/{kind.lower()}bindings", binding)


async def is_reserved(apiserver: ApiServer) -> bool:
    """Whether the volume belongs to a claim, and not to a name alone."""
    return "uid" in (await apiserver.get("/api/v1/persistentvolumes/disk"))["spec"]["claimRef"]


async def test_documented_rights_are_enough(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """With only the rights listed in `placer.kube`, pods are placed with volumes, refused, resized and preempted."""
    path = f"/apis/{RBAC}/v1"
    await grant(apiserver, path, "ClusterRole", RULES)
    try:
        async with scheduler(apiserver, valkey, namespace, user="plimsoll-placer") as world:
            await create_node(apiserver, "n1")
            await world.report("n1", 24)
            await create_pod(apiserver, namespace, pod_manifest("small", {MEMORY: "4Gi"}))
            await create_pod(apiserver, namespace, pod_manifest("large", {MEMORY: "40Gi"}))
            await create_class(apiserver, "local")
            reserved = {"namespace": namespace, "name": "by-hand"}
            await create_volume(apiserver, "disk", "local", claimRef=reserved)
            await create_class(apiserver, "made", "example.com")
            for name, of_class in (("by-hand", "local"), ("made", "made")):
                await create_claim(apiserver, namespace, name, of_class)
                await create_user(apiserver, namespace, name, name)
            await world.until_bound("small")
            await until(partial(is_reserved, apiserver))
            await until_selected(world, "made")
            await world.until_refused("large", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
            await world.events("small", "Scheduled")
            await world.events("large", "FailedScheduling")
            await world.front_end.resize(Resize(pod="small", namespace=namespace, gpu_memory="6Gi"))
            urgent = pod_manifest("urgent", {MEMORY: "20Gi"})
            urgent["spec"]["priorityClassName"] = "system-node-critical"
            await create_pod(apiserver, "kube-system", urgent)
            await world.events("small", "Preempted")
    finally:
        for kind in ("clusterrolebindings", "clusterroles"):
            await apiserver.must("DELETE", f"{path}/{kind}/{ROLE}")
        await purge_storage(apiserver)


async def test_documented_rights_are_enough_for_the_lease(apiserver: ApiServer, namespace: str) -> None:
    """With only the rights listed in `placer.kube`, the lease is made, renewed, given back and taken again."""
    await grant(apiserver, f"/apis/{RBAC}/v1/namespaces/{namespace}", "Role", LEASE_RULES)
    stored = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/plimsoll-placer"
    async with connect(apiserver.kubeconfig("plimsoll-placer")) as client:
        for identity in ("one", "two"):
            lease = Lease(client, namespace, "plimsoll-placer", identity)
            task = asyncio.create_task(lease.run())
            try:
                await lease.held.wait()
                version = (await apiserver.get(stored))["metadata"]["resourceVersion"]

                async def is_renewed(version: str = version) -> bool:
                    return bool((await apiserver.get(stored))["metadata"]["resourceVersion"] != version)

                await until(is_renewed)
            finally:
                task.cancel()
                await asyncio.wait([task])
            await lease.release()
            assert not (await apiserver.get(stored))["spec"].get("holderIdentity")
