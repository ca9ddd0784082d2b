"""Pods that pass their lines are reported, and evicted through the API server where the setting says so.

No kubelet runs here, so an evicted pod stays, with its deletion timestamp, until its test is over.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from placer.kube.evictions import EvictionRules, OnViolation
from plimsoll.bus.subjects import limit_subject, state_subject
from plimsoll.envelope import encode, fact_id
from plimsoll.events import Limit, Report
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import bus, report
from tests.placer.core.worlds import gpu, task
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, scheduler
from tests.placer.placers import free_lease, placers
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import until, until_true

RULES = EvictionRules(OnViolation.EVICT, grace_s=0.0, pause_s=0.0, retry_s=0.5)
GPU = "GPU-n1-0"


@asynccontextmanager
async def site(
    api: ApiServer, valkey: EmbeddedServer, namespace: str, rules: EvictionRules = RULES
) -> AsyncIterator[World]:
    """A scheduler with these rules, and a node with one GPU."""
    async with scheduler(api, valkey, namespace, evictions=rules) as world:
        await create_node(api, "n1")
        await world.report("n1", 24)
        yield world


async def running(world: World, name: str, labels: dict[str, str] | None = None, **spec: str) -> Object:
    """A pod with a line of 4 GiB that its kubelet reports as running."""
    manifest = pod_manifest(name, {MEMORY: "4Gi"})
    manifest["metadata"]["labels"] = labels or {}
    manifest["spec"] |= {"terminationGracePeriodSeconds": 600, **spec}
    await create_pod(world.api, world.namespace, manifest)
    bound = await world.until_bound(name)
    path = f"/api/v1/namespaces/{world.namespace}/pods/{name}/status"
    ready = {"type": "Ready", "status": "True"}
    await world.api.must("PATCH", path, {"status": {"phase": "Running", "conditions": [ready]}})
    return bound


async def passes(world: World, *pods: Object, gib: int = 6, times: int = 3) -> None:
    """The audit accuses these pods, and reports show each of them with this much memory."""
    uids = [pod["metadata"]["uid"] for pod in pods]
    for uid in uids:
        world.parts.controllers.evictions.suspect(PodUid(uid), GpuUuid(GPU))
    for _ in range(times):
        await world.report("n1", 24 - gib * len(uids), tasks=tuple(task(uid, GPU, gib * GIB) for uid in uids))
        await asyncio.sleep(0)


def is_ending(pod: Object) -> bool:
    """Whether the pod was evicted or deleted."""
    return "deletionTimestamp" in pod["metadata"]


async def test_a_pod_past_its_line_is_evicted_with_its_grace_period(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The eviction API ends the pod, an event on the pod says why, and other pods stay."""
    async with site(apiserver, valkey, namespace) as world:
        greedy, modest = await running(world, "greedy"), await running(world, "modest")
        world.parts.controllers.evictions.suspect(PodUid(modest["metadata"]["uid"]), GpuUuid(GPU))
        await passes(world, greedy)
        ended = await world.until("greedy", is_ending)
        assert ended["metadata"]["deletionGracePeriodSeconds"] == 600
        reasons = [
            one["reason"] for one in ended["status"]["conditions"] if one["type"] == "DisruptionTarget"
        ]
        assert reasons == ["EvictionByEvictionAPI"]
        (event,) = await world.events("greedy", "Evicted")
        assert (
            event["note"] == f"The pod holds 6Gi on GPU {GPU} by NVML, past its line of 4Gi. It was evicted."
        )
        assert (event["type"], event["action"]) == ("Warning", "Evicting")
        await passes(world, greedy)
        assert not is_ending(await world.pod("modest"))
        assert world.metrics.evictions.attempts.labels("evicted")._value.get() == 1


