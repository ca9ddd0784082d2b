"""A pod gets one place and the ledger is right, whether or not the answer of its bind arrives."""

import asyncio

import msgspec
import pytest

from placer.scheduler.binding.scope import WriteScope
from plimsoll.ids import PodUid
from plimsoll.kube.transport import ConflictError
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.lossy import (
    Bind,
    Fault,
    LossyBinds,
    after,
    find_expired,
    held,
    late,
    lose_answer,
    lose_request,
    refuse,
)
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import GPU_KEY, World, condition, gpu_of, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until_true

FAILURES = ("plimsoll_placer_bind_failures_total",)


async def test_lost_answer_never_places_a_pod_twice(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """After a lost answer the placer reads the pod: one write, one booking, one event."""
    binds = LossyBinds()
    binds.faults.append(lose_answer)
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await create_node(apiserver, "n2")
        await world.report("n1", 24)
        await world.report("n2", 20)
        created = await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        assert len(await world.events("p", "Scheduled")) == 1
        assert gpu_of(await world.pod("p")) == ("n1", "GPU-n1-0")
        assert binds.targets == ["n1"]
        assert [one.pod for one in world.ledger.bookings()] == [created["metadata"]["uid"]]
        assert [one.node for one in world.published.bound] == ["n1"]


async def test_lost_request_is_sent_again_to_the_same_place(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """While it is unknown whether a bind arrived, only the same bind is sent again and its room stays taken."""
    binds = LossyBinds()
    binds.faults.extend([lose_request, lose_request])
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        await world.until_bound("p")
        assert binds.targets == ["n1"] * 3
        assert len(list(world.ledger.bookings())) == 1


async def test_room_stays_taken_until_the_pod_could_be_read_after_an_unclear_bind(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """While neither the bind's answer nor the pod can be read, no other pod gets the room, and nothing wakes."""
    reached, release = asyncio.Event(), asyncio.Event()
    binds = LossyBinds()
    binds.faults.append(lose_answer)
    binds.read_faults.extend([lose_request, lose_request, held(reached, release)])
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        created = await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        await until_true(reached.is_set)
        await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "20Gi"}))
        await world.until_refused("next", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        await world.report("n1", 23)
        await world.report("n1", 24)
        assert [one.pod for one in world.ledger.bookings()] == [created["metadata"]["uid"]]
        release.set()
        assert len(await world.events("p", "Scheduled")) == 1
        assert set(binds.targets) == {"n1"}
        assert "nodeName" not in (await world.pod("next"))["spec"]
        assert [one.pod for one in world.ledger.bookings()] == [created["metadata"]["uid"]]


async def test_pod_bound_by_somebody_else_gives_its_room_back(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """After a conflict the placer reads the pod: the other scheduler's bind stands, and our room is free."""
    await create_node(apiserver, "n1")
    await create_node(apiserver, "elsewhere")
    path = f"/api/v1/namespaces/{namespace}/pods/p/binding"
    other = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "elsewhere"}}
    binds = LossyBinds()
    binds.faults.append(after(lambda: apiserver.must("POST", path, other)))
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        pod = await world.until_bound("p")
        assert pod["spec"]["nodeName"] == "elsewhere"
        await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "20Gi"}))
        assert gpu_of(await world.until_bound("next")) == ("n1", "GPU-n1-0")
        assert GPU_KEY not in (await world.pod("p"))["metadata"].get("annotations", {})
        assert [one.name for one in world.published.bound] == ["next"]


