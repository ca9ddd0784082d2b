"""Webhooks of admission that fail or hang for the binds of one namespace hold up no pod of another."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from placer.scheduler.binding.cycle import SLOW_AT_MOST
from plimsoll.kube.transport import Body
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.lossy import LossyBinds
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import scheduler
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until, until_true

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextlib.asynccontextmanager
async def dead_webhook(api: ApiServer, namespace: str) -> AsyncIterator[None]:
    """While the context lasts, a webhook that nobody serves must admit each bind in this namespace."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    webhook = {
        "name": "dead.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [rule],
    }
    await api.must("POST", WEBHOOKS, {"metadata": {"name": "dead"}, "webhooks": [webhook]})
    path = f"/api/v1/namespaces/{namespace}/pods/nobody/binding?dryRun=All"
    probe = {"metadata": {"name": "nobody"}, "target": {"kind": "Node", "name": "n1"}}

    async def is_asked() -> bool:
        return (await api.call("POST", path, probe)).status == 500

    try:
        await until(is_asked)
        yield
    finally:
        await api.must("DELETE", f"{WEBHOOKS}/dead")


async def test_a_bind_whose_webhook_does_not_answer_is_refused_at_once(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The bind was surely not written: the pod says so, its room is free at once, and other pods go on."""
    other = f"{namespace}-other"
    await apiserver.must("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    async with scheduler(apiserver, valkey, namespace, binds_at_once=1) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        async with dead_webhook(apiserver, namespace):
            await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
            await world.until_refused("p", 'failed calling webhook "dead.example.com"')
            await create_pod(apiserver, other, pod_manifest("p", {MEMORY: "20Gi"}))
            await replace(world, namespace=other).until_bound("p")


@dataclass(slots=True)
class _HungBinds(LossyBinds):
    """Binds in this namespace get no answer until `release`.

    Attributes:
        namespace: of the pods.
        hung: the number of binds without an answer.
    """

    namespace: str = ""
    hung: int = 0
    release: asyncio.Event = field(default_factory=asyncio.Event)

    async def post(self, path: str, body: Body) -> bytes:
        if path.endswith("/binding") and f"/{self.namespace}/" in path:
            self.hung += 1
            await self.release.wait()
        return await self.real.post(path, body)


async def test_hung_binds_of_one_namespace_leave_places_to_others(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A webhook that hangs for one namespace holds up no pod of another, and its own pods are bound afterwards."""
    other = f"{namespace}-other"
    await apiserver.must("POST", "/api/v1/namespaces", {"metadata": {"name": other}})
    binds = _HungBinds(namespace=namespace)
    at_once = SLOW_AT_MOST + 1
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around, binds_at_once=at_once) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        for number in range(SLOW_AT_MOST):
            await create_pod(apiserver, namespace, pod_manifest(f"p{number}", {MEMORY: "1Gi"}))
        await until_true(lambda: world.parts.core.scheduler.binding.is_held_up(namespace))
        for number in range(SLOW_AT_MOST, 2 * at_once):
            await create_pod(apiserver, namespace, pod_manifest(f"p{number}", {MEMORY: "1Gi"}))
        await create_pod(apiserver, other, pod_manifest("p", {MEMORY: "1Gi"}))
        await replace(world, namespace=other).until_bound("p")
        assert binds.hung == SLOW_AT_MOST
        binds.release.set()
        for number in range(2 * at_once):
            await world.until_bound(f"p{number}")
