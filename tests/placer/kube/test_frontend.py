"""The scheduler on a real API server places each pod once, where room is, with node and GPU in one write."""

import asyncio
import json

from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.world import condition, gpu_of, scheduler
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import until


async def test_pod_is_bound_where_room_is_with_the_gpu_in_the_same_write(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod is bound to the node and GPU with room; one version of it brings node, GPU and decision together."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "full")
        await create_node(apiserver, "roomy")
        await world.report("full", 1)
        await world.report("roomy", 2, 20)
        created = await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "4Gi", SHARE: "30"}))
        pod = await world.until_bound("p")
        assert gpu_of(pod) == ("roomy", "GPU-roomy-1")
        decision = json.loads(pod["metadata"]["annotations"]["plimsoll.dev/decision"])
        assert decision["policy"] == "headroom"
        assert 0 < decision["score"] <= 1
        assert decision["containers"] == {
            "main": [
                {
                    "gpu": "GPU-roomy-1",
                    "memory_bytes": 4 * GIB,
                    "line_bytes": 4 * GIB,
                    "share_pct": 30,
                }
            ]
        }
        assert condition(pod)["status"] == "True"
        query = f"watch=1&timeoutSeconds=1&resourceVersion={created['metadata']['resourceVersion']}"
        path = f"/api/v1/namespaces/{namespace}/pods?{query}"
        headers = {"Authorization": f"Bearer {apiserver.token}"}
        async with apiserver.http.get(path, headers=headers) as answer:
            first = json.loads((await answer.text()).splitlines()[0])["object"]
        assert gpu_of(first) == ("roomy", "GPU-roomy-1")
        (event,) = await world.events("p", "Scheduled")
        assert event["note"] == f"Successfully assigned {namespace}/p to roomy"
        assert [(one.name, one.node, one.gpus) for one in world.published.bound] == [
            ("p", "roomy", {"main": ["GPU-roomy-1"]})
        ]


async def test_pods_that_arrive_together_never_share_what_only_one_can_have(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Pods that arrive together are placed only as far as their declarations fit."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24, 24)
        manifests = [pod_manifest(f"p{index}", {MEMORY: "10Gi"}) for index in range(8)]
        await asyncio.gather(*(create_pod(apiserver, namespace, manifest) for manifest in manifests))

        async def look() -> list[tuple[str, str]] | None:
            pods = [await world.pod(f"p{index}") for index in range(8)]
            bound = [pod for pod in pods if pod["spec"].get("nodeName")]
            refused = [pod for pod in pods if "on one GPU" in condition(pod).get("message", "")]
            return sorted(gpu_of(pod) for pod in bound) if len(bound) + len(refused) == 8 else None

        places = await until(look)
        assert places == [("n1", "GPU-n1-0")] * 2 + [("n1", "GPU-n1-1")] * 2


async def test_unschedulable_pod_says_exactly_why_and_is_placed_when_a_report_brings_room(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The condition and one event list each node's reason. A new report of a node with room places the pod."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "small-cpu", {"cpu": "1"})
        await create_node(apiserver, "tainted", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])
        await create_node(apiserver, "silent")
        await create_node(apiserver, "busy")
        await world.report("small-cpu", 24)
        await world.report("tainted", 24)
        await world.report("busy", 1)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "4Gi", "cpu": "2"}))
        text = (
            "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient plimsoll.dev/gpu-memory on one GPU "
            "(most free: 1Gi on busy), 1 node(s) had no GPU report, 1 node(s) had untolerated taint {k: v}."
        )
        pod = await world.until_refused("p", text)
        assert condition(pod)["message"] == text
        assert (condition(pod)["status"], condition(pod)["reason"]) == ("False", "Unschedulable")
        # A node that arrives a moment after the pod causes an earlier, different event, and never a second equal one.
        (event,) = [one for one in await world.events("p", "FailedScheduling") if one["note"] == text]
        assert (event["type"], event["action"]) == ("Warning", "Scheduling")
        await world.report("silent", 24)
        assert gpu_of(await world.until_bound("p")) == ("silent", "GPU-silent-0")
        assert [one.reason for one in world.published.refused].count(text) == 1


