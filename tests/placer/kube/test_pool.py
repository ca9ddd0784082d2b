"""Pods are placed on GPUs of the pool alone, wait for one that is to join, and share GPUs by name."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from placer.api.node_rows import NodeRows
from placer.core.pool import PoolPart
from placer.kube.pool import PoolWatch
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.kube.reflector import Synced
from plimsoll.kube.transport import Body, ConflictError, PatchKind, Transport
from plimsoll.pool import CARD, GPU, NODE, RELEASE, RESERVATION, reservation_of
from plimsoll.quantity import GIB
from tests.placer.kube.objects import MEMORY, SHARE, WHOLE, pod_of
from tests.placer.kube.scene import Scene, scene
from tests.placer.kube.world import Published
from tests.servers.waiting import until_true

POOL = "pool"
DEVICE = "nvidia.com/gpu"
SMALL = {MEMORY: "2Gi", SHARE: "10"}


@pytest.fixture
async def here() -> AsyncIterator[Scene]:
    """A cluster with a pool: two nodes of two GPUs, each with a device plugin."""
    async with scene(POOL) as made:
        for name in ("n1", "n2"):
            made.node(name, advertised={DEVICE: "2"})
            made.report(name, 24, 24)
        yield made


def reservation(name: str, node: str, gpu: str | None = None, release: str | None = None, **more: Any) -> Pod:  # noqa: ANN401 - passed on
    """A reservation pod on a node."""
    annotations = {NODE: node} | ({GPU: gpu} if gpu else {}) | ({RELEASE: release} if release else {})
    pod = pod_of(
        name,
        {DEVICE: "1"},
        {RESERVATION: "true"},
        annotations=annotations,
        scheduler="default-scheduler",
        nodeName=node,
        **more,
    )
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace=POOL))


def native(name: str, node: str) -> Pod:
    """A native pod with a whole GPU of a node's device plugin."""
    return pod_of(name, {DEVICE: "1"}, scheduler="default-scheduler", nodeName=node)


async def test_a_pod_waits_for_a_gpu_and_is_woken_by_its_joining(here: Scene) -> None:
    """It names the node where the GPU is to come from; no time has to pass after the GPU has joined."""
    here.show(here.pod("a", SMALL))
    await here.settle()
    assert here.is_unschedulable("a")
    assert here.refusal("a") == "0/2 nodes are available: 2 node(s) acquiring a GPU (on n1, n2)."
    here.show(reservation("r", "n1"))
    await here.settle_after_backoff()
    assert not here.is_placed("a")
    assert "acquiring a GPU (on n1, n2)" in here.refusal("a")
    here.show(reservation("r", "n1", "GPU-n1-1"))
    await here.settle_after_backoff()
    assert here.ledger.on_gpu(NodeName("n1"), GpuUuid("GPU-n1-1"))
    assert not here.missed()


async def test_gpus_outside_of_the_pool_have_no_room(here: Scene) -> None:
    """A second pod goes to the GPU that is there, and a third, which needs more, waits for another one."""
    here.show(reservation("r", "n2", "GPU-n2-0"))
    for name, limits in (("a", {MEMORY: "8Gi"}), ("b", {MEMORY: "8Gi"}), ("c", {MEMORY: "20Gi"})):
        here.show(here.pod(name, limits))
    await here.settle()
    assert len(here.ledger.on_gpu(NodeName("n2"), GpuUuid("GPU-n2-0"))) == 2
    assert "node(s) acquiring a GPU (on n1, n2)" in here.refusal("c")


async def test_people_see_all_gpus_and_no_room_outside_of_the_pool(here: Scene) -> None:
    """In the rows of nodes, and in the scores that the list in Redis gets, which change as a GPU joins."""
    rows = NodeRows(here.decider)
    here.show(reservation("r", "n1", "GPU-n1-1"))

    async def free_gib() -> list[float]:
        [row] = [one async for one in rows.best_first()]
        nodes = json.loads(f"[{row.decode()}]")
        return [gpu["free_bytes"] / GIB for node in nodes if node["node"] == "n1" for gpu in node["gpus"]]

    assert await free_gib() == [0, 24]
    scores = {
        room.gpu.uuid: room.free_ratio
        for room in here.decider.candidates.rooms_of(here.reports[NodeName("n1")])
    }
    assert scores == {"GPU-n1-0": 0, "GPU-n1-1": 1}
    here.decider.candidates.take_rebooked()
    here.show(reservation("r2", "n1", "GPU-n1-0"))
    assert "n1" in here.decider.candidates.take_rebooked()
    assert await free_gib() == [24, 24]


