"""Preemption on a real API server, and beside a real kube-scheduler: the same pods end, for the same reasons.

No kubelet runs here, so a deleted pod stays, with its deletion timestamp, until the test ends it.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from placer.scheduler.preemption import executor
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.cluster import assets
from tests.deploy.accounts import rights_of
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import condition, gpu_of, scheduler
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import until

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
SIDES = ("kube", "ours")
PRIORITIES = {"test-low": 1, "test-mid": 5, "test-high": 10, "test-polite": 5}


@pytest.fixture(autouse=True)
async def classes(apiserver: ApiServer) -> AsyncIterator[None]:
    """Priority classes."""
    for name, value in PRIORITIES.items():
        policy = "Never" if name == "test-polite" else "PreemptLowerPriority"
        await apiserver.must(
            "POST", CLASSES, {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        )
    yield
    for name in PRIORITIES:
        await apiserver.must("DELETE", f"{CLASSES}/{name}")


def manifest(name: str, priority: str, limits: Mapping[str, str], **spec: Any) -> Object:  # noqa: ANN401 - a manifest's
    """A pod of this class; one that is deleted ends only after ten minutes."""
    made = pod_manifest(name, limits)
    made["spec"] |= {"priorityClassName": priority, "terminationGracePeriodSeconds": 600, **spec}
    return made


def is_ending(pod: Object) -> bool:
    """Whether the pod was preempted, as every scheduler says so."""
    target = [one for one in pod["status"].get("conditions", []) if one["type"] == "DisruptionTarget"]
    return "deletionTimestamp" in pod["metadata"] and [one["reason"] for one in target] == [
        "PreemptionByScheduler"
    ]


async def end(api: ApiServer, namespace: str, name: str) -> None:
    """End a pod at once, as its kubelet does at last."""
    await api.must("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")


async def test_a_victim_ends_gracefully_and_its_room_goes_to_the_preemptor(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The victim gets its condition, event and grace period; a lower pod cannot have its GPU; the preemptor does."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, "n1")
        await world.report("n1", 24)
        await create_pod(apiserver, namespace, manifest("victim", "test-low", {MEMORY: "20Gi"}))
        await world.until_bound("victim")
        await create_pod(apiserver, namespace, manifest("urgent", "test-high", {MEMORY: "20Gi"}))
        victim = await world.until("victim", is_ending)
        assert victim["metadata"]["deletionGracePeriodSeconds"] == 600
        urgent = await world.until("urgent", lambda pod: bool(pod["status"].get("nominatedNodeName")))
        assert urgent["status"]["nominatedNodeName"] == "n1"
        text = f"preemption: 1 pod(s) of lower priority end on n1 to make room: {namespace}/victim."

        async def is_told() -> bool:
            # The condition may have changed since: a try before the victim's end shows only waits for the preemption.
            return any(text in one["note"] for one in await world.events("urgent", "FailedScheduling"))

        await until(is_told)
        (event,) = await world.events("victim", "Preempted")
        assert event["note"] == f"Preempted by pod {urgent['metadata']['uid']} on node n1"
        assert (event["type"], event["action"]) == ("Normal", "DefaultPreemption")
        assert event["related"]["name"] == "urgent"
        assert [(one.name, one.node) for one in world.published.victims] == [("victim", "n1")]
        await create_pod(apiserver, namespace, manifest("thief", "test-mid", {MEMORY: "4Gi"}))
        await end(apiserver, namespace, "victim")
        await create_pod(apiserver, namespace, manifest("late", "test-mid", {MEMORY: "8Gi"}))
        assert gpu_of(await world.until_bound("urgent")) == ("n1", "GPU-n1-0")
        await world.until_refused("late", "Insufficient plimsoll.dev/gpu-memory")
        assert condition(await world.pod("late")).get("status") == "False"


@dataclass(frozen=True)
class Case:
    """A cluster for both schedulers; `node:` names are prefixed for each.

    Attributes:
        wanted: the class of the refused pod; it wants all 8 CPUs of a node.
        pods: by name: node, class, CPU, start and label.
        budget: the disruptions that the budget of the label `web` allows; None: there is none.
        victims: the pods that must end.
    """

    wanted: str
    pods: Mapping[str, tuple[str, str, str, str]]
    victims: frozenset[str] = frozenset()
    protected: frozenset[str] = frozenset()


CASES = {
    "several": Case(
        "test-high",
        {
            "a": ("n1", "test-low", "3", "01"),
            "b": ("n1", "test-low", "4", "02"),
            "c": ("n2", "test-mid", "8", "03"),
        },
        frozenset({"a", "b"}),
    ),
    "latest": Case(
        "test-high",
        {"a": ("n1", "test-low", "8", "01"), "b": ("n2", "test-low", "8", "02")},
        frozenset({"b"}),
    ),
    "budget": Case(
        "test-high",
        {"a": ("n1", "test-low", "8", "01"), "b": ("n2", "test-mid", "8", "02")},
        frozenset({"b"}),
        frozenset({"a"}),
    ),
    "never": Case("test-polite", {"a": ("n1", "test-low", "8", "01")}),
    "equal": Case("test-mid", {"a": ("n1", "test-mid", "8", "01"), "b": ("n2", "test-high", "8", "01")}),
}


@asynccontextmanager
async def kube_scheduler(api: ApiServer, folder: Path) -> AsyncIterator[None]:
    """Stock kube-scheduler."""
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(api.kubeconfig())},
        "leaderElection": {"leaderElect": False},
    }
    path = folder / "scheduler.json"
    path.write_text(json.dumps(config))

    def arguments(_: int, __: Path) -> Sequence[str]:
        return (f"--config={path}", "--secure-port=0")

    program = assets.binary("kube-scheduler")
    kind = ServerKind("kube-scheduler", "http", "Starting Kubernetes Scheduler", lambda: program, arguments)
    async with running(kind, folder / "kube-scheduler"):
        yield


async def build(api: ApiServer, namespace: str, side: str, label: str, case: Case) -> None:
    """Make one side's nodes, bound pods and budget of a case, and then its refused pod."""
    prefix, place = f"{label}-{side}-", {"side": f"{label}-{side}"}
    for node in sorted({one[0] for one in case.pods.values()}):
        await create_node(api, prefix + node, labels=place)
    for name, (node, priority, cpu, hour) in case.pods.items():
        bound = manifest(prefix + name, priority, {"cpu": cpu}, nodeName=prefix + node)
        bound["metadata"]["labels"] = {"app": prefix + name}
        await create_pod(api, namespace, bound)
        path = f"/api/v1/namespaces/{namespace}/pods/{prefix}{name}/status"
        await api.must(
            "PATCH", path, {"status": {"startTime": f"2026-01-01T{hour}:00:00Z", "phase": "Running"}}
        )
        if name in case.protected:
            await protect(api, namespace, prefix + name)
    wanted = manifest(prefix + "p", case.wanted, {"cpu": "8"}, nodeSelector=place)
    wanted["spec"]["schedulerName"] = "default-scheduler" if side == "kube" else "plimsoll"
    await create_pod(api, namespace, wanted)


