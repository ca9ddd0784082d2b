"""Plimsoll from its images and its chart, on a real node: user pods, an upgrade, a rollback and an uninstall."""

import uuid
from collections.abc import AsyncIterator
from functools import partial

import pytest

from plimsoll.quantity import GIB
from tests.node.node import START_S, Node
from tests.node.places import NODE
from tests.node.progress import say
from tests.node.release import PARTS, Release, installed, missing_images
from tests.node.tenants import (
    GPU_KEY,
    HOLDS,
    LINE_GIB,
    deploy,
    refuse_past_line,
    runs,
    template,
    until_one_ready,
)
from tests.placer.webhook.scene import RESTRICTED
from tests.servers.waiting import until
from tools.chart import NAMESPACE

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
async def release(node: Node) -> AsyncIterator[Release]:
    """The chart, installed with its images."""
    if missing := missing_images():
        pytest.skip(f"no images: {', '.join(missing)}; remedy: `make e2e-kube` builds them")
    async with installed(node) as found:
        yield found


@pytest.fixture(scope="module")
async def tenants(node: Node, release: Release) -> AsyncIterator[str]:
    """A `restricted` namespace of users."""
    assert release.nats.is_running
    name = f"tenants-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    await node.until_account(name)
    yield name
    await node.remove_namespace(name)


async def test_every_part_runs_from_the_chart(node: Node, release: Release) -> None:
    """Placer and webhook run as a user without rights, and no container was started twice."""
    pods = await release.pods()
    names = {pod["metadata"]["name"] for pod in pods}
    assert all(any(name.startswith(part) for name in names) for part in PARTS), names
    for pod in pods:
        [status] = pod["status"]["containerStatuses"]
        say(pod["metadata"]["name"], image=status["image"], restarts=status["restartCount"])
        assert status["restartCount"] == 0, await node.account(
            pod["metadata"]["namespace"], pod["metadata"]["name"]
        )
        if "placer" in pod["metadata"]["name"]:
            user = await node.run(pod["metadata"]["namespace"], pod["metadata"]["name"], "id", "-u")
            assert user.strip() == "65532"


async def test_a_users_deployment(node: Node, tenants: str) -> None:
    """A pod of two lines is placed, starts by the inline volume, sees exactly its GPU, and is held to its line."""
    await deploy(node, tenants, "trainer", "sh", "-c", "view; exec " + " ".join(HOLDS))
    pod = await until_one_ready(node, tenants, "trainer")
    name, gpu = pod["metadata"]["name"], pod["metadata"]["annotations"][GPU_KEY]
    seen = await node.seen(tenants, name)
    say("what a user's pod saw", **seen)
    for api in ("cuda", "nvml"):
        assert [(one["uuid"], one["total_bytes"]) for one in seen[api]["gpus"]] == [(gpu, LINE_GIB * GIB)]
    await refuse_past_line(node, tenants, name)


async def test_pods_can_end_on_a_node_that_is_taken_out(node: Node, tenants: str) -> None:
    """With the label `off` a node takes no new pods, and a taint may end those that it has: the broker stays."""
    await deploy(node, tenants, "hold", *HOLDS)
    first = await until_one_ready(node, tenants, "hold")
    brokers = await _brokers(node)
    path = f"/api/v1/namespaces/{tenants}/pods/"

    await node.api.kubectl("label", "node", NODE, "plimsoll.dev/node=off")
    await until(partial(_shows_nothing, node), timeout_s=START_S)
    assert runs(await until_one_ready(node, tenants, "hold")) == runs(first)
    await node.api.must("DELETE", path + first["metadata"]["name"])
    await until(partial(_is_gone, node, path + first["metadata"]["name"]), timeout_s=START_S)
    await until(partial(_waits, node, tenants, "had opted out of Plimsoll by label"), timeout_s=START_S)
    await node.api.kubectl("label", "node", NODE, "plimsoll.dev/node-")
    second = await until_one_ready(node, tenants, "hold")
    say("off and on again", ended=first["metadata"]["name"], came=second["metadata"]["name"])

    await node.api.kubectl("taint", "node", NODE, "maintenance=now:NoExecute")
    await until(partial(_is_gone, node, path + second["metadata"]["name"]), timeout_s=START_S)
    await node.api.kubectl("taint", "node", NODE, "maintenance-")
    third = await until_one_ready(node, tenants, "hold", but=second["metadata"]["uid"])
    say("tainted, and without the taint", ended=second["metadata"]["name"], came=third["metadata"]["name"])
    assert await _brokers(node) == brokers, "the broker left"
    await node.api.must("DELETE", f"/apis/apps/v1/namespaces/{tenants}/deployments/hold")


async def _brokers(node: Node) -> set[str]:
    return {one["metadata"]["uid"] for one in await node.pods(NAMESPACE, "app=plimsoll-broker")}


async def _waits(node: Node, tenants: str, text: str) -> bool:
    """Whether the Deployment's pod says that it waits, with this text."""
    pods = await node.pods(tenants, "app=hold")
    return any(text in one.get("message", "") for pod in pods for one in pod["status"].get("conditions", []))


async def _is_gone(node: Node, path: str) -> bool:
    return (await node.api.call("GET", path)).status == 404


async def _shows_nothing(node: Node) -> bool:
    """Whether the node shows no resource of ours any more: the kubelet follows what the monitor removed."""
    status = (await node.api.get(f"/api/v1/nodes/{NODE}"))["status"]
    return not any("plimsoll.dev/" in name for name in (*status["capacity"], *status["allocatable"]))


async def test_an_upgrade_and_a_rollback_leave_pods_alone(node: Node, tenants: str, release: Release) -> None:
    """Every part is replaced twice under a running pod, which keeps its container, its memory and its line."""
    await deploy(node, tenants, "lasting", *HOLDS)
    pod = await until_one_ready(node, tenants, "lasting")
    name, before = pod["metadata"]["name"], runs(pod)
    marks = {
        part: {**release.values.get(part, {}), "podAnnotations": {"mark": "2"}}
        for part in ("placer", "webhook", "monitor", "broker")
    }
    for step, more in (("upgrade", marks), ("rollback", {})):
        old = {one["metadata"]["uid"] for one in await release.pods()}
        await release.apply(**more)
        new = {
            one["metadata"]["uid"]
            for one in await release.pods()
            if "deletionTimestamp" not in one["metadata"]
        }
        assert not new & old, f"{step}: a part was not replaced"
        now = await until_one_ready(node, tenants, "lasting")
        assert runs(now) == before, f"{step} cost the pod its container"
        await refuse_past_line(node, tenants, name)
        await node.create(tenants, template(step, "view"))
        await node.until_phase(tenants, step, "Succeeded")
        seen = await node.seen(tenants, step)
        assert [one["total_bytes"] for one in seen["nvml"]["gpus"]] == [LINE_GIB * GIB]
        say(step, container=before[0], restarts=before[1])


async def test_an_uninstall_leaves_pods_alone(node: Node, tenants: str, release: Release) -> None:
    """Running pods keep their containers and their lines. A pod that is deleted ends once the release is back."""
    pod = await until_one_ready(node, tenants, "lasting")
    name, before = pod["metadata"]["name"], runs(pod)
    await release.remove()
    await until(release.is_gone, timeout_s=START_S)
    now = await until_one_ready(node, tenants, "lasting")
    assert runs(now) == before
    await refuse_past_line(node, tenants, name)
    say("uninstalled", container=before[0])
    await release.apply()
    await node.delete(tenants, name)
    await until_one_ready(node, tenants, "lasting", but=pod["metadata"]["uid"])
