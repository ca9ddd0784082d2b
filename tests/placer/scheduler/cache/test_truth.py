"""On a real API server, what a tenant or another scheduler writes never puts a pod on room that is in use."""

import asyncio

import pytest

from placer.core.booking import Booking
from placer.scheduler.cache.comparer import CacheComparer
from plimsoll.ids import PodUid
from plimsoll.kube.client import connect
from plimsoll.kube.lease import Lease
from plimsoll.placer_api.http import DoubtRow
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.logs import capture_logs
from tests.placer.kube.decided import decision_text
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.world import World, gpu_of, scheduler
from tests.placer.states import read, reader_of
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until, until_true

GPUS = "plimsoll.dev/gpu"


async def doubts(world: World) -> tuple[DoubtRow, ...]:
    """The pods in doubt, as `/v1/state` shows them."""
    return (await read(reader_of(world.parts.context.decider))).doubts


async def drift(api: ApiServer, world: World) -> tuple[float, float]:
    """Compare the ledger with the API server now; the bytes and pods of the metrics."""
    async with connect(api.kubeconfig()) as transport:
        cluster = world.parts.core.profile.cache
        await CacheComparer(transport, cluster, world.ledger, world.metrics, every_s=1).compare()
    return drifted(world)


def drifted(world: World) -> tuple[float, float]:
    """The bytes and pods by which the ledger differed when it was last compared."""
    read = world.metrics.registry.get_sample_value
    return read("plimsoll_placer_drift_bytes") or 0, read("plimsoll_placer_drift_pods") or 0


@pytest.fixture(autouse=True)
def _short_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("placer.scheduler.cache.comparer.SETTLE_S", 2.0)