async def test_namesake_is_not_bound_in_place_of_the_pod_that_was_decided(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that replaces its namesake during the bind gets a decision of its own."""
    await create_node(apiserver, "n1")
    await create_node(apiserver, "n2")
    path = f"/api/v1/namespaces/{namespace}/pods/p?gracePeriodSeconds=0"

    async def replace() -> None:
        await apiserver.must("DELETE", path)
        namesake = pod_manifest("p", {MEMORY: "2Gi"})
        namesake["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n2"}
        await create_pod(apiserver, namespace, namesake)

    binds = LossyBinds()
    binds.faults.append(after(replace))
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await world.report("n1", 24)
        await world.report("n2", 10)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        pod = await world.until_bound("p")
        assert gpu_of(pod) == ("n2", "GPU-n2-0")
        assert [one.pod for one in world.ledger.bookings()] == [pod["metadata"]["uid"]]


async def test_deleting_a_pod_during_its_bind_frees_its_room_at_once(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """If a pod is deleted while its bind hangs, the next pod gets its room and keeps it."""
    reached, release = asyncio.Event(), asyncio.Event()
    binds = LossyBinds()
    binds.faults.append(held(reached, release))
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        await until_true(reached.is_set)
        await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "20Gi"}))
        await world.until_refused("next", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/p?gracePeriodSeconds=0")
        pod = await world.until_bound("next")
        release.set()
        await create_pod(apiserver, namespace, pod_manifest("last", {MEMORY: "20Gi"}))
        await world.until_refused("last", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        assert [one.pod for one in world.ledger.bookings()] == [pod["metadata"]["uid"]]


async def test_refused_bind_is_told_gives_its_room_back_and_is_tried_again(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A denied bind is reported on the pod, frees its room, and succeeds later."""
    binds = LossyBinds()
    binds.faults.extend([refuse, refuse])
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        pod = await world.until_refused("p", "Binding was refused: admission webhook denied the request")
        assert condition(pod)["reason"] == "SchedulerError"
        assert gpu_of(await world.until_bound("p")) == ("n1", "GPU-n1-0")
        assert binds.targets[:3] == ["n1"] * 3  # once more where its refusal had changed the pod's version


@pytest.mark.parametrize("last", [refuse, lose_request], ids=["refused", "given up"])
async def test_a_bind_without_a_clear_answer_keeps_its_room_until_it_cannot_arrive_any_more(
    apiserver: ApiServer,
    valkey: EmbeddedServer,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    last: Fault,
) -> None:
    """A write that is cut off and arrives long after the last attempt finds its room free: nobody else got it."""
    monkeypatch.setattr("placer.scheduler.binding.binding.ATTEMPTS", 2)
    monkeypatch.setattr("placer.scheduler.binding.binding.WRITE_LIFETIME_S", 3600.0)
    release, under_way = asyncio.Event(), list[asyncio.Task[bytes]]()
    binds = LossyBinds()
    binds.faults.extend([late(release, under_way), last])
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        await until_true(lambda: len(binds.targets) == 2)
        await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "20Gi"}))
        await world.until_refused("next", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        release.set()
        pod = await world.until_bound("p")
        await under_way[0]
        assert gpu_of(pod) == ("n1", "GPU-n1-0")
        assert "nodeName" not in (await world.pod("next"))["spec"]
        assert [one.pod for one in world.ledger.bookings()] == [pod["metadata"]["uid"]]


async def test_a_bind_that_surely_never_arrived_gives_its_room_back(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once no write can arrive any more, a read shows that the pod is not bound, and the pod is decided anew."""
    monkeypatch.setattr("placer.scheduler.binding.binding.ATTEMPTS", 2)
    monkeypatch.setattr("placer.scheduler.binding.binding.WRITE_LIFETIME_S", 0.5)
    binds = LossyBinds()
    binds.faults.extend([lose_request, lose_request])
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "20Gi"}))
        await world.until_refused("p", "Binding was refused: the request was lost")
        assert gpu_of(await world.until_bound("p")) == ("n1", "GPU-n1-0")
        assert binds.targets[:3] == ["n1"] * 3  # once more where its refusal had changed the pod's version


async def test_a_bind_without_a_clear_answer_delays_no_other_pod(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a bind waits until no write can arrive any more, its place among the binds under way is another's."""
    monkeypatch.setattr("placer.scheduler.binding.binding.ATTEMPTS", 2)
    monkeypatch.setattr("placer.scheduler.binding.binding.WRITE_LIFETIME_S", 3600.0)
    binds = LossyBinds()
    binds.faults.extend([lose_request, lose_request])
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around, binds_at_once=1) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        await until_true(lambda: len(binds.targets) == 2)
        await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "10Gi"}))
        assert gpu_of(await world.until_bound("next")) == ("n1", "GPU-n1-0")
        assert "nodeName" not in (await world.pod("p"))["spec"]
        await apiserver.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/p?gracePeriodSeconds=0")