async def test_what_no_new_gpu_would_help_is_not_acquired(here: Scene) -> None:
    """A pod that is too large for any GPU, or whose node has no CPU left, gets a refusal that says so."""
    here.show(here.pod("large", {MEMORY: "30Gi"}))
    here.show(here.pod("several", {WHOLE: "3"}))
    here.show(here.pod("cpu", {**SMALL, "cpu": "100"}))
    await here.settle()
    assert "Insufficient plimsoll.dev/gpu-memory" in here.refusal("large")
    assert "too few fitting GPUs" in here.refusal("several")
    assert "Insufficient cpu" in here.refusal("cpu")
    assert not any("acquiring" in here.refusal(name) for name in ("large", "several", "cpu"))


async def test_native_pods_leave_fewer_gpus_to_acquire(here: Scene) -> None:
    """Where they have them all there is nothing to acquire, until one ends."""
    for name, node in (("x1", "n1"), ("x2", "n1"), ("x3", "n2"), ("x4", "n2")):
        here.show(native(name, node))
    here.show(here.pod("a", SMALL))
    await here.settle()
    assert (
        here.refusal("a")
        == "0/2 nodes are available: 2 node(s) had no free GPU in the pool, and none to acquire."
    )
    here.delete("x3")
    await here.settle_after_backoff()
    assert "1 node(s) acquiring a GPU (on n2)" in here.refusal("a")
    here.show(native("x3", "n2"))  # kube-scheduler was faster than the pool
    await here.settle_after_backoff()
    assert "acquiring" not in here.refusal("a")
    here.show(here.pod("two", {WHOLE: "2"}))
    here.delete("x4")
    await here.settle_after_backoff()
    assert "acquiring" not in here.refusal("two"), "one GPU is not two"


async def test_a_gpu_on_its_way_counts_as_one_that_may_join(here: Scene) -> None:
    """Although the device plugin has nothing left to give."""
    here.remove_node("n2")
    for name in ("r1", "r2"):
        here.show(reservation(name, "n1"))
    here.show(here.pod("a", SMALL))
    await here.settle()
    assert "1 node(s) acquiring a GPU (on n1)" in here.refusal("a")


async def test_dedicated_nodes_need_no_reservation(here: Scene) -> None:
    """All their GPUs are in the pool, with a device plugin or without one."""
    here.node("n2", {"plimsoll.dev/pool": "dedicated"})
    here.show(here.pod("a", {WHOLE: "2"}))
    await here.settle()
    assert here.is_placed("a")
    assert here.decider.pool.part(NodeName("n2")) == PoolPart(None)


async def test_a_vanished_reservation_closes_its_gpu_to_new_pods_alone(here: Scene) -> None:
    """Pods there count on, and the GPU takes pods again once it is reserved again."""
    here.parts.context.leads.set()
    here.show(reservation("r", "n1", "GPU-n1-0"))
    here.show(here.pod("a", SMALL))
    await here.settle()
    here.delete("r")
    here.show(here.pod("b", SMALL))
    await here.settle()
    assert here.is_placed("a")
    assert len(here.ledger.on_gpu(NodeName("n1"), GpuUuid("GPU-n1-0"))) == 1
    assert "acquiring" in here.refusal("b")
    here.show(reservation("r2", "n1", "GPU-n1-0"))
    await here.settle_after_backoff()
    assert len(here.ledger.on_gpu(NodeName("n1"), GpuUuid("GPU-n1-0"))) == 2
    told = cast("Published", here.parts.context.bus).pool
    assert [what for what, _ in told] == ["acquired", "lost", "acquired"]
    assert told[1][1].pods == ("a",)


@pytest.mark.parametrize("change", [{"labels": {}}, {"annotations": {NODE: "n2", GPU: "GPU-n2-0"}}])
async def test_a_pod_that_is_no_reservation_of_a_gpu_any_more_holds_it_no_more(
    here: Scene, change: dict[str, Any]
) -> None:
    """Also if the pod was changed by hand, lives on, and is deleted later."""
    here.parts.context.leads.set()
    held = reservation("r", "n1", "GPU-n1-0")
    here.show(held)
    here.show(msgspec.structs.replace(held, metadata=msgspec.structs.replace(held.metadata, **change)))
    here.show(here.pod("a", SMALL))
    await here.settle()
    here.delete("r")
    here.show(here.pod("b", SMALL))
    await here.settle_after_backoff()
    assert not here.ledger.on_gpu(NodeName("n1"), GpuUuid("GPU-n1-0"))
    assert [what for what, _ in cast("Published", here.parts.context.bus).pool][:2] == ["acquired", "lost"]


