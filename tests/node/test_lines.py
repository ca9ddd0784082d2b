"""Pods of two resource lines in a `restricted` namespace, from their creation to restarts of all around them."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import nats
import pytest

from plimsoll.bus.subjects import STREAM
from plimsoll.envelope import decode_event
from plimsoll.quantity import GIB
from tests.node.driver import UUIDS
from tests.node.node import START_S, Node, is_ready
from tests.node.parts import Parts, running_parts
from tests.node.progress import say
from tests.node.tenants import (
    GPU_KEY,
    HOLDS,
    LINE_GIB,
    SHARE_PCT,
    deploy,
    refuse_past_line,
    runs,
    template,
    until_one_ready,
)
from tests.placer.webhook.scene import RESTRICTED, scene
from tests.servers.apiserver import Object, RefusedError
from tests.servers.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
async def parts(node: Node) -> AsyncIterator[Parts]:
    """Broker, monitor and placer of this node."""
    async with running_parts(node) as found:
        yield found


@pytest.fixture(scope="module")
async def tenants(node: Node, parts: Parts) -> AsyncIterator[str]:
    """A `restricted` namespace whose pods pass the webhook. The API server reaches the webhook by its URL."""
    assert parts.broker.is_running
    name = f"tenants-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    await node.until_account(name)
    async with scene(node.api, name):
        yield name
        await node.remove_namespace(name)


async def test_a_deployment_of_two_lines(node: Node, tenants: str) -> None:
    """Its pod is placed, starts by the inline volume, sees exactly its GPU, is held to its line, and is replaced."""
    await deploy(node, tenants, "trainer", "sh", "-c", "view; exec " + " ".join(HOLDS))
    pod = await until_one_ready(node, tenants, "trainer")
    name, gpu = pod["metadata"]["name"], pod["metadata"]["annotations"][GPU_KEY]
    assert gpu in UUIDS
    seen = await node.seen(tenants, name)
    say("a pod of two lines", gpu=gpu, decision=pod["metadata"]["annotations"]["plimsoll.dev/decision"])
    say("what it saw", **seen)
    assert seen["user"] == 1000
    assert seen["env"]["NVIDIA_VISIBLE_DEVICES"] == gpu
    assert seen["devices"] == [f"/dev/nvidia{UUIDS.index(gpu)}"]
    assert [(one["uuid"], one["total_bytes"]) for one in seen["nvml"]["gpus"]] == [(gpu, LINE_GIB * GIB)]
    assert [(one["uuid"], one["total_bytes"]) for one in seen["cuda"]["gpus"]] == [(gpu, LINE_GIB * GIB)]
    await refuse_past_line(node, tenants, name)
    await node.delete(tenants, name)
    replaced = await until_one_ready(node, tenants, "trainer", but=pod["metadata"]["uid"])
    say(
        "replaced",
        old=name,
        new=replaced["metadata"]["name"],
        gpu=replaced["metadata"]["annotations"][GPU_KEY],
    )
    await refuse_past_line(node, tenants, replaced["metadata"]["name"])


async def test_a_container_that_ends_starts_again_with_its_line(node: Node, tenants: str) -> None:
    """The kubelet starts it again in the same pod, with the same GPU and the same pages."""
    await deploy(node, tenants, "short", "sh", "-c", "view; busy --memory 1Gi --hold-seconds 2")

    async def restarted() -> Object | None:
        pods = await node.pods(tenants, "app=short")
        ended = [
            pod for pod in pods for one in pod["status"].get("containerStatuses", []) if one["restartCount"]
        ]
        return ended[0] if ended else None

    pod = await until(restarted, timeout_s=START_S)
    assert pod is not None
    name = pod["metadata"]["name"]

    async def again() -> dict[str, Any] | None:
        try:
            lines = [json.loads(line) for line in (await node.logs(tenants, name)).splitlines()]
        except RefusedError:
            return None  # between two containers
        return lines[0] if any(line.get("phase") == "started" for line in lines) else None

    seen = await until(again, timeout_s=START_S)
    assert seen is not None
    say("after its end", restarts=pod["status"]["containerStatuses"][0]["restartCount"], nvml=seen["nvml"])
    gpu = pod["metadata"]["annotations"][GPU_KEY]
    assert [(one["uuid"], one["total_bytes"]) for one in seen["nvml"]["gpus"]] == [(gpu, LINE_GIB * GIB)]
    await node.api.must("DELETE", f"/apis/apps/v1/namespaces/{tenants}/deployments/short")


async def test_a_share_is_held(node: Node, tenants: str) -> None:
    """A container with a limit gets about its limit of its GPU's time, as the GPU measures it, however it asks."""
    limit = {"plimsoll.dev/gpu-share-limit": str(SHARE_PCT)}
    command = ("busy", "--kernel-ms", "4", "--seconds", "3000")
    await node.create(tenants, template("greedy", *command, annotations=limit))
    pod = await node.until_ready(tenants, "greedy")
    index = UUIDS.index(pod["metadata"]["annotations"][GPU_KEY])
    await until(lambda: _launched(node, index), timeout_s=START_S)
    before = await asyncio.to_thread(node.driver.book)
    await asyncio.sleep(8)  # a share holds over seconds, not within each
    after = await asyncio.to_thread(node.driver.book)
    busy_pct = _busy_pct(before, after, index)
    say("share", limit_pct=SHARE_PCT, busy_pct=round(busy_pct, 1))
    assert SHARE_PCT / 3 < busy_pct < SHARE_PCT * 1.2
    await node.delete(tenants, "greedy")


