"""Binds as kube-scheduler orders them, on a real API server: node and GPUs in one write, or nothing."""

import asyncio
from typing import Any

import pytest

from placer.extender import binds as binds_module
from placer.extender.binds import OutsidePods
from placer.scheduler.event_handlers.pods import PodEventHandler
from plimsoll.contract import DECISION
from plimsoll.ids import PodUid
from plimsoll.placer_api.rpc import Resize
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.extender.front import (
    GPUS,
    MEMORY,
    SHARE,
    asked,
    front_pod,
    gpu_node,
    order,
    serving_front,
)
from tests.placer.kube.lossy import LossyBinds, held, lose_answer, lose_request, refuse
from tests.placer.kube.world import GPU_KEY, World, gpu_of, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_pod, get_pod
from tests.servers.waiting import until_true


async def made(world: World, name: str, resources: dict[str, str], **more: Any) -> Object:  # noqa: ANN401 - passed on
    """A pod of kube-scheduler that the watch of a placer, which can bind, has shown."""
    pod = await create_pod(world.api, world.namespace, front_pod(name, resources, **more))
    uid = PodUid(pod["metadata"]["uid"])
    await until_true(lambda: world.parts.doors.outside.get(uid) is not None)
    await until_true(world.parts.context.leads.is_set)
    return pod


def booked(world: World) -> set[str]:
    """The uids of the pods in the ledger."""
    return {booking.pod for booking in world.ledger.bookings()}


async def until_watched(world: World, pod: Object) -> None:
    """Wait until the watch has shown the pod bound."""
    uid = PodUid(pod["metadata"]["uid"])
    await until_true(lambda: world.parts.doors.outside.get(uid) is None)