async def test_a_pinned_gpu_is_acquired(here: Scene) -> None:
    """By the UUID, whatever else is in the pool."""
    here.show(reservation("r", "n1", "GPU-n1-0"))
    here.show(here.pod("a", SMALL, annotations={"plimsoll.dev/gpu-id": "GPU-n1-1"}))
    await here.settle()
    assert "1 node(s) acquiring a GPU (on n1)" in here.refusal("a")
    here.show(reservation("r2", "n1", "GPU-n1-1"))
    await here.settle_after_backoff()
    assert here.ledger.on_gpu(NodeName("n1"), GpuUuid("GPU-n1-1"))


async def test_no_pod_ends_where_a_gpu_can_be_acquired(here: Scene) -> None:
    """Preemption waits for the new GPU."""
    here.parts.context.leads.set()
    here.parts.watches.on_budget(Synced())
    here.node("n2", {"plimsoll.dev/pool": "dedicated"})
    for name in ("low-1", "low-2"):
        here.show(here.pod(name, {MEMORY: "20Gi"}, priority=0))
    await here.settle()
    assert here.is_placed("low-1")
    assert here.is_placed("low-2")
    here.show(here.pod("high", {MEMORY: "20Gi"}, priority=1000))
    await here.settle()
    assert "acquiring" in here.refusal("high")
    assert here.cache.nominator.find(PodUid("high")) is None
    for name in ("x1", "x2"):
        here.show(native(name, "n1"))
    await here.settle_after_backoff()
    assert here.cache.nominator.find(PodUid("high")) is not None, "now there is none to acquire"


@pytest.fixture
async def unpooled() -> AsyncIterator[Scene]:
    """A cluster without a pool: one node of two GPUs."""
    async with scene() as made:
        made.node("n1")
        made.report("n1", 24, 24)
        yield made


def named(name: str) -> dict[str, str]:
    """The annotation that names a GPU."""
    return {"plimsoll.dev/gpu-id": name}


async def test_pods_with_one_name_share_one_gpu(unpooled: Scene) -> None:
    """A new name takes another GPU, also where the first has room; a third waits until a name is free."""
    for name, gpu in (("a1", "a"), ("b1", "b"), ("a2", "a"), ("a3", "a"), ("c1", "c")):
        unpooled.show(unpooled.pod(name, SMALL, annotations=named(gpu)))
        await unpooled.settle()
    on = [unpooled.ledger.on_gpu(NodeName("n1"), GpuUuid(f"GPU-n1-{index}")) for index in (0, 1)]
    assert sorted(sorted(one.pod for one in several) for several in on) == [["a1", "a2", "a3"], ["b1"]]
    assert unpooled.refusal("c1") == "0/1 nodes are available: 1 node(s) had GPUs of other names alone."
    unpooled.delete("b1")
    await unpooled.settle_after_backoff()
    assert unpooled.is_placed("c1")
    assert not unpooled.missed()


async def test_a_name_is_its_namespaces_own(unpooled: Scene) -> None:
    """Teams that choose the same name do not meet."""
    for namespace in ("team-a", "team-b"):
        pod = unpooled.pod(f"of-{namespace}", SMALL, annotations=named("gpu"))
        meta = msgspec.structs.replace(pod.metadata, namespace=namespace)
        unpooled.show(msgspec.structs.replace(pod, metadata=meta))
    await unpooled.settle()
    assert [len(unpooled.ledger.on_gpu(NodeName("n1"), GpuUuid(f"GPU-n1-{index}"))) for index in (0, 1)] == [
        1,
        1,
    ]


async def test_pods_without_a_name_share_any_gpu(unpooled: Scene) -> None:
    """A name keeps other names away, and nobody else. A GPU that is full keeps its name's pods waiting."""
    unpooled.show(unpooled.pod("a1", {MEMORY: "20Gi"}, annotations=named("a")))
    unpooled.show(unpooled.pod("b1", {MEMORY: "20Gi"}, annotations=named("b")))
    unpooled.show(unpooled.pod("any", SMALL))
    await unpooled.settle()
    assert unpooled.is_placed("any")
    unpooled.show(unpooled.pod("a2", {MEMORY: "8Gi"}, annotations=named("a")))
    await unpooled.settle()
    assert "Insufficient plimsoll.dev/gpu-memory" in unpooled.refusal("a2")
    unpooled.delete("b1")
    await unpooled.settle_after_backoff()
    assert not unpooled.is_placed("a2"), "another GPU has room, and not the name"
    unpooled.delete("a1")
    await unpooled.settle_after_backoff()
    assert unpooled.is_placed("a2")