async def _launched(node: Node, gpu: int) -> bool:
    found = await asyncio.to_thread(node.driver.book)
    return any(one["launches"] > 50 for one in found["gpus"][gpu]["processes"])


def _busy_pct(before: dict[str, Any], after: dict[str, Any], gpu: int) -> float:
    first, last = before["gpus"][gpu], after["gpus"][gpu]
    busy_pct: float = 100 * (last["busy_ns"] - first["busy_ns"]) / (last["time_ns"] - first["time_ns"])
    return busy_pct


async def test_restarts_lose_double_and_kill_nothing(node: Node, tenants: str, parts: Parts) -> None:
    """Each part of the node is killed and started again under a running pod: broker, monitor, kubelet, containerd."""
    await deploy(node, tenants, "lasting", *HOLDS)
    pod = await until_one_ready(node, tenants, "lasting")
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    before = runs(pod)
    for what, part in (
        ("broker", parts.broker),
        ("monitor", parts.monitor),
        ("placer", parts.placer),
        ("kubelet", node.kubelet),
        ("containerd", node.containerd),
    ):
        await part.kill()
        await part.start()
        await until(partial(_answers, node, tenants, name), timeout_s=START_S)
        now = await until_one_ready(node, tenants, "lasting")
        assert (now["metadata"]["uid"], runs(now)) == (uid, before), f"{what} cost the pod its container"
        await refuse_past_line(node, tenants, name)
        fresh = f"after-{what}"
        await node.create(tenants, template(fresh, "view"))
        await node.until_phase(tenants, fresh, "Succeeded")
        seen = await node.seen(tenants, fresh)
        assert [one["total_bytes"] for one in seen["nvml"]["gpus"]] == [LINE_GIB * GIB]
        await node.delete(tenants, fresh)
        say(f"{what} killed and started again", container=before[0], holds_gib=_held_gib(node))
    programs = 1 + 2 * 5  # of the Deployment, and after each restart one within the line and one past it

    async def all_told() -> list[str] | None:
        events = await _started_events(parts, uid)
        return events if len(events) >= programs else None

    events = await until(all_told)
    assert events is not None
    say("started events of the pod", told=len(events), different=len(set(events)))
    assert len(events) == len(set(events)) == programs


async def _answers(node: Node, namespace: str, pod: str) -> bool:
    """Whether a command runs in the pod: API server, kubelet and containerd have found each other again."""
    try:
        await node.run(namespace, pod, "true")
    except RefusedError:
        return False
    return await is_ready(node.api)


def _held_gib(node: Node) -> float:
    return round(float(sum(gpu["used_bytes"] for gpu in node.driver.book()["gpus"])) / GIB, 1)


async def _started_events(parts: Parts, pod: str) -> list[str]:
    """The identifiers of the `started` events of a pod's tasks, as the stream has them."""

    client = await nats.connect(parts.nats.url)
    try:
        context = client.jetstream()
        info = (await context.stream_info(STREAM)).state
        found = []
        for number in range(info.first_seq, info.last_seq + 1):
            message = await context.get_msg(STREAM, number)
            if message.data and ".task.started." in (message.subject or "") and pod.encode() in message.data:
                found.append(decode_event(message.data).id)
        return found
    finally:
        await client.close()