async def test_an_edit_of_a_running_pod_frees_no_room(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A tenant edits its running whole-GPU pod, and the next pod is not put on that GPU.

    `test_bookings.py` has every other edit.
    """
    edit = {"plimsoll.dev/decision": decision_text("GPU-n1-0", 1)}
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("whole", {GPUS: "1"}))
        await world.until_bound("whole")
        path = f"/api/v1/namespaces/{namespace}/pods/whole"
        await apiserver.must("PATCH", path, {"metadata": {"annotations": edit}})
        await until(lambda: doubts(world))
        [row] = await doubts(world)
        assert (row.name, row.node, row.foreign) == ("whole", "n1", False)
        assert "was changed by somebody else" in row.reason
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "1Gi"}))
        await world.until_refused("next", "1 node(s) had GPUs that belonged to one container alone")
        assert await drift(apiserver, world) == (0, 0)
        await create_node(apiserver, "n2")
        await world.report("n2", 24)
        assert gpu_of(await world.until_bound("next")) == ("n2", "GPU-n2-0")


async def test_a_placer_without_the_lease_blames_nobody_for_a_decision(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Another placer may have taken over, so its decision is no error; still the larger of both counts."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24, 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "1Gi"}))
        await world.until_bound("p")
        async with connect(apiserver.kubeconfig()) as transport:
            world.parts.context.lease = Lease(transport, namespace, "never-held", "me")
            with capture_logs() as logs:
                changed = {"plimsoll.dev/decision": decision_text("GPU-n1-1", 1)}
                path = f"/api/v1/namespaces/{namespace}/pods/p"
                await apiserver.must("PATCH", path, {"metadata": {"annotations": changed}})
                await until(lambda: doubts(world))
    named = [(line["event"], line["log_level"]) for line in logs if line.get("pod") == f"{namespace}/p"]
    assert named == [("pod placed or changed by another", "info")]


async def test_a_pod_that_somebody_else_bound_counts_on_every_gpu_of_its_node(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A GPU pod without our decision takes bytes and share on each GPU, and has one event and a row in the state."""
    await create_node(apiserver, "n1")
    await create_pod(
        apiserver, namespace, pod_manifest("theirs", {MEMORY: "20Gi", SHARE: "70"}, scheduler="theirs")
    )
    binding = {"metadata": {"name": "theirs"}, "target": {"kind": "Node", "name": "n1"}}
    path = f"/api/v1/namespaces/{namespace}/pods/theirs"
    await apiserver.must("POST", f"{path}/binding", binding)
    async with scheduler(apiserver, valkey, namespace) as world:
        await until(lambda: doubts(world))
        await world.report("n1", 24, 24)
        await create_pod(apiserver, namespace, pod_manifest("large", {MEMORY: "5Gi"}))
        await world.until_refused("large", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        await create_pod(apiserver, namespace, pod_manifest("fast", {MEMORY: "1Gi", SHARE: "31"}))
        await world.until_refused("fast", "1 Insufficient plimsoll.dev/gpu-share on one GPU")
        await create_pod(apiserver, namespace, pod_manifest("small", {MEMORY: "3Gi", SHARE: "30"}))
        await world.until_bound("small")
        [told] = world.published.strangers
        assert (told.name, told.node, told.gpus) == ("theirs", "n1", {})
        assert "somebody else bound the pod, or it is static" in told.reason
        [row] = await doubts(world)
        assert (row.namespace, row.name, row.node, row.foreign) == (namespace, "theirs", "n1", True)
        assert row.reason == told.reason
        assert await drift(apiserver, world) == (0, 0)
        await apiserver.must("DELETE", f"{path}?gracePeriodSeconds=0")
        await world.until_bound("large")
        await world.until_bound("fast")
        assert await doubts(world) == ()


async def test_a_static_pod_of_whole_gpus_takes_its_node(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A mirror pod, which has a node from the start, takes all GPUs there if it requests whole ones."""
    await create_node(apiserver, "n1")
    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", 24, 24)
        static = pod_manifest("static-n1", {GPUS: "1"}, annotations={"kubernetes.io/config.mirror": "x"})
        static["spec"]["nodeName"] = "n1"
        await create_pod(apiserver, namespace, static)
        await until(lambda: doubts(world))
        await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "1Gi"}))
        await world.until_refused("next", "1 node(s) had GPUs that belonged to one container alone")
        assert [one.name for one in world.published.strangers] == ["static-n1"]


async def test_drift_is_found_named_and_mended(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Bookings that were lost, shrunk, or made up behind the placer's back are found, and right again afterwards."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        for name, size in (("lost", "10Gi"), ("shrunk", "6Gi"), ("sound", "2Gi")):
            await create_pod(apiserver, namespace, pod_manifest(name, {MEMORY: size, SHARE: "10"}))
            await world.until_bound(name)
        assert await drift(apiserver, world) == (0, 0)
        uids = {
            name: PodUid((await world.pod(name))["metadata"]["uid"]) for name in ("lost", "shrunk", "sound")
        }
        before = {uid: world.ledger.booking(uid) for uid in uids.values()}
        world.ledger.forget(uids["lost"])
        shrunk = before[uids["shrunk"]]
        assert shrunk is not None
        [grant] = shrunk.grants
        world.ledger.restore(Booking(shrunk.pod, shrunk.node, ()))
        world.ledger.restore(Booking(PodUid("made-up"), shrunk.node, (grant,)))
        assert await drift(apiserver, world) == ((10 + 6 + 6) * GIB, 3)
        assert {booking.pod: booking for booking in world.ledger.bookings()} == before
        assert await doubts(world) == ()
        assert await drift(apiserver, world) == (0, 0)
        await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "7Gi"}))
        await world.until_refused("next", "Insufficient plimsoll.dev/gpu-memory")


async def test_the_ledger_is_compared_by_itself(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A lost booking comes back without anything that happens to its pod."""
    async with scheduler(apiserver, valkey, namespace, drift_s=0.5) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        uid = PodUid((await world.until_bound("p"))["metadata"]["uid"])
        await until_true(lambda: world.ledger.booking(uid) is not None)
        assert world.ledger.forget(uid) is not None
        await until_true(lambda: drifted(world) == (10 * GIB, 1))
        assert world.ledger.booking(uid) is not None
        await until_true(lambda: drifted(world) == (0, 0))


async def test_a_busy_cluster_has_no_drift(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """While pods are created, bound, resized and deleted, comparisons find nothing to mend."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24, 24)
        for index in range(12):
            await create_pod(apiserver, namespace, pod_manifest(f"p{index}", {MEMORY: "2Gi"}))
            if index % 3 == 2:
                path = f"/api/v1/namespaces/{namespace}/pods/p{index - 1}?gracePeriodSeconds=0"
                await apiserver.must("DELETE", path)
            if index % 4 == 3:
                await world.until_bound("p0")
                size = Resize(pod="p0", namespace=namespace, gpu_memory=f"{index}Gi")
                await asyncio.gather(world.parts.doors.resizer.resize(size), drift(apiserver, world))
                assert drifted(world) == (0, 0)
        await asyncio.gather(*(world.until_bound(f"p{index}") for index in range(12) if index % 3 != 1))
        assert await drift(apiserver, world) == (0, 0)