async def test_a_change_during_a_bind_counts_in_the_next_attempt(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that asks for another model while its bind is refused is decided by what it asks for now."""
    reached, release = asyncio.Event(), asyncio.Event()

    async def hold_and_refuse(bind: Bind) -> bytes:
        reached.set()
        await release.wait()
        return await refuse(bind)

    binds = LossyBinds()
    binds.faults.append(hold_and_refuse)
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        await until_true(reached.is_set)
        change = {"metadata": {"annotations": {"plimsoll.dev/gpu-model": "of-nobody"}}}
        changed = await apiserver.must("PATCH", f"/api/v1/namespaces/{namespace}/pods/p", change)
        await until_true(lambda: _shows(world, changed))
        release.set()
        await world.until_refused("p", "1 node(s) didn't have a GPU of the requested model")
        assert binds.targets == ["n1"]


@pytest.mark.parametrize("unclear", [False, True], ids=["in time", "after an unclear bind"])
async def test_a_pod_edited_between_decision_and_bind_is_bound_at_once_and_once(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, *, unclear: bool
) -> None:
    """An edit that no decision reads costs one more write: same place, one event, and no refusal."""
    path = f"/api/v1/namespaces/{namespace}/pods/p/status"
    status = {"conditions": [{"type": "example.com/of-a-user", "status": "True"}]}
    binds = LossyBinds()
    release, under_way = asyncio.Event(), list[asyncio.Task[bytes]]()
    if unclear:
        binds.faults.append(late(release, under_way))
    binds.faults.append(after(lambda: apiserver.must("PATCH", path, {"status": status})))
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await create_node(apiserver, "n2")
        await world.report("n1", 24)
        await world.report("n2", 20)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        assert gpu_of(await world.until_bound("p")) == ("n1", "GPU-n1-0")
        assert len(await world.events("p", "Scheduled")) == 1
        assert set(binds.targets) == {"n1"}
        assert world.metrics.registry.get_sample_value(*FAILURES, {"result": "changed"}) is None
        for late_bind in under_way:
            release.set()
            with pytest.raises(ConflictError):
                await late_bind
        assert await _refusals(world) == []


async def test_a_pod_that_asks_for_something_else_before_its_bind_is_decided_anew(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A bind never gives a pod what it no longer asks for, even if the watch has not shown the edit: no refusal."""
    edit = {"metadata": {"annotations": {"plimsoll.dev/gpu-model": "other"}}}
    path = f"/api/v1/namespaces/{namespace}/pods/p"
    binds = LossyBinds()
    binds.faults.append(after(lambda: apiserver.must("PATCH", path, edit)))
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        await world.until_refused("p", "didn't have a GPU of the requested model")
        assert binds.targets == ["n1"]
        assert world.metrics.registry.get_sample_value(*FAILURES, {"result": "changed"}) == 1
        assert all("Binding was refused" not in note for note in await _refusals(world))
        assert list(world.ledger.bookings()) == []


async def test_a_pod_that_was_refused_before_is_bound_by_one_write(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The placer's own condition gives a pod another version, and costs no bind."""
    binds = LossyBinds()
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 4)
        created = await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        refused = await world.until_refused("p", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        assert refused["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
        await until_true(lambda: _shows(world, refused))
        await world.report("n1", 24)
        await world.until_bound("p")
        assert binds.targets == ["n1"]


async def test_a_bind_that_is_answered_with_410_is_cleared_up_like_a_conflict(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The scheduler goes on, and the pod is read and bound later; a pod that changed is bound at once."""
    path = f"/api/v1/namespaces/{namespace}/pods/p/status"
    status = {"conditions": [{"type": "example.com/of-a-user", "status": "True"}]}

    async def edit_and_expire(bind: Bind) -> bytes:
        await apiserver.must("PATCH", path, {"status": status})
        return await find_expired(bind)

    binds = LossyBinds()
    binds.faults.extend([edit_and_expire, find_expired])
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        await world.until_refused("p", "Binding was refused: the version is too old")
        assert gpu_of(await world.until_bound("p")) == ("n1", "GPU-n1-0")
        assert binds.targets[:3] == ["n1"] * 3  # once more where its refusal had changed the pod's version


async def test_gated_pod_waits_until_its_gates_are_open(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod with scheduling gates is not tried, and is bound once the last gate is removed."""
    binds = LossyBinds()
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        gated = pod_manifest("gated", {MEMORY: "1Gi"})
        gated["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
        await create_pod(apiserver, namespace, gated)
        await create_pod(apiserver, namespace, pod_manifest("open", {MEMORY: "1Gi"}))
        await world.until_bound("open")
        assert binds.targets == ["n1"]
        path = f"/api/v1/namespaces/{namespace}/pods/gated"
        await apiserver.must("PATCH", path, {"spec": {"schedulingGates": None}})
        await world.until_bound("gated")


async def _refusals(world: World) -> list[str]:
    """The notes of all events about refusals."""
    events = await world.api.get(f"/apis/events.k8s.io/v1/namespaces/{world.namespace}/events")
    return [one["note"] for one in events["items"] if one["reason"] == "FailedScheduling"]


def _shows(world: World, stored: Object) -> bool:
    """Whether the watch has shown this version of a pod that waits."""
    waiting = world.parts.core.queue.get(PodUid(stored["metadata"]["uid"]))
    assert waiting is not None
    return bool(waiting.pod.metadata.resourceVersion == stored["metadata"]["resourceVersion"])


async def test_a_pod_that_waits_for_its_turn_to_be_bound_is_in_each_scope(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A renewal of the Lease between a pod's decision and its bind has no bind wait, nor asks for another renewal."""
    reached, release = asyncio.Event(), asyncio.Event()

    async def hold(bind: Bind) -> bytes:
        reached.set()
        await release.wait()
        return await bind()

    binds = LossyBinds()
    binds.faults.append(hold)
    async with scheduler(apiserver, valkey, namespace, wrap=binds.around, binds_at_once=1) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("held", {MEMORY: "1Gi"}))
        await until_true(reached.is_set)
        created = await create_pod(apiserver, namespace, pod_manifest("next", {MEMORY: "1Gi"}))
        uid, core = PodUid(created["metadata"]["uid"]), world.parts.core
        await until_true(lambda: core.profile.cache.is_assumed(uid))
        renewals: list[str] = []
        core.scopes.hurry = lambda: renewals.append("one more")
        note = core.scopes.next(version=2**40)  # so late that no pod is in the window
        core.scopes.stored()
        assert uid in msgspec.json.decode(note, type=WriteScope).pods
        release.set()
        await world.until_bound("next")
        assert renewals == []
