"""The broker names the GPUs of the pool's reservations, on a real API server with the chart's account and policy.

The kubelet is a gRPC server with its real messages. The real one is in the tests of a whole node.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import grpc.aio
import pytest
import yaml

from hook.broker import pods
from hook.broker.engine import Engine
from hook.broker.layouts import Layouts
from placer.pool.reservations import Template
from plimsoll.ids import NodeName
from plimsoll.kube.client import KubeClient, connect
from plimsoll.kube.transport import ApiError, Body, PatchKind
from plimsoll.pool import CARD, DEVICE, GPU, RELEASE
from tests.deploy.accounts import RIGHTS, kubeconfig_of
from tests.node.kubelet_api import PODS
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until
from tools.chart import render

pytestmark = pytest.mark.usefixtures("grpc_stays")

_Untyped = Any
"""An object of gRPC or protobuf, which ship no types."""


@dataclass(slots=True)
class Kubelet:
    """Lists devices.

    Attributes:
        socket: its path.
        given: each pod and container with the devices that it has, as the kubelet lists them.
        questions: the number of lists so far.
    """

    socket: Path
    given: list[tuple[Object, str, str]] = field(default_factory=list)
    questions: int = 0

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer until the context ends."""
        server = grpc.aio.server()
        method = grpc.unary_unary_rpc_method_handler(
            self._list,
            request_deserializer=PODS["ListPodResourcesRequest"].FromString,
            response_serializer=PODS["ListPodResourcesResponse"].SerializeToString,
        )
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", {"List": method})
        server.add_generic_rpc_handlers([service])
        server.add_insecure_port(f"unix:{self.socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(0)

    async def _list(self, _: _Untyped, __: _Untyped) -> _Untyped:
        self.questions += 1
        found = []
        for pod, container, device in self.given:
            devices = PODS["ContainerDevices"](resource_name=DEVICE, device_ids=[device])
            has = PODS["ContainerResources"](name=container, devices=[devices])
            named = pod["metadata"]
            found.append(
                PODS["PodResources"](name=named["name"], namespace=named["namespace"], containers=[has])
            )
        return PODS["ListPodResourcesResponse"](pod_resources=found)


@dataclass(frozen=True, slots=True)
class Scene:
    """A broker that follows the pods of `n1`, with the chart's account.

    Attributes:
        pool: the namespace of reservations.
        kubelet: that of `n1`.
        kubeconfig: with the token of the broker's pod on `n1`.
    """

    api: ApiServer
    pool: str
    kubelet: Kubelet
    kubeconfig: Path

    @contextlib.asynccontextmanager
    async def broker(self) -> AsyncIterator[None]:
        """Follow pods until the context ends."""
        pool = pods.Pool(self.pool, self.kubelet.socket)
        following = pods.follow_pods(
            cast("Engine", Idle()), NodeName("n1"), str(self.kubeconfig), Layouts(), pool=pool
        )
        task = asyncio.create_task(following)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def reserve(self, name: str = "gpu-0.n1", node: str = "n1") -> Object:
        """A reservation as the controller makes it, that kube-scheduler has bound."""
        manifest = Template(self.pool, "image").pod(name, NodeName(node))
        made = await self.api.must("POST", f"/api/v1/namespaces/{self.pool}/pods", manifest)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"metadata": {"name": name}, "target": target}
        await self.api.must("POST", f"{self.path(name)}/binding", binding)
        return made

    def path(self, name: str) -> str:
        """The API path of a pod in the pool's namespace."""
        return f"/api/v1/namespaces/{self.pool}/pods/{name}"

    async def card(self, name: str = "gpu-0.n1") -> str | None:
        """The GPU that the broker named on a reservation."""
        pod = await self.api.get(self.path(name))
        found: str | None = pod["metadata"]["annotations"].get(CARD)
        return found

    async def until_asked(self, more: int = 3) -> None:
        """Wait until the broker has asked the kubelet this many times more."""
        wanted = self.kubelet.questions + more

        async def asked() -> bool:
            return self.kubelet.questions >= wanted

        await until(asked)


class Idle:
    """An engine for pods without GPUs of Plimsoll's."""

    async def describe(self) -> Object:
        """Nothing is registered."""
        return cast("Object", _Described())


class _Described:
    containers = ()