async def test_a_name_that_is_free_again_may_go_elsewhere(unpooled: Scene) -> None:
    """A pod waited for the GPU of its name. The name is freed, and that GPU is too full, but another one is not."""
    unpooled.show(unpooled.pod("a1", {MEMORY: "2Gi"}, annotations=named("a")))
    await unpooled.settle()
    booking = unpooled.ledger.booking(PodUid("a1"))
    assert booking is not None
    gpu = booking.grants[0].gpu
    unpooled.show(unpooled.pod("filler", {MEMORY: "10Gi"}, annotations={"plimsoll.dev/gpu-id": gpu}))
    unpooled.node("n2")
    unpooled.report("n2", 24)
    unpooled.show(unpooled.pod("a2", {MEMORY: "20Gi"}, annotations=named("a")))
    await unpooled.settle_after_backoff()
    assert not unpooled.is_placed("a2")
    unpooled.delete("a1")
    await unpooled.settle_after_backoff()
    assert unpooled.is_placed("a2")


async def test_all_containers_of_a_pod_get_the_named_gpu(unpooled: Scene) -> None:
    """A new name is one GPU, however many containers ask."""
    pod = unpooled.pod("a", {MEMORY: "9Gi"}, more_limits=({MEMORY: "9Gi"},), annotations=named("a"))
    unpooled.show(pod)
    await unpooled.settle()
    booking = unpooled.ledger.booking(cast("Any", "a"))
    assert booking is not None
    assert len({grant.gpu for grant in booking.grants}) == 1


@dataclass
class Grants:
    """Takes patches in place of the API server, which would refuse those over an old version.

    Attributes:
        fails: the number of patches that are refused first.
    """

    bodies: list[Body] = field(default_factory=list)
    fails: int = 0

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`."""
        assert (path, kind) == ("/api/v1/namespaces/pool/pods/r", PatchKind.MERGE)
        if self.fails:
            self.fails -= 1
            raise ConflictError("another version", 409)
        self.bodies.append(body)
        return b""


async def test_a_release_is_granted_once_no_pod_is_there(here: Scene) -> None:
    """Not while a pod is booked, assumed pods included; over the version that was read alone; by the leader alone."""
    grants = Grants()
    watch: PoolWatch = here.parts.controllers.pool
    watch.transport = cast("Transport", grants)
    here.show(reservation("r", "n1", "GPU-n1-0"))
    here.show(here.pod("a", SMALL))
    await here.settle()
    asked = reservation("r", "n1", "GPU-n1-0", "asked", version=7)
    here.show(asked)
    here.show(here.pod("b", SMALL))
    await here.settle()
    assert "acquiring" in here.refusal("b"), "a GPU that is asked back takes no pod"
    here.show(reservation("unused", "n1", "GPU-n1-1", "asked", version=8))
    task = asyncio.create_task(watch.run())
    try:
        for _ in range(5):
            await asyncio.sleep(0)
        assert not grants.bodies, "this placer does not lead"
        here.delete("unused")
        here.parts.context.leads.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not grants.bodies, "a pod is there"
        here.delete("a")
        await until_true(lambda: grants.bodies)
        [body] = grants.bodies
        assert cast("Any", body["metadata"])["resourceVersion"] == "7"
        assert cast("Any", body["metadata"])["annotations"] == {RELEASE: "granted"}
    finally:
        task.cancel()
    here.show(reservation("r", "n1", "GPU-n1-0"))
    await here.settle_after_backoff()
    assert here.is_placed("b"), "the controller took the request back"


def test_a_reservation_is_read_as_the_kubelet_reports_it() -> None:
    """The card comes by the first container's message; a failed one, or one without a UUID, is a problem.

    The broker's annotation names the card earlier, and no longer than until there is a message.
    """

    def with_card(early: str = "", /, **terminated: Any) -> Pod:  # noqa: ANN401 - of the API
        pod = reservation("r", "n1")
        annotations = {**(pod.metadata.annotations or {}), CARD: early}
        metadata = msgspec.structs.replace(pod.metadata, annotations=annotations)
        pod = msgspec.structs.replace(pod, metadata=metadata)
        status = {"initContainerStatuses": [{"name": "card", "state": {"terminated": terminated}}]}
        return msgspec.structs.replace(pod, status=msgspec.convert(status, type(pod.status)))

    assert reservation_of(with_card(exitCode=0, message="GPU-1\n")).card == "GPU-1"
    for terminated in ({"exitCode": 1, "message": "no driver"}, {"exitCode": 0, "message": "two words, or,"}):
        found = reservation_of(with_card(**terminated))
        assert (found.card, found.problem) == (None, terminated["message"])
    assert reservation_of(with_card(exitCode=0, reason="Completed")).problem == "Completed"
    assert reservation_of(with_card("GPU-2", exitCode=1, message="no driver")).card == "GPU-2"
    assert reservation_of(with_card("GPU-2", exitCode=0, message="GPU-1")).card == "GPU-1"
    assert reservation_of(with_card("two words")).card is None