async def test_by_default_the_pod_is_told_of_and_runs_on(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Without the setting an event says what is wrong, and nothing is evicted."""
    assert EvictionRules().on_violation is OnViolation.REPORT
    rules = EvictionRules(grace_s=0.0, pause_s=0.0)
    async with site(apiserver, valkey, namespace, rules) as world:
        await passes(world, await running(world, "greedy"))
        (event,) = await world.events("greedy", "LinePassed")
        assert event["note"] == (
            f"The pod holds 6Gi on GPU {GPU} by NVML, past its line of 4Gi. "
            "It runs on: PLIMSOLL_ON_VIOLATION is report."
        )
        assert not is_ending(await world.pod("greedy"))


@pytest.mark.parametrize("rule", [OnViolation.EVICT, OnViolation.EVICT_ALL])
async def test_a_pod_of_another_scheduler_is_evicted_only_where_that_was_said(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, rule: OnViolation
) -> None:
    """A pod with a decision that another scheduler placed, as through the extender, needs `evict-all`."""
    rules = EvictionRules(rule, grace_s=0.0, pause_s=0.0)
    async with site(apiserver, valkey, namespace, rules) as world:
        ours = await running(world, "ours")
        keys = ("plimsoll.dev/decision", "gpus.plimsoll.dev/main")
        given = {key: ours["metadata"]["annotations"][key] for key in keys}
        other = pod_manifest("theirs", {MEMORY: "4Gi"}, annotations=given, scheduler="default-scheduler")
        other["spec"] |= {"nodeName": "n1", "terminationGracePeriodSeconds": 600}
        theirs = await create_pod(apiserver, namespace, other)
        uid = PodUid(theirs["metadata"]["uid"])
        await until_true(lambda: world.ledger.booking(uid) is not None)
        await passes(world, theirs)
        if rule is OnViolation.EVICT:
            (event,) = await world.events("theirs", "LinePassed")
            assert "another scheduler placed it" in event["note"]
            assert not is_ending(await world.pod("theirs"))
        else:
            await world.until("theirs", is_ending)
        assert not is_ending(await world.pod("ours"))


async def test_a_disruption_budget_is_respected_and_the_eviction_tried_again(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A budget that allows nothing refuses, the pod's event says so, and once it allows one the pod is evicted."""
    async with site(apiserver, valkey, namespace) as world:
        greedy = await running(world, "greedy", {"app": "web"})
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        budget = {
            "metadata": {"name": "web"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        made = await apiserver.must("POST", path, budget)

        async def allow(pods: int) -> None:
            counts = {
                "disruptionsAllowed": pods,
                "currentHealthy": 1 + pods,
                "desiredHealthy": 1,
                "expectedPods": 2,
            }
            status = {**counts, "observedGeneration": made["metadata"]["generation"]}
            await apiserver.must("PATCH", f"{path}/web/status", {"status": status})

        await allow(0)
        await passes(world, greedy)
        (event,) = await world.events("greedy", "EvictionRefused")
        assert "Cannot evict pod as it would violate the pod's disruption budget" in event["note"]
        assert "tried again in 0.5 s" in event["note"]
        assert not is_ending(await world.pod("greedy"))
        refused = world.metrics.evictions.attempts.labels("refused")._value
        tried = refused.get()
        await until_true(lambda: refused.get() > tried)
        await allow(1)
        await world.until("greedy", is_ending)
        await world.events("greedy", "Evicted")


async def test_a_pod_that_came_back_under_its_line_is_spared(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Between two attempts the pod gives memory back, and nothing is tried again."""
    async with site(apiserver, valkey, namespace) as world:
        greedy = await running(world, "greedy", {"app": "web"})
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        await apiserver.must("POST", path, {"metadata": {"name": "web"}, "spec": spec})
        await passes(world, greedy)
        await world.events("greedy", "EvictionRefused")
        await passes(world, greedy, gib=4, times=1)
        await until_true(lambda: world.metrics.evictions.violating_pods._value.get() == 0)
        await apiserver.must("DELETE", f"{path}/web")
        later = await running(world, "later")
        await passes(world, later)
        await world.until("later", is_ending)
        assert not is_ending(await world.pod("greedy"))


async def accuse(jetstream: JetStreamContext, pod: Object, gib: int, reports: int) -> None:
    """The monitor publishes the audit's finding, and then reports of the pod's memory."""
    uid = PodUid(pod["metadata"]["uid"])
    found = Limit(node=NodeName("n1"), gpu=GpuUuid("GPU-n1"), pod=uid, container=ContainerName("main"))
    time = "2026-01-01T00:00:00Z"
    for what in ("violated", "unenforced"):
        body = encode(f"limit.{what}", fact_id(what, uid), "/nodes/n1", time, found)
        await jetstream.publish(limit_subject(what, NodeName("n1")), body)
    for seq in range(10, 10 + reports):
        state = report("n1", seq, gpus=(gpu("GPU-n1", task(uid, "GPU-n1", gib * GIB)),))
        body = encode("node.state", fact_id(uid, seq), "/nodes/n1", time, Report(state=state))
        await jetstream.publish(state_subject(NodeName("n1")), body)


async def test_a_placer_that_starts_reads_the_findings_that_it_missed(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer, namespace: str
) -> None:
    """The audit announces a finding once, while no placer runs; the next placer evicts the pod all the same."""
    settings = {"nats_url": nats.url, "redis_url": valkey.url, "kubeconfig": str(apiserver.kubeconfig())}
    await free_lease(apiserver)
    async with bus(nats) as jetstream, placers(tmp_path, **settings) as starts:
        await create_node(apiserver, "n1")
        state = report("n1", 1, gpus=(gpu("GPU-n1"),))
        body = encode("node.state", fact_id("first"), "/nodes/n1", state.time, Report(state=state))
        await jetstream.publish(state_subject(NodeName("n1")), body)
        first = await starts.start("placer")
        manifest = pod_manifest("greedy", {MEMORY: "4Gi"})
        manifest["spec"]["terminationGracePeriodSeconds"] = 600
        await create_pod(apiserver, namespace, manifest)

        async def look() -> Object | None:
            pod = await get_pod(apiserver, namespace, "greedy")
            return pod if pod["spec"].get("nodeName") else None

        greedy = await until(look)
        assert greedy is not None
        first.process.kill()
        await first.ended()
        await accuse(jetstream, greedy, 6, reports=1)
        await free_lease(apiserver)
        await starts.start("placer", on_violation="evict", violation_grace_s="1")
        seqs = iter(range(100, 10_000))

        async def is_evicted() -> bool:
            """Each reading is a heartbeat of the node."""
            uid = greedy["metadata"]["uid"]
            seq = next(seqs)
            state = report("n1", seq, gpus=(gpu("GPU-n1", task(uid, "GPU-n1", 6 * GIB)),))
            body = encode("node.state", fact_id(uid, seq), "/nodes/n1", state.time, Report(state=state))
            await jetstream.publish(state_subject(NodeName("n1")), body)
            return is_ending(await get_pod(apiserver, namespace, "greedy"))

        await until(is_evicted)
