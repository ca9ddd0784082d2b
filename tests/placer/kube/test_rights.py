"""The placer needs every right that the chart gives its account, and no other."""

import asyncio
from functools import partial
from pathlib import Path

from plimsoll.kube.client import connect
from plimsoll.kube.lease import Lease
from plimsoll.placer_api.rpc import Resize
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.deploy.accounts import Recorder, account
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import scheduler
from tests.placer.scheduler.plugins.volumes.storage import (
    create_claim,
    create_class,
    create_user,
    create_volume,
    purge_storage,
    until_selected,
)
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until

LEASES = "coordination.k8s.io/leases"


async def is_reserved(apiserver: ApiServer) -> bool:
    """Whether the volume belongs to a claim, and not to a name alone."""
    return "uid" in (await apiserver.get("/api/v1/persistentvolumes/disk"))["spec"]["claimRef"]


async def test_the_charts_rights_are_enough_and_needed(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """With its account alone, the placer places pods with volumes, refuses, resizes and preempts.

    It uses each right of its roles meanwhile. Those on the Lease have a test of their own.
    """
    calls = Recorder()
    async with account(apiserver, namespace, "placer", tmp_path) as placer:
        try:
            world_of = partial(scheduler, kubeconfig=placer.kubeconfig, wrap=calls.around)
            async with world_of(apiserver, valkey, namespace) as world:
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
                await world.parts.doors.resizer.resize(
                    Resize(pod="small", namespace=namespace, gpu_memory="6Gi")
                )
                urgent = pod_manifest("urgent", {MEMORY: "20Gi"})
                urgent["spec"]["priorityClassName"] = "system-node-critical"
                await create_pod(apiserver, "kube-system", urgent)
                await world.events("small", "Preempted")
        finally:
            await purge_storage(apiserver)
    # An event that repeats within minutes is counted by a patch: see test_renewal.
    told_again = {("patch", "events.k8s.io/events")}
    needed = calls.used | told_again
    assert needed == {one for one in placer.rights if one[1] != LEASES}


async def test_the_charts_rights_are_enough_for_the_lease(
    apiserver: ApiServer, namespace: str, tmp_path: Path
) -> None:
    """With its account alone, a placer makes the Lease, renews it, gives it back and takes it again."""
    stored = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/plimsoll-placer"
    calls = Recorder()
    async with (
        account(apiserver, namespace, "placer", tmp_path) as placer,
        connect(placer.kubeconfig) as client,
    ):
        for identity in ("one", "two"):
            lease = Lease(calls.around(client), namespace, "plimsoll-placer", identity)
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
    assert calls.used == {one for one in placer.rights if one[1] == LEASES}
