"""The controller on a real API server, with the chart's rights alone; tests play kubelet, scheduler and placer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from placer.pool.controller import Controller
from placer.pool.core.planner import Planner
from placer.pool.core.release_policy import ReleasePolicy
from placer.pool.events import EventRecorder
from placer.pool.metrics import PoolMetrics
from placer.pool.reservations import Template
from plimsoll.ids import NodeName
from plimsoll.kube.lease import Lease
from plimsoll.kube.lease_rules import LeaseTiming
from plimsoll.kube.transport import Transport
from plimsoll.pool import GPU, RELEASE, acquiring_on
from tests.deploy.accounts import RIGHTS, Recorder, allowed, kubeconfig_of, recorded
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until
from tools.chart import render

MEMORY = "plimsoll.dev/gpu-memory"
LEASES = "coordination.k8s.io/leases"


@dataclass
class Scene:
    """A controller's surroundings."""

    api: ApiServer
    users: str
    pool: str
    rights: frozenset[tuple[str, str]]
    kubeconfig: Path

    @contextlib.asynccontextmanager
    async def controller(self, calls: Recorder, name: str = "one") -> AsyncIterator[Controller]:
        """Run a controller until the context ends."""
        async with recorded(self.kubeconfig, calls) as transport:
            made = self._made(transport, name)
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(made.run()), tasks.create_task(self._lead(made))]
                try:
                    yield made
                finally:
                    for task in running:
                        task.cancel()
            await made.lease.release()

    def _made(self, transport: Transport, name: str) -> Controller:
        lease = Lease(transport, self.pool, "plimsoll-pool", name, LeaseTiming(15))
        template = Template(self.pool, "image")
        return Controller(
            transport,
            lease,
            template,
            Planner(ReleasePolicy(), 60),
            EventRecorder(transport, self.pool, name),
            PoolMetrics(),
        )

    async def _lead(self, made: Controller) -> None:
        await made.synced.wait()
        await made.lease.run()

    async def reservations(self) -> list[Object]:
        """All reservations."""
        found: list[Object] = (await self.api.get(f"/api/v1/namespaces/{self.pool}/pods"))["items"]
        return found

    async def one(self) -> Object | None:
        """The only reservation; None for none or several."""
        found = await self.reservations()
        return found[0] if len(found) == 1 else None

    async def run_reservation(self, uuid: str) -> Object:
        """Play scheduler and kubelet for the only reservation: it gets this card."""
        made = await until(self.one)
        assert made is not None
        path = f"/api/v1/namespaces/{self.pool}/pods/{made['metadata']['name']}"
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        name = {"name": made["metadata"]["name"]}
        await self.api.must("POST", f"{path}/binding", {"metadata": name, "target": target})
        ended = {"terminated": {"exitCode": 0, "message": uuid}}
        card = {"name": "card", "state": ended, "ready": True, "restartCount": 0, "image": "i", "imageID": ""}
        status = {"phase": "Running", "initContainerStatuses": [card]}
        await self.api.must("PATCH", f"{path}/status", {"status": status})
        return made

    async def annotation(self, name: str) -> str | None:
        """An annotation of the only reservation."""
        found = await self.one()
        return None if found is None else found["metadata"]["annotations"].get(name)

    async def wait_for_gpu(self, name: str, node: str = "n1") -> None:
        """A pod waits, as the placer says."""
        await create_pod(self.api, self.users, pod_manifest(name, {MEMORY: "1Gi"}))
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": f"0/1 nodes are available: 1 {acquiring_on(NodeName(node))}.",
        }
        path = f"/api/v1/namespaces/{self.users}/pods/{name}/status"
        await self.api.must("PATCH", path, {"status": {"conditions": [condition]}})

    async def told(self, reason: str) -> list[Object]:
        """The events of a reason, in both namespaces."""
        found: list[Object] = []
        for namespace in (self.users, self.pool):
            found += (await self.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"))["items"]
        return [one for one in found if one["reason"] == reason]


@pytest.fixture
async def scene(apiserver: ApiServer, namespace: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """A node with a device plugin's GPU, and the chart's account of the controller."""
    pool = f"{namespace}-pool"
    manifests = await asyncio.to_thread(
        partial(render, {"pool": {"enabled": True, "namespace": pool}}, namespace=namespace)
    )
    objects = [one for one in yaml.safe_load_all(manifests["pool/rbac.yaml"]) if one]
    text = yaml.safe_dump_all(objects)
    await apiserver.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", stdin=text)
    await create_node(apiserver, "n1", allocatable={"nvidia.com/gpu": "2"})
    try:
        kubeconfig = await kubeconfig_of(apiserver, namespace, "plimsoll-pool", tmp_path)
        rights = allowed(one for one in objects if one["kind"] in RIGHTS)
        yield Scene(apiserver, namespace, pool, rights, kubeconfig)
    finally:
        rest = yaml.safe_dump_all(one for one in objects if one["kind"] != "Namespace")
        await apiserver.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=rest)
        await apiserver.purge_namespace(pool)


async def test_the_charts_rights_are_enough_and_needed(scene: Scene) -> None:
    """A card joins and leaves, a lost card's pod gets an event, and each right of the roles is used meanwhile."""
    calls = Recorder()
    async with scene.controller(calls):
        await scene.wait_for_gpu("a")
        await scene.run_reservation("GPU-1")
        assert await until(partial(scene.annotation, GPU)) == "GPU-1"
        await until(partial(scene.told, "GpuAcquired"))
        await scene.api.must("DELETE", f"/api/v1/namespaces/{scene.users}/pods/a?gracePeriodSeconds=0")
        assert await until(partial(scene.annotation, RELEASE)) == "asked"
        [asked] = await scene.reservations()
        path = f"/api/v1/namespaces/{scene.pool}/pods/{asked['metadata']['name']}"
        granted = {"metadata": {"annotations": {RELEASE: "granted"}}}
        await scene.api.must("PATCH", path, granted)
        await until(partial(scene.told, "GpuReleased"))
        leaving = await scene.one()
        assert leaving is None or "deletionTimestamp" in leaving["metadata"]
        await scene.api.must("DELETE", f"{path}?gracePeriodSeconds=0")
        used: dict[str, Any] = pod_manifest("user", {MEMORY: "1Gi"})
        used["metadata"]["annotations"] = {"gpus.plimsoll.dev/main": "GPU-2"}
        used["spec"]["nodeName"] = "n1"
        await create_pod(scene.api, scene.users, used)
        [lost] = await until(partial(scene.told, "ReservationLost"))
        assert lost["regarding"]["name"] == "user"
        await scene.run_reservation("GPU-2")
        await until(partial(scene.told, "ReservationRestored"))
    assert calls.used == set(scene.rights), "rights beside uses"


@pytest.mark.parametrize("version", ["1.32", "1.36"])
def test_a_reservation_is_a_pod_that_kubernetes_knows(version: str) -> None:
    """Without an unknown field, with a GPU for each container, and with nothing that `restricted` forbids."""
    template = Template("pool", "image", "Never", ("secret",), "nvidia", "plimsoll")
    pod: Object = template.pod("gpu-0.n1", NodeName("n1"))
    kubernetes_validate.validate(pod, version, strict=True)
    for container in (*pod["spec"]["initContainers"], *pod["spec"]["containers"]):
        assert container["resources"] == {"limits": {"nvidia.com/gpu": "1"}}
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["spec"]["tolerations"] == [{"operator": "Exists"}]


async def test_a_refused_step_is_tried_again(scene: Scene) -> None:
    """A quota allows one reservation. The second is tried again and again, and made once the quota is gone."""
    await create_node(scene.api, "n2", allocatable={"nvidia.com/gpu": "1"})
    quota = {"metadata": {"name": "one"}, "spec": {"hard": {"pods": "1"}}}
    path = f"/api/v1/namespaces/{scene.pool}/resourcequotas"
    await scene.api.must("POST", path, quota)
    used = {"status": {"hard": {"pods": "1"}, "used": {"pods": "0"}}}
    await scene.api.must("PATCH", f"{path}/one/status", used)  # its controller does not run here
    async with scene.controller(Recorder()) as controller:
        await scene.wait_for_gpu("a")
        await until(scene.one)
        await scene.wait_for_gpu("b", "n2")
        await until(partial(_failed_twice, controller))
        assert len(await scene.reservations()) == 1
        await scene.api.must("DELETE", f"{path}/one")
        await until(partial(_has_two, scene))


async def _failed_twice(controller: Controller) -> bool:
    failures = controller.metrics.registry.get_sample_value("plimsoll_pool_write_failures_total")
    return failures is not None and failures >= 2


async def _has_two(scene: Scene) -> bool:
    return len(await scene.reservations()) == 2


async def test_a_second_controller_waits_and_goes_on(scene: Scene) -> None:
    """It makes nothing while the first one has the Lease, and finds the same reservation once it has it itself."""
    async with scene.controller(Recorder(), "two") as second_made:
        await until(lambda: _held(second_made))
        async with scene.controller(Recorder(), "three") as third:
            await scene.wait_for_gpu("a")
            await scene.run_reservation("GPU-1")
            assert await until(partial(scene.annotation, GPU)) == "GPU-1"
            assert not third.lease.held.is_set()
    before = await scene.one()
    async with scene.controller(Recorder(), "four") as fourth:
        await until(lambda: _held(fourth))
        await scene.api.must("DELETE", f"/api/v1/namespaces/{scene.users}/pods/a?gracePeriodSeconds=0")
        assert await until(partial(scene.annotation, RELEASE)) == "asked"
        after = await scene.one()
    assert before is not None
    assert after is not None
    assert before["metadata"]["uid"] == after["metadata"]["uid"]


async def _held(controller: Controller) -> bool:
    return controller.lease.is_held()
