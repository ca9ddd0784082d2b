"""Relocation on a real API server, with the controllers that make replacements.

No kubelet runs here: a test reports its pods as running, and ends those that were evicted.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from placer.relocation.rules import RelocationMode, RelocationRules
from placer.scheduler.preemption import executor
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.deploy.accounts import rights_of
from tests.placer.kube.objects import SHARE
from tests.placer.kube.world import World, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.controllers import controllers
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.waiting import until

RULES = RelocationRules(RelocationMode.ON, after_s=0.5, rest_s=0.0)
CONTROLLERS = ("deployment-controller", "replicaset-controller")


@asynccontextmanager
async def deployment(api: ApiServer, namespace: str, directory: Path) -> AsyncIterator[None]:
    """A Deployment of one pod that wants half a GPU and may be moved, and its controllers."""
    template = pod_manifest("web", {SHARE: "50"}, annotations={"plimsoll.dev/relocation-cost": "1"})
    template["metadata"] = {"annotations": template["metadata"]["annotations"], "labels": {"app": "web"}}
    template["spec"]["terminationGracePeriodSeconds"] = 600
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    path = f"/apis/apps/v1/namespaces/{namespace}"
    async with controllers(api.plane, CONTROLLERS, directory):
        await api.must("POST", f"{path}/deployments", {"metadata": {"name": "web"}, "spec": spec})
        try:
            yield
        finally:
            await api.must("DELETE", f"{path}/deployments/web")
            await api.must("DELETE", f"{path}/replicasets")


async def web_pods(world: World) -> list[Object]:
    """The pods of the Deployment that do not end."""
    path = f"/api/v1/namespaces/{world.namespace}/pods?labelSelector=app%3Dweb"
    return [one for one in (await world.api.get(path))["items"] if "deletionTimestamp" not in one["metadata"]]


async def bound_web(world: World, *, other_than: str = "") -> Object:
    """The pod of the Deployment once it has a node; another one than this."""

    async def look() -> Object | None:
        pods = [one for one in await web_pods(world) if one["metadata"]["name"] != other_than]
        return next((one for one in pods if one["spec"].get("nodeName")), None)

    found = await until(look)
    assert found is not None
    return found


async def run(world: World, pod: Object) -> None:
    """The kubelet reports a pod as running."""
    path = f"/api/v1/namespaces/{world.namespace}/pods/{pod['metadata']['name']}/status"
    ready = {"type": "Ready", "status": "True"}
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "conditions": [ready]}
    await world.api.must("PATCH", path, {"status": status})


async def end(world: World, pod: Object) -> None:
    """The kubelet ends an evicted pod."""
    name = pod["metadata"]["name"]
    await world.api.must("DELETE", f"/api/v1/namespaces/{world.namespace}/pods/{name}?gracePeriodSeconds=0")


async def fragments(world: World) -> Object:
    """The Deployment's pod on one node, and a pod of the same size that stays on the other; returns the first."""
    first = await bound_web(world)
    await run(world, first)
    place = "n2" if first["spec"]["nodeName"] == "n1" else "n1"
    stone = pod_manifest("stone", {SHARE: "50"})
    stone["spec"]["nodeSelector"] = {"kubernetes.io/hostname": place}
    await create_pod(world.api, world.namespace, stone)
    await world.until_bound("stone")
    return first


async def nodes(world: World) -> None:
    """Both nodes report one idle GPU."""
    for name in ("n1", "n2"):
        await world.report(name, 24)


async def test_a_pod_moves_once_its_budget_allows_it_and_both_pods_run(
    apiserver: ApiServer,
    valkey: EmbeddedServer,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused eviction moves nothing and says so. An allowed one ends with both pods placed."""
    monkeypatch.setattr(executor, "SPARED_S", 0.5)
    monkeypatch.setattr(executor, "REFUSED_PAUSE_S", 0.2)
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budget = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 0},
    }
    made = await apiserver.must("POST", budgets, budget)
    # The budget's controller has not seen this version yet, so the API server refuses each eviction with 429.
    allowed = {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1}
    await apiserver.must("PATCH", f"{budgets}/web/status", {"status": allowed})
    for name in ("n1", "n2"):
        await create_node(apiserver, name)
    async with (
        deployment(apiserver, namespace, tmp_path / "controllers"),
        rights(apiserver, namespace) as kubeconfig,
        scheduler(apiserver, valkey, namespace, relocation=RULES, kubeconfig=kubeconfig) as world,
    ):
        await nodes(world)
        first = await fragments(world)
        await create_pod(apiserver, namespace, pod_manifest("wide", {SHARE: "90"}))
        name, node = first["metadata"]["name"], first["spec"]["nodeName"]

        async def is_refused() -> bool:
            notes = [one["note"] for one in await world.events("wide", "FailedScheduling")]
            return any("was not evicted" in one for one in notes)

        await until(is_refused)
        assert [one["metadata"]["name"] for one in await web_pods(world)] == [name]
        status = {**allowed, "observedGeneration": made["metadata"]["generation"]}
        await apiserver.must("PATCH", f"{budgets}/web/status", {"status": status})
        ended = await world.until(name, lambda pod: "deletionTimestamp" in pod["metadata"])
        second = await bound_web(world, other_than=name)
        assert second["spec"]["nodeName"] != node
        await end(world, ended)
        wide = await world.until_bound("wide")
        assert wide["spec"]["nodeName"] == node
        (event,) = await world.events(name, "Relocated")
        assert event["related"]["name"] == "wide"
        assert "Room for its replacement is kept" in event["note"]
        assert (await world.events("wide", "RelocationPlanned"))[0]["note"].startswith("Moving 1 pod")
        (moved,) = world.published.moved
        assert (moved.name, moved.node, moved.to) == (name, node, second["spec"]["nodeName"])


@asynccontextmanager
async def rights(api: ApiServer, namespace: str) -> AsyncIterator[Path]:
    """An account with the rights that the chart gives a placer, and the one that it adds where pods are moved."""
    rbac, name = "/apis/rbac.authorization.k8s.io/v1", "plimsoll-relocating"
    [role] = [one for one in rights_of(namespace, "placer") if one["kind"] == "ClusterRole"]
    rules = [*role["rules"], {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]
    await api.must("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "plimsoll-placer"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await api.must("POST", f"{rbac}/clusterrolebindings", binding)
    try:
        yield api.kubeconfig("plimsoll-placer")
    finally:
        for kind in ("clusterrolebindings", "clusterroles"):
            await api.must("DELETE", f"{rbac}/{kind}/{name}")


async def test_a_dry_run_tells_and_evicts_nothing(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """An event on the waiting pod names the pod that would move."""
    rules = RelocationRules(RelocationMode.DRY_RUN, after_s=0.5, rest_s=0.0)
    for name in ("n1", "n2"):
        await create_node(apiserver, name)
    async with (
        deployment(apiserver, namespace, tmp_path / "controllers"),
        scheduler(apiserver, valkey, namespace, relocation=rules) as world,
    ):
        await nodes(world)
        first = await fragments(world)
        await create_pod(apiserver, namespace, pod_manifest("wide", {SHARE: "90"}))
        (event,) = await world.events("wide", "RelocationPlanned")
        assert first["metadata"]["name"] in event["note"]
        assert "Nothing is moved in a dry run." in event["note"]
        assert len(await web_pods(world)) == 1
        assert world.metrics.relocation.plans.labels("dry-run")._value.get() >= 1
