"""On a real API server: percentages of memory, several containers and GPUs in one pod, init containers with GPUs."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from plimsoll.events import Gpu
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.core.worlds import state
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.world import World, condition, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest

COUNT, PERCENT = "plimsoll.dev/gpu", "plimsoll.dev/gpu-memory-percent"


def staged(
    name: str,
    limits: dict[str, str] | None = None,
    *,
    init: dict[str, dict[str, str]] | None = None,
    sidecars: tuple[str, ...] = (),
    more: dict[str, dict[str, str]] | None = None,
    annotations: dict[str, str] | None = None,
) -> Object:
    """A pod whose container `main` has these limits, with `more` containers and with `init` containers."""
    manifest = pod_manifest(name, limits, annotations=annotations)
    image = manifest["spec"]["containers"][0]

    def made(of: str, limits: dict[str, str]) -> Object:
        policy = {"restartPolicy": "Always"} if of in sidecars else {}
        return {**image, "name": of, "resources": {"limits": limits}, **policy}

    manifest["spec"]["containers"] += [made(of, limits) for of, limits in (more or {}).items()]
    manifest["spec"]["initContainers"] = [made(of, limits) for of, limits in (init or {}).items()]
    return manifest


def given(pod: Object) -> dict[str, list[dict[str, Any]]]:
    """The grants of each container by the decision on the pod; `gpus.plimsoll.dev/` must name the same GPUs."""
    annotations = pod["metadata"]["annotations"]
    containers: dict[str, list[dict[str, Any]]] = json.loads(annotations["plimsoll.dev/decision"])[
        "containers"
    ]
    for name, grants in containers.items():
        assert annotations[f"gpus.plimsoll.dev/{name}"] == ",".join(grant["gpu"] for grant in grants)
    return containers


def start(pod: Object) -> object:
    """The order of the init containers by the decision on the pod."""
    return json.loads(pod["metadata"]["annotations"]["plimsoll.dev/decision"]).get("start")


async def mixed(world: World, node: str, *usable_gib: int, seq: int = 1) -> None:
    """Report idle GPUs of different sizes."""
    gpus = (
        Gpu(
            uuid=GpuUuid(f"GPU-{node}-{index}"),
            index=index,
            model=f"NVIDIA {size}",
            usable_bytes=size * GIB,
            used_bytes=0,
            idle_pct=100.0,
        )
        for index, size in enumerate(usable_gib)
    )
    world.reports.apply(state(node, *gpus, seq=seq))


@dataclass(frozen=True)
class Case:
    """A pod and its places on a node with two GPUs of 24 GiB.

    Attributes:
        pod: the arguments of `staged`.
        gpus: the GPUs of each container, by their numbers.
        bytes: the bytes of each container on each GPU, in GiB; a container that declares none is left out.
        start: the order of init containers in the decision.
        free: the headroom that is left on both GPUs, in GiB, and their share.
    """

    pod: dict[str, Any]
    gpus: dict[str, str]
    gib: dict[str, float]
    free: tuple[tuple[int, int], tuple[int, int]]
    start: object = None
    absent: set[str] = field(default_factory=set)


CASES = {
    "a quarter of two GPUs with shares": Case(
        {"limits": {COUNT: "2", SHARE: "60"}, "annotations": {PERCENT: "25"}},
        {"main": "01"},
        {"main": 6},
        ((18, 70), (18, 70)),
    ),
    "two containers with both GPUs": Case(
        {
            "limits": {COUNT: "2", MEMORY: "20Gi", SHARE: "100"},
            "more": {"side": {COUNT: "2", MEMORY: "28Gi", SHARE: "100"}, "idle": {}},
        },
        {"main": "01", "side": "01"},
        {"main": 10, "side": 14},
        ((0, 0), (0, 0)),
        absent={"idle"},
    ),
    "a sidecar, and an init container beside it": Case(
        {
            "limits": {MEMORY: "4Gi", SHARE: "30"},
            "init": {
                "proxy": {MEMORY: "2Gi", SHARE: "10"},
                "plain": {},
                "warm": {MEMORY: "20Gi", SHARE: "50"},
            },
            "sidecars": ("proxy",),
            "annotations": {"plimsoll.dev/gpu-id": "GPU-n1-0"},
        },
        {"proxy": "0", "warm": "0", "main": "0"},
        {"proxy": 2, "warm": 20, "main": 4},
        ((2, 40), (24, 100)),
        start={"init": ["proxy", "warm"], "sidecars": ["proxy"]},
        absent={"plain"},
    ),
    "an init container alone": Case(
        {"init": {"warm": {COUNT: "1"}}, "annotations": {PERCENT: "75"}},
        {"warm": "0"},
        {"warm": 18},
        ((6, 100), (24, 100)),
        start={"init": ["warm"]},
        absent={"main"},
    ),
}


@pytest.mark.parametrize("name", CASES)
async def test_each_container_gets_what_it_asks_for(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, name: str
) -> None:
    """The decision holds GPUs and bytes of each container, and promises leave what no moment of the pod needs."""
    case = CASES[name]
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24, 24)
        await create_pod(apiserver, namespace, staged("p", **case.pod))
        pod = await world.until_bound("p")
        grants = given(pod)
        assert {of: "".join(one["gpu"][-1] for one in own) for of, own in grants.items()} == case.gpus
        declared = {of: own[0].get("memory_bytes") for of, own in grants.items()}
        assert {of: size / GIB for of, size in declared.items() if size is not None} == case.gib
        assert all(one.get("memory_bytes") == declared[of] for of, own in grants.items() for one in own)
        assert start(pod) == case.start
        assert not case.absent & grants.keys()
        found = world.parts.context.decider.candidates.find(NodeName("n1"))
        assert found is not None
        left = tuple((room.free_bytes // GIB, room.free_share_pct) for room in found.rooms.values())
        assert left == case.free
        assert [one.gpus for one in world.published.bound] == [
            {of: [one["gpu"] for one in own] for of, own in grants.items()}
        ]
        uid = PodUid(pod["metadata"]["uid"])
        counted = world.ledger.booking(uid)
    async with scheduler(apiserver, valkey, namespace) as later:
        await later.until("p", lambda _: later.ledger.booking(uid) is not None)
        assert later.ledger.booking(uid) == counted


async def test_a_percentage_is_of_the_gpu_that_is_chosen(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Half of a GPU is other bytes on each model, and a pod that fits on no GPU waits until one has its part free."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await mixed(world, "n1", 16, 80)
        for name, model in (("small", "NVIDIA 16"), ("large", "NVIDIA 80")):
            asked = {PERCENT: "60", "plimsoll.dev/gpu-model": model}
            await create_pod(apiserver, namespace, staged(name, {COUNT: "1"}, annotations=asked))
        sizes = {}
        for name in ("small", "large"):
            [grant] = given(await world.until_bound(name))["main"]
            sizes[name] = grant["memory_bytes"], grant["line_bytes"]
        # 60 % of 16 GiB are 9830.4 MiB.
        assert sizes == {"small": (9830 << 20, 9830 << 20), "large": (48 * GIB, 48 * GIB)}
        await create_pod(apiserver, namespace, staged("next", {COUNT: "1"}, annotations={PERCENT: "41"}))
        refused = await world.until_refused("next", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        assert "(most free: 32Gi on n1)" in condition(refused)["message"]
        await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/small?gracePeriodSeconds=0")
        [grant] = given(await world.until_bound("next"))["main"]
        assert grant["gpu"] == "GPU-n1-0"


async def test_resizes_of_staged_pods_work_in_bytes(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A container that declared a percentage is resized in bytes, and keeps its place in the order of beginnings."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        manifest = staged("p", {COUNT: "1"}, init={"warm": {SHARE: "90"}}, annotations={PERCENT: "25"})
        await create_pod(apiserver, namespace, manifest)
        before = await world.until_bound("p")

        async def resize(size: str, share: str | None = None, container: str | None = None) -> None:
            name = ContainerName(container) if container else None
            asked = Resize(pod="p", namespace=namespace, gpu_memory=size, gpu_share=share, container=name)
            await world.parts.doors.resizer.resize(asked)

        await resize("20Gi", share="80")
        await resize("24Gi", container="warm")
        pod = await world.pod("p")
        assert start(pod) == start(before) == {"init": ["warm"]}
        assert {of: own[0]["memory_bytes"] // GIB for of, own in given(pod).items()} == {
            "warm": 24,
            "main": 20,
        }
        with pytest.raises(InputError, match="give at most 24Gi in total"):
            await resize("25Gi")
        booking = world.ledger.booking(PodUid(pod["metadata"]["uid"]))
        assert booking is not None
        promise = world.ledger.promise(booking, GpuUuid("GPU-n1-0"))
        assert (promise.declared_bytes, promise.share_pct) == (24 * GIB, 90)


async def test_a_forged_order_never_shrinks_a_booking(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A container that somebody declares an init container on a bound pod goes on counting beside the others."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, staged("p", {MEMORY: "10Gi"}, more={"side": {MEMORY: "8Gi"}}))
        pod = await world.until_bound("p")
        decision = json.loads(pod["metadata"]["annotations"]["plimsoll.dev/decision"])
        text = json.dumps({**decision, "start": {"init": ["side"]}})
        patch = {"metadata": {"annotations": {"plimsoll.dev/decision": text}}}
        await apiserver.must("PATCH", f"/api/v1/namespaces/{namespace}/pods/p", patch)
        uid = PodUid(pod["metadata"]["uid"])

        def in_doubt(_: Object) -> bool:
            booking = world.ledger.booking(uid)
            return booking is not None and booking.doubt is not None

        await world.until("p", in_doubt)
        booking = world.ledger.booking(uid)
        assert booking is not None
        assert world.ledger.promise(booking, GpuUuid("GPU-n1-0")).declared_bytes == 18 * GIB
        await world.parts.doors.resizer.resize(
            Resize(pod="p", namespace=namespace, gpu_memory="11Gi", container=ContainerName("main"))
        )
        assert start(await world.pod("p")) is None


async def test_staged_pods_that_cannot_work_are_refused_by_name(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Bad init containers and percentages get field, value and remedy, and the next pod is placed."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        texts = {
            "greedy": (
                staged("greedy", {MEMORY: "1Gi"}, init={"warm": {SHARE: "101"}}),
                "spec.initContainers[warm].resources[plimsoll.dev/gpu-share]: '101' is more than 1 GPU(s) have",
            ),
            "both": (
                staged("both", {MEMORY: "1Gi"}, annotations={PERCENT: "10"}),
                "gpu-memory]: '1Gi' stands beside the pod's plimsoll.dev/gpu-memory-percent of 10; leave out",
            ),
            "most": (
                staged("most", {COUNT: "1"}, annotations={PERCENT: "150"}),
                "metadata.annotations[plimsoll.dev/gpu-memory-percent]: '150' is no percentage of a GPU",
            ),
            "large": (
                staged("large", {MEMORY: "1Gi"}, init={"warm": {MEMORY: "25Gi"}}),
                "1 Insufficient plimsoll.dev/gpu-memory on one GPU (most free: 24Gi on n1)",
            ),
        }
        for manifest, _ in texts.values():
            await create_pod(apiserver, namespace, manifest)
        for name, (_, text) in texts.items():
            await world.until_refused(name, text)
        await create_pod(apiserver, namespace, staged("sound", {MEMORY: "1Gi"}, init={"warm": {COUNT: "1"}}))
        await world.until_bound("sound")
