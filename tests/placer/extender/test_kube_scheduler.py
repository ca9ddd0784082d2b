"""A stock kube-scheduler in front of the placer, with the configuration in `deploy/`, on a real API server."""

import asyncio
from collections import Counter
from pathlib import Path

from plimsoll.contract import DECISION
from plimsoll.decision import decision_of
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.extender.front import (
    GPUS,
    MEMORY,
    Between,
    asked,
    front_pod,
    gpu_node,
    kube_scheduler,
    order,
    serving_front,
    until_freed,
)
from tests.placer.kube.world import World, gpu_of, read_pod, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until, until_true


async def test_a_pod_goes_through_kube_scheduler(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """A pod with our resources and no `schedulerName` gets a node with a GPU that fits, and its GPU, from the placer.

    kube-scheduler sums resources over nodes and filters by its own rules; pods without our resources never come here.
    """
    between, asked_about = Between(), set[str]()

    async def note(question: Object) -> None:
        asked_about.add(question["Pod"]["metadata"]["name"])

    between.before["filter"] = note
    async with (
        scheduler(apiserver, valkey, namespace) as world,
        serving_front(world.parts, between),
        kube_scheduler(apiserver, tmp_path, between),
    ):
        await gpu_node(world, "halves", 8, 8)
        await gpu_node(world, "fits", 2, 16)
        await gpu_node(world, "cordoned", 24)
        await apiserver.must("PATCH", "/api/v1/nodes/cordoned", {"spec": {"unschedulable": True}})
        await create_node(apiserver, "plain")
        pod = await create_pod(apiserver, namespace, front_pod("p", {MEMORY: "10Gi"}))
        assert gpu_of(await world.until_bound("p")) == ("fits", "GPU-fits-1")
        assert len(await world.events("p", "Scheduled")) == 1
        await create_pod(apiserver, namespace, front_pod("none", {"cpu": "1"}))
        await world.until_bound("none")
        assert asked_about == {"p"}
        assert between.counts()["prioritize"] == 0  # one node passed
        await create_pod(apiserver, namespace, front_pod("large", {MEMORY: "20Gi"}))
        waiting = await world.until_refused("large", "Insufficient plimsoll.dev/gpu-memory on one GPU")
        assert DECISION not in waiting["metadata"].get("annotations", {})
        await world.report("fits", 2, 24)  # kube-scheduler knows nothing of reports
        await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/p?gracePeriodSeconds=0")
        await until_freed(world, "fits", pod)
        assert gpu_of(await world.until_bound("large")) == ("fits", "GPU-fits-1")
        assert world.published.strangers == []


async def test_a_malformed_pod_says_why_in_its_events(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """kube-scheduler shows the placer's text to people, and other pods go on."""
    between = Between()
    async with (
        scheduler(apiserver, valkey, namespace) as world,
        serving_front(world.parts, between),
        kube_scheduler(apiserver, tmp_path, between),
    ):
        await gpu_node(world, "n1", 24, 24)
        await create_pod(apiserver, namespace, front_pod("bad", {MEMORY: "3000001", GPUS: "2"}))
        [event, *_] = await world.events("bad", "FailedScheduling")
        assert "does not divide evenly by 2 GPUs; give a multiple of 2" in event["note"]
        await create_pod(apiserver, namespace, front_pod("good", {MEMORY: "1Gi"}))
        await world.until_bound("good")


async def test_preemption_evicts_nothing_in_vain(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """It evicts a pod whose GPU then takes the preemptor, and none if the preemptor would not fit afterwards."""
    between, high = Between(), f"high-{namespace}"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await apiserver.must("POST", classes, {"metadata": {"name": high}, "value": 1000})
    try:
        async with (
            scheduler(apiserver, valkey, namespace) as world,
            serving_front(world.parts, between) as port,
        ):
            await gpu_node(world, "n1", 24, 24)
            for index in range(2):
                here = {"plimsoll.dev/gpu-id": f"GPU-n1-{index}"}
                low = front_pod(f"low{index}", {MEMORY: "15Gi"}, annotations=here)
                pod = await create_pod(apiserver, namespace, low)
                assert await asked(port, "bind", order(pod, "n1")) == {"Error": ""}
            async with kube_scheduler(apiserver, tmp_path, between):
                vain = front_pod("vain", {MEMORY: "40Gi", GPUS: "2"})
                vain["spec"]["priorityClassName"] = high
                vain["metadata"]["annotations"] = {"plimsoll.dev/gpu-model": "NVIDIA H100"}
                await create_pod(apiserver, namespace, vain)
                await until_true(lambda: between.counts()["preempt"] > 0)
                await world.events("vain", "FailedScheduling")
                lows = [await world.pod(f"low{index}") for index in range(2)]
                assert not any("deletionTimestamp" in low["metadata"] for low in lows)
                useful = front_pod("useful", {MEMORY: "20Gi"})
                useful["spec"]["priorityClassName"] = high
                await create_pod(apiserver, namespace, useful)

                async def victims() -> list[str]:
                    pods = [await world.pod(f"low{index}") for index in range(2)]
                    return [one["metadata"]["name"] for one in pods if "deletionTimestamp" in one["metadata"]]

                [victim] = await until(victims)
                path = f"/api/v1/namespaces/{namespace}/pods/{victim}?gracePeriodSeconds=0"
                ending = await world.pod(victim)
                await apiserver.must("DELETE", path)  # as its kubelet would
                await until_freed(world, "n1", ending)
                assert gpu_of(await world.until_bound("useful")) == ("n1", f"GPU-n1-{victim[-1]}")
    finally:
        await apiserver.must("DELETE", f"{classes}/{high}")


async def test_both_front_ends_in_one_burst(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """Pods of both schedulers come at once for GPUs that all of them fill: no GPU is promised above its card.

    Between filter and bind nothing is held, so binds of kube-scheduler fail and are tried again.
    """
    nodes, pods = 6, 24  # of 10 GiB; each node has two GPUs of 24 GiB, so two pods fit on each GPU
    between = Between()
    async with (
        scheduler(apiserver, valkey, namespace) as world,
        serving_front(world.parts, between),
        kube_scheduler(apiserver, tmp_path, between),
    ):
        for index in range(nodes):
            await gpu_node(world, f"n{index}", 24, 24)
        makes = (front_pod, pod_manifest)
        await asyncio.gather(
            *(
                create_pod(apiserver, namespace, makes[index % 2](f"p{index}", {MEMORY: "10Gi"}))
                for index in range(pods)
            )
        )
        stored = [await world.until_bound(f"p{index}") for index in range(pods)]
        assert _most_promised_bytes(stored) <= 24 * GIB
        assert {pod["spec"]["schedulerName"] for pod in stored} == {"default-scheduler", "plimsoll"}
        await _until_counted(world, pods)


def _most_promised_bytes(pods: list[Object]) -> int:
    """The most bytes that decisions on the API server promise of one GPU."""
    promised: Counter[tuple[str, str]] = Counter()
    for pod in pods:
        decision = decision_of(read_pod(pod))
        assert decision is not None, pod["metadata"]["name"]
        for grants in decision.containers.values():
            for grant in grants:
                promised[pod["spec"]["nodeName"], grant.gpu] += grant.memory_bytes or 0
    return max(promised.values())


async def _until_counted(world: World, pods: int) -> None:
    async def look() -> bool:
        return len(list(world.ledger.bookings())) == pods

    await until(look)
    assert all(booking.doubt is None for booking in world.ledger.bookings())