async def protect(api: ApiServer, namespace: str, name: str) -> None:
    """Make a budget that allows no disruption of a pod; no controller is there to count."""
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    await api.must("POST", path, {"metadata": {"name": name}, "spec": spec})
    status = {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    await api.must("PATCH", f"{path}/{name}/status", {"status": status})


async def ended(api: ApiServer, namespace: str, side: str, label: str, case: Case) -> frozenset[str]:
    """The pods of a case that were preempted on one side."""
    pods = {name: await get_pod(api, namespace, f"{label}-{side}-{name}") for name in case.pods}
    return frozenset(name for name, pod in pods.items() if is_ending(pod))


async def words(api: ApiServer, namespace: str, side: str, label: str) -> set[str]:
    """The words about preemption on the refused pod of a case."""
    said = condition(await get_pod(api, namespace, f"{label}-{side}-p")).get("message", "")
    return set(said.partition(" preemption: ")[2].strip(". ").replace(": ", ", ").split(", ")) - {""}


async def test_the_same_pods_end_as_by_kube_scheduler(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """Both schedulers, each with a copy of the same nodes and pods, end the same ones, or say why they end none."""
    for label, case in CASES.items():
        for side in SIDES:
            await build(apiserver, namespace, side, label, case)
    async with kube_scheduler(apiserver, tmp_path), scheduler(apiserver, valkey, namespace):
        for label, case in CASES.items():

            async def is_done(label: str = label, case: Case = case) -> bool:
                ends = [await ended(apiserver, namespace, side, label, case) for side in SIDES]
                kube, ours = [await words(apiserver, namespace, side, label) for side in SIDES]
                return ends == [case.victims] * 2 and (bool(case.victims) or (bool(ours) and kube == ours))

            await until(is_done)
        for label, case in CASES.items():
            for side in SIDES:
                assert await ended(apiserver, namespace, side, label, case) == case.victims, (label, side)


async def test_without_the_right_to_delete_no_pod_ends_and_the_preemptor_says_so(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A placer that may not delete pods places others as before, and the preemptor names the refused deletion."""
    monkeypatch.setattr(executor, "REFUSED_PAUSE_S", 0.2)
    rbac, name = "/apis/rbac.authorization.k8s.io/v1", "plimsoll-without-delete"
    [role] = [one for one in rights_of(namespace, "placer") if one["kind"] == "ClusterRole"]
    verbs = [[verb for verb in rule["verbs"] if verb != "delete"] for rule in role["rules"]]
    rules = [rule | {"verbs": rest} for rule, rest in zip(role["rules"], verbs, strict=True) if rest]
    await apiserver.must("POST", f"{rbac}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "plimsoll-placer"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
    await apiserver.must("POST", f"{rbac}/clusterrolebindings", binding)
    try:
        kubeconfig = apiserver.kubeconfig("plimsoll-placer")
        async with scheduler(apiserver, valkey, namespace, kubeconfig=kubeconfig) as world:
            await create_node(apiserver, "n1")
            await create_pod(apiserver, namespace, manifest("low", "test-low", {"cpu": "8"}))
            await world.until_bound("low")
            await create_pod(apiserver, namespace, manifest("urgent", "test-high", {"cpu": "8"}))
            await world.events("urgent", "FailedScheduling")

            async def is_told() -> bool:
                events = await world.events("urgent", "FailedScheduling")
                return any("was not deleted" in one["note"] for one in events)

            await until(is_told)
            await world.until("urgent", lambda pod: not pod["status"].get("nominatedNodeName"))
            assert "deletionTimestamp" not in (await world.pod("low"))["metadata"]
    finally:
        for kind in ("clusterrolebindings", "clusterroles"):
            await apiserver.must("DELETE", f"{rbac}/{kind}/{name}")