async def test_a_bind_writes_node_and_gpu_at_once(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The pod gets its node and its decision in one write, counts in the ledger, and is published on the bus."""
    async with scheduler(apiserver, valkey, namespace) as world, serving_front(world.parts) as port:
        await gpu_node(world, "n1", 4, 24)
        pod = await made(world, "p", {MEMORY: "10Gi", SHARE: "30"})
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        stored = await world.pod("p")
        assert gpu_of(stored) == ("n1", "GPU-n1-1")
        assert DECISION in stored["metadata"]["annotations"]
        await until_watched(world, pod)
        assert booked(world) == {pod["metadata"]["uid"]}
        assert [(one.name, one.node) for one in world.published.bound] == [("p", "n1")]
        assert world.published.strangers == []


async def test_gpushare_gpus_0_to_3_at_bind(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The example of bind in gpushare's design: of GPUs with 12207, 8138, 4069 and 16276 MiB left, GPU1 gets 8138."""
    async with scheduler(apiserver, valkey, namespace) as world, serving_front(world.parts) as port:
        await gpu_node(world, "N1".lower(), 16, 16, 16, 16, total_gib=16)
        total = 16 * 1024
        for index, left in enumerate((12207, 8138, 4069)):
            taken = await made(
                world,
                f"taken{index}",
                {MEMORY: f"{total - left}Mi"},
                annotations={"plimsoll.dev/gpu-id": f"GPU-n1-{index}"},
            )
            assert await asked(port, "bind", order(taken, "n1")) == {"Error": ""}
        pod = await made(world, "p", {MEMORY: "8138Mi"}, annotations={"plimsoll.dev/policy": "binpack"})
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        assert gpu_of(await world.pod("p")) == ("n1", "GPU-n1-1")


async def test_a_bind_whose_gpu_is_gone_writes_nothing(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that took the GPU after filter makes the bind fail with the reason; the pod stays as it was."""
    lossy = LossyBinds()
    async with (
        scheduler(apiserver, valkey, namespace, wrap=lossy.around) as world,
        serving_front(world.parts) as port,
    ):
        await gpu_node(world, "n1", 24, 4)
        pod = await made(world, "p", {MEMORY: "20Gi"})
        args = {"Pod": pod, "NodeNames": ["n1"]}
        assert (await asked(port, "filter", args))["NodeNames"] == ["n1"]
        other = await made(world, "other", {MEMORY: "20Gi"})
        assert await asked(port, "bind", order(other, "n1")) == {"Error": ""}
        answer = await asked(port, "bind", order(pod, "n1"))
        name = f"{namespace}/p"
        reason = "Insufficient plimsoll.dev/gpu-memory on one GPU"
        assert answer["Error"] == f"plimsoll: pod {name} no longer fits on n1: {reason}"
        assert lossy.targets == ["n1"]
        assert await world.pod("p") == pod
        assert booked(world) == {other["metadata"]["uid"]}


async def test_a_node_that_is_full_apart_from_gpus_is_refused(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """kube-scheduler does not know of the placer's own pods under way; the kubelet would fail the pod for good."""
    async with scheduler(apiserver, valkey, namespace) as world, serving_front(world.parts) as port:
        await gpu_node(world, "n1", 24)
        pod = await made(world, "p", {MEMORY: "1Gi", "cpu": "9"})
        assert (
            "no longer fits on n1: Insufficient cpu" in (await asked(port, "bind", order(pod, "n1")))["Error"]
        )
        assert booked(world) == set()


async def test_a_bind_asked_twice_is_answered_right_both_times(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """While a bind is under way, and before and after the watch shows it, the same order gets the same answer."""
    reached, release = asyncio.Event(), asyncio.Event()
    lossy = LossyBinds()
    lossy.faults.append(held(reached, release))
    async with (
        scheduler(apiserver, valkey, namespace, wrap=lossy.around) as world,
        serving_front(world.parts) as port,
    ):
        await gpu_node(world, "n1", 24)
        await gpu_node(world, "n2", 24)
        pod = await made(world, "p", {MEMORY: "10Gi"})
        first = asyncio.create_task(asked(port, "bind", order(pod, "n1")))
        await until_true(reached.is_set)
        again = asyncio.create_task(asked(port, "bind", order(pod, "n1")))
        elsewhere = await asked(port, "bind", order(pod, "n2"))
        assert "is being bound to n1; its result is not known yet" in elsewhere["Error"]
        answer = await asked(port, "filter", {"Pod": pod, "NodeNames": ["n1", "n2"]})
        assert answer["NodeNames"] == ["n1"]
        assert "being bound to (n1)" in answer["FailedAndUnresolvableNodes"]["n2"]
        release.set()
        assert [await first, await again] == [{"Error": ""}] * 2
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        await until_watched(world, pod)
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        wrong = await asked(port, "bind", order(pod, "n2"))
        assert "is bound to n1 already, by the placer" in wrong["Error"]
        assert lossy.targets == ["n1"]
        assert len(world.published.bound) == 1


async def test_a_bind_is_answered_right_before_the_watch_shows_it(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second order that overtakes the watch is answered by the pod as the API server has it."""
    async with scheduler(apiserver, valkey, namespace) as world, serving_front(world.parts) as port:
        await gpu_node(world, "n1", 24)
        pod = await made(world, "p", {MEMORY: "10Gi"})
        # A watch that is behind. A real one cannot be made to wait for the moment between both orders.
        monkeypatch.setattr(PodEventHandler, "_confirm", lambda *_: None)
        monkeypatch.setattr(OutsidePods, "put", lambda *_: None)
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        assert len(world.published.bound) == 1


async def test_a_lost_answer_keeps_the_room(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """After a lost answer the pod is read: it is bound, once, and the order is answered so."""
    lossy = LossyBinds()
    lossy.faults.append(lose_answer)
    async with (
        scheduler(apiserver, valkey, namespace, wrap=lossy.around) as world,
        serving_front(world.parts) as port,
    ):
        await gpu_node(world, "n1", 24)
        pod = await made(world, "p", {MEMORY: "10Gi"})
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        assert lossy.targets == ["n1"]
        assert booked(world) == {pod["metadata"]["uid"]}


async def test_a_bind_without_a_result_is_answered_in_time_and_goes_on(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kube-scheduler gets an error before its own time limit. The room stays taken, and the pod is bound later."""
    monkeypatch.setattr(binds_module, "ANSWER_S", 0.2)
    reached, release = asyncio.Event(), asyncio.Event()
    lossy = LossyBinds()
    lossy.faults.append(held(reached, release))
    async with (
        scheduler(apiserver, valkey, namespace, wrap=lossy.around) as world,
        serving_front(world.parts) as port,
    ):
        await gpu_node(world, "n1", 24)
        pod = await made(world, "p", {MEMORY: "20Gi"})
        answer = await asked(port, "bind", order(pod, "n1"))
        assert "the API server has not answered the bind yet; the pod keeps its room" in answer["Error"]
        other = await made(world, "other", {MEMORY: "20Gi"})
        refused = await asked(port, "filter", {"Pod": other, "NodeNames": ["n1"]})
        assert refused["NodeNames"] == []
        lossy.read_faults.append(lose_request)  # an order to do the same needs no answer of the API server
        assert await asked(port, "bind", order(pod, "n1")) == answer
        lossy.read_faults.clear()
        release.set()
        await world.until_bound("p")
        await until_watched(world, pod)
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}


async def test_a_bind_that_the_api_server_refuses_frees_its_room(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A refused write is answered with the server's text, and the next order may have the GPU."""
    lossy = LossyBinds()
    lossy.faults.append(refuse)
    async with (
        scheduler(apiserver, valkey, namespace, wrap=lossy.around) as world,
        serving_front(world.parts) as port,
    ):
        await gpu_node(world, "n1", 24)
        pod = await made(world, "p", {MEMORY: "20Gi"})
        answer = await asked(port, "bind", order(pod, "n1"))
        assert "was not bound to n1, refused: admission webhook denied the request" in answer["Error"]
        assert booked(world) == set()
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}


async def test_a_pod_that_changed_since_it_was_read_is_bound_in_its_new_version(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A condition that kube-scheduler writes between filter and bind changes the pod's version, and nothing else."""
    lossy = LossyBinds()
    async with (
        scheduler(apiserver, valkey, namespace, wrap=lossy.around) as world,
        serving_front(world.parts) as port,
    ):
        await gpu_node(world, "n1", 24)
        pod = await made(world, "p", {MEMORY: "20Gi"})
        path = f"/api/v1/namespaces/{namespace}/pods/p/status"
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        changed = await apiserver.must("PATCH", path, {"status": {"conditions": [condition]}})
        assert changed["metadata"]["resourceVersion"] != pod["metadata"]["resourceVersion"]
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        assert gpu_of(await world.pod("p")) == ("n1", "GPU-n1-0")


async def test_orders_that_cannot_be_carried_out_say_why(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that is gone, its namesake, a pod bound by somebody else, an unknown node, and a malformed pod."""
    async with scheduler(apiserver, valkey, namespace) as world, serving_front(world.parts) as port:
        await gpu_node(world, "n1", 24)
        pod = await made(world, "p", {MEMORY: "1Gi"})
        unknown = await asked(port, "bind", order(pod, "nowhere"))
        assert "node nowhere is not known to the placer" in unknown["Error"]
        uid = PodUid(pod["metadata"]["uid"])
        await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/p?gracePeriodSeconds=0")
        await until_true(lambda: world.parts.doors.outside.get(uid) is None)
        assert "is gone" in (await asked(port, "bind", order(pod, "n1")))["Error"]
        await made(world, "p", {MEMORY: "1Gi"})
        assert "another has its name" in (await asked(port, "bind", order(pod, "n1")))["Error"]
        stolen = await made(world, "stolen", {MEMORY: "1Gi"})
        binding = {"metadata": {"name": "stolen"}, "target": {"kind": "Node", "name": "n1"}}
        await apiserver.must("POST", f"/api/v1/namespaces/{namespace}/pods/stolen/binding", binding)
        await until_watched(world, stolen)
        assert "by somebody else, without GPUs" in (await asked(port, "bind", order(stolen, "n1")))["Error"]
        assert [one.name for one in world.published.strangers] == ["stolen"]
        bad = await made(world, "bad", {MEMORY: "3000001", GPUS: "2"})
        assert "give a multiple of 2" in (await asked(port, "bind", order(bad, "n1")))["Error"]
        assert booked(world) == {stolen["metadata"]["uid"]}


async def test_a_pod_without_a_gpu_is_bound_too(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Where `managedResources` is left out, kube-scheduler has the placer bind every pod."""
    async with scheduler(apiserver, valkey, namespace) as world, serving_front(world.parts) as port:
        await gpu_node(world, "n1", 24)
        pod = await create_pod(apiserver, namespace, front_pod("p", {"cpu": "1"}))
        await until_true(world.parts.context.leads.is_set)
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        stored = await world.until_bound("p")
        assert GPU_KEY not in stored["metadata"].get("annotations", {})
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        await until_true(lambda: booked(world) == set())


async def test_a_restart_between_filter_and_bind(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The next placer binds the pod by its own ledger, read from the API server, and refuses what is taken."""
    async with scheduler(apiserver, valkey, namespace) as world, serving_front(world.parts) as port:
        await gpu_node(world, "n1", 24)
        pods = [await made(world, name, {MEMORY: "20Gi"}) for name in ("p", "q")]
        for pod in pods:
            assert (await asked(port, "filter", {"Pod": pod, "NodeNames": ["n1"]}))["NodeNames"] == ["n1"]
        assert await asked(port, "bind", order(pods[0], "n1")) == {"Error": ""}
    async with (
        scheduler(apiserver, valkey, namespace, loaded=False) as world,
        serving_front(world.parts) as port,
    ):
        early = await asked(port, "bind", order(pods[1], "n1"))
        assert "has just started and has not read all pods, nodes and reports yet" in early["Error"]
        await world.report("n1", 24)
        world.ready.set()
        await until_true(world.parts.context.leads.is_set)
        assert await asked(port, "bind", order(pods[0], "n1")) == {"Error": ""}
        assert "no longer fits on n1" in (await asked(port, "bind", order(pods[1], "n1")))["Error"]
        await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/p?gracePeriodSeconds=0")
        await until_true(lambda: booked(world) == set())
        assert await asked(port, "bind", order(pods[1], "n1")) == {"Error": ""}
        assert gpu_of(await get_pod(apiserver, namespace, "q")) == ("n1", "GPU-n1-0")


async def test_bound_pods_are_like_the_placers_own(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that was bound here is resized, and an edit of its decision by somebody else frees nothing."""
    async with scheduler(apiserver, valkey, namespace) as world, serving_front(world.parts) as port:
        await gpu_node(world, "n1", 24)
        pod = await made(world, "p", {MEMORY: "10Gi"})
        assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
        await until_watched(world, pod)
        resized = await world.parts.doors.resizer.resize(
            Resize(namespace=namespace, pod="p", gpu_memory="20Gi")
        )
        assert resized.node == "n1"
        late = await made(world, "late", {MEMORY: "10Gi"})
        assert "no longer fits on n1" in (await asked(port, "bind", order(late, "n1")))["Error"]


async def test_binds_wait_for_a_place_and_all_arrive(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """More orders at once than writes at once are all carried out."""
    async with (
        scheduler(apiserver, valkey, namespace, binds_at_once=2) as world,
        serving_front(world.parts) as port,
    ):
        await gpu_node(world, "n1", 24)
        pods = [await made(world, f"p{index}", {MEMORY: "1Gi"}) for index in range(12)]
        answers = await asyncio.gather(*(asked(port, "bind", order(pod, "n1")) for pod in pods))
        assert answers == [{"Error": ""}] * 12
        assert len(booked(world)) == 12