@pytest.fixture
async def scene(apiserver: ApiServer, namespace: str, tmp_path: Path) -> AsyncIterator[Scene]:
    """The broker's account with the rights and the policy of a chart that has a pool."""
    pool = f"{namespace}-pool"
    values = {"pool": {"enabled": True, "namespace": pool}}
    rendered = await asyncio.to_thread(partial(render, values, namespace=namespace))
    wanted = (*RIGHTS, "Namespace", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    objects = [
        one
        for name in ("node/broker.yaml", "pool/rbac.yaml", "policies/broker.yaml")
        for one in yaml.safe_load_all(rendered[name])
        if one and one["kind"] in wanted
    ]
    text = yaml.safe_dump_all(objects)
    await apiserver.kubectl("apply", "--server-side", "--validate=strict", "--filename=-", stdin=text)
    try:
        for node in ("n1", "n2"):
            await create_node(apiserver, node, allocatable={DEVICE: "2"})
        part = pod_manifest("broker", scheduler="default-scheduler")
        part["spec"] |= {"serviceAccountName": "plimsoll-broker", "nodeName": "n1"}
        await create_pod(apiserver, namespace, part)
        kubeconfig = await kubeconfig_of(apiserver, namespace, "plimsoll-broker", tmp_path, pod="broker")
        yield Scene(apiserver, pool, Kubelet(tmp_path / "kubelet.sock"), kubeconfig)
    finally:
        rest = yaml.safe_dump_all(one for one in objects if one["kind"] != "Namespace")
        await apiserver.kubectl("delete", "--ignore-not-found", "--filename=-", stdin=rest)
        await apiserver.purge_namespace(pool)


async def test_a_reservation_is_named_once_the_kubelet_has_admitted_it(scene: Scene) -> None:
    """The kubelet is silent first, then lists no device yet; the GPU stands on the reservation when it lists it."""
    async with scene.broker():
        made = await scene.reserve()
        async with scene.kubelet.serving():
            await scene.until_asked()
            assert await scene.card() is None
            scene.kubelet.given.append((made, made["spec"]["containers"][0]["name"], "GPU-1"))
            await until(partial(_is_named, scene, "gpu-0.n1", "GPU-1"))
            before = scene.kubelet.questions
            # A second one on this node, and one whose kubelet is another.
            await scene.reserve("gpu-0.n2", "n2")
            second = await scene.reserve("gpu-1.n1")
            scene.kubelet.given.append((second, second["spec"]["containers"][0]["name"], "GPU-2"))
            await until(partial(_is_named, scene, "gpu-1.n1", "GPU-2"))
            assert scene.kubelet.questions > before
            assert await scene.card("gpu-0.n2") is None


async def _is_named(scene: Scene, name: str, gpu: str) -> bool:
    return await scene.card(name) == gpu


@pytest.mark.parametrize("device", ["0", "GPU-1::2", "MIG-1"])
async def test_a_device_that_is_no_gpus_uuid_is_not_named(scene: Scene, device: str) -> None:
    """A device plugin may number its devices, or hand parts of a GPU out. The reservation's container names those."""
    async with scene.broker(), scene.kubelet.serving():
        made = await scene.reserve()
        scene.kubelet.given.append((made, made["spec"]["containers"][0]["name"], device))
        await scene.until_asked()
        assert await scene.card() is None


async def test_the_gpu_of_an_earlier_pod_of_that_name_is_not_named(scene: Scene) -> None:
    """A reservation was deleted by force, and the kubelet still lists it when the next one of its name is bound."""
    async with scene.broker(), scene.kubelet.serving():
        gone = await scene.reserve()
        scene.kubelet.given.append((gone, gone["spec"]["containers"][0]["name"], "GPU-1"))
        await until(partial(_is_named, scene, "gpu-0.n1", "GPU-1"))
        await scene.api.must("DELETE", f"{scene.path('gpu-0.n1')}?gracePeriodSeconds=0")
        made = await scene.reserve()
        await scene.until_asked()
        assert await scene.card() is None
        scene.kubelet.given[0] = (made, made["spec"]["containers"][0]["name"], "GPU-2")
        await until(partial(_is_named, scene, "gpu-0.n1", "GPU-2"))


FORBIDDEN: tuple[tuple[str, Body, str], ...] = (
    ("gpu-0.n2", {"metadata": {"annotations": {CARD: "GPU-9"}}}, "on a pod of another node"),
    ("gpu-0.n1", {"metadata": {"annotations": {GPU: "GPU-9"}}}, f"alone, not {GPU}"),
    ("gpu-0.n1", {"metadata": {"annotations": {RELEASE: "granted"}}}, f"alone, not {RELEASE}"),
    ("gpu-0.n1", {"metadata": {"labels": {"a": "b"}}}, "alone"),
    ("gpu-0.n1", {"metadata": {"ownerReferences": []}}, ""),
    ("gpu-0.n1", {"spec": {"activeDeadlineSeconds": 1}}, "alone"),
)


async def test_a_stolen_token_of_a_broker_changes_nothing_else(scene: Scene) -> None:
    """With the token of a broker's pod, nobody writes on reservations of other nodes, or anything but the card."""
    await scene.reserve()
    await scene.reserve("gpu-0.n2", "n2")
    async with connect(scene.kubeconfig) as client:
        await until(partial(_is_in_force, client, scene))
        for name, change, text in FORBIDDEN:
            told = await _refused(client, scene.path(name), change)
            assert (text in told) if text else not told, (change, told)
        assert not await _refused(
            client, scene.path("gpu-0.n1"), {"metadata": {"annotations": {CARD: "GPU-1"}}}
        )
        for path in (scene.path("gpu-0.n1"), "/api/v1/namespaces/default/pods/x"):
            with pytest.raises(ApiError, match="forbidden"):
                await client.delete(path, {})


async def _is_in_force(client: KubeClient, scene: Scene) -> str:
    return await _refused(client, scene.path("gpu-0.n2"), {"metadata": {"annotations": {CARD: "GPU-9"}}})


async def _refused(client: KubeClient, path: str, change: Body) -> str:
    """The refusal of a change; empty if it was accepted."""
    try:
        await client.patch(path, change, PatchKind.MERGE)
    except ApiError as error:
        return str(error)
    return ""