async def test_malformed_and_unhandled_pods_are_refused_by_name_and_others_go_on(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that cannot be parsed gets field, value and remedy in an event, and the next pod is placed."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("greedy", {SHARE: "101"}))
        claiming = pod_manifest("claiming", {MEMORY: "1Gi"})
        claiming["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "c"}]
        await create_pod(apiserver, namespace, claiming)
        unknown = pod_manifest("typo", {MEMORY: "1Gi"}, annotations={"plimsoll.dev/policies": "headroom"})
        await create_pod(apiserver, namespace, unknown)
        await create_pod(apiserver, namespace, pod_manifest("sound", {MEMORY: "1Gi"}))
        await world.until_bound("sound")
        await world.until_refused("greedy", "spec.containers[main].resources[plimsoll.dev/gpu-share]: '101'")
        await world.until_refused("claiming", "spec.resourceClaims: '1 claim(s)' is not handled")
        refused = await world.until_refused("typo", "did you mean plimsoll.dev/policy?")
        assert "nodeName" not in refused["spec"]
        (event,) = await world.events("greedy", "FailedScheduling")
        assert "give at most 100" in event["note"]
        patch = {"metadata": {"annotations": {"plimsoll.dev/policies": None}}}
        await apiserver.must("PATCH", f"/api/v1/namespaces/{namespace}/pods/typo", patch)
        await world.until_bound("typo")


async def test_answers_that_a_tenant_wrote_in_advance_are_refused_by_name(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """Without the admission policy too, a pod cannot bring its own line, its own share, or a GPU of its choice."""
    forged = {
        "gpus": ("gpus.plimsoll.dev/other", "GPU-n1-0"),
        "decision": ("plimsoll.dev/decision", "{}"),
    }
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        for name, (annotation, value) in forged.items():
            manifest = pod_manifest(name, {MEMORY: "1Gi"}, annotations={annotation: value})
            await create_pod(apiserver, namespace, manifest)
        for name, (annotation, _) in forged.items():
            refused = await world.until_refused(name, f"metadata.annotations[{annotation}]")
            assert "recreate the pod without it" in condition(refused)["message"]
            assert "nodeName" not in refused["spec"]


async def test_pod_without_gpu_is_placed_by_node_fit_alone(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod without a GPU request goes to any node that fits, also to one that never reported."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "tiny", {"cpu": "1"})
        await create_node(apiserver, "large")
        await create_pod(apiserver, namespace, pod_manifest("p", {"cpu": "4"}))
        pod = await world.until_bound("p")
        assert pod["spec"]["nodeName"] == "large"
        assert "plimsoll.dev/decision" not in pod["metadata"].get("annotations", {})


async def test_restart_counts_what_is_bound_before_it_binds_more(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A new scheduler reads from annotations alone which room its predecessor gave away."""
    await create_node(apiserver, "n1")
    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("first", {MEMORY: "20Gi", SHARE: "60"}))
        await world.until_bound("first")
    await create_pod(apiserver, namespace, pod_manifest("second", {MEMORY: "20Gi"}))
    async with scheduler(apiserver, valkey, namespace) as world:
        await world.report("n1", 24)
        await world.until_refused("second", "1 Insufficient plimsoll.dev/gpu-memory on one GPU")
        (booking,) = world.ledger.bookings()
        (grant,) = booking.grants
        assert (grant.gpu, grant.memory_bytes, grant.share_pct) == ("GPU-n1-0", 20 * GIB, 60)


async def test_nothing_is_bound_before_reports_are_loaded(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """No pod is placed before all reports are loaded, not even one without a GPU request."""
    async with scheduler(apiserver, valkey, namespace, loaded=False) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, pod_manifest("p"))
        await asyncio.sleep(1)  # long enough: the same pod is otherwise bound in well under 0.1 s
        assert "nodeName" not in (await get_pod(apiserver, namespace, "p"))["spec"]


async def test_other_schedulers_pods_are_counted_and_left_alone(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The scheduler never binds another scheduler's pod, and counts its CPU once it is bound."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1", {"cpu": "4"})
        await world.report("n1", 24)
        foreign = pod_manifest("foreign", {"cpu": "3"}, scheduler="default-scheduler")
        await create_pod(apiserver, namespace, foreign)
        bind = {"metadata": {"name": "foreign"}, "target": {"kind": "Node", "name": "n1"}}
        assert "nodeName" not in (await world.pod("foreign"))["spec"]
        await apiserver.must("POST", f"/api/v1/namespaces/{namespace}/pods/foreign/binding", bind)
        await create_pod(apiserver, namespace, pod_manifest("p", {"cpu": "2"}))
        await world.until_refused("p", "0/1 nodes are available: 1 Insufficient cpu.")
