"""A tenant in its container, and one with kubectl, try what docs/security.md lists, on a real kubelet and runc."""

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest

from plimsoll.bus.subjects import STREAM
from plimsoll.quantity import GIB
from tests.node.images import LOADER
from tests.node.node import START_S, Node
from tests.node.parts import Parts, running_parts
from tests.node.places import NODE
from tests.node.progress import say
from tests.node.tenants import GPU_KEY, LINE_GIB, template
from tests.placer.webhook.scene import scene
from tests.servers.apiserver import Object
from tests.servers.waiting import until

pytestmark = [pytest.mark.node, pytest.mark.timeout(900)]

ROOT_USER = {"runAsUser": 0}
"""Root in its container, with the capabilities that containerd gives."""

PAST = f"busy --memory {LINE_GIB + 1}Gi"
"""A program that takes more than its line."""

READ_ONLY = "Read-only file system"
TRIES = {
    "echo x > /run/plimsoll/limits/limits": READ_ONLY,
    "echo x > /run/plimsoll/limits/gate": READ_ONLY,
    "busybox rm /run/plimsoll/limits/hook.sock": READ_ONLY,
    "touch /run/plimsoll/limits/new": READ_ONLY,
    "echo x > /run/plimsoll/lib/libplimsoll.so": READ_ONLY,
    "busybox mv /run/plimsoll/lib/libplimsoll.so /run/plimsoll/lib/old": READ_ONLY,
    "busybox ln /run/plimsoll/limits/limits /run/plimsoll/counts/hard": "ross-device link",
    "echo > /etc/ld.so.preload": READ_ONLY,
    "busybox rm /etc/ld.so.preload": "Device or resource busy",
    "busybox umount /etc/ld.so.preload": "not permitted",
    "dd if=/dev/zero of=/run/plimsoll/counts/waste bs=1M count=4": "No space left",
    "mount -o remount,rw /run/plimsoll/limits": "denied",
    "busybox umount /run/plimsoll/limits": "not permitted",
    "busybox mv /run/plimsoll/counts /run/plimsoll/aside": READ_ONLY,
    "mount -o remount,rw /run/plimsoll": "denied",
    "busybox umount /run/plimsoll/counts": "not permitted",
}
"""A program's attempts on its pages and on the library, and the kernel's answers."""


@pytest.fixture(scope="module")
async def parts(node: Node) -> AsyncIterator[Parts]:
    """Broker, monitor and placer of this node."""
    async with running_parts(node) as found:
        yield found


@pytest.fixture(scope="module")
async def tenants(node: Node, parts: Parts) -> AsyncIterator[str]:
    """A namespace without Pod Security, whose pods pass the webhook."""
    assert parts.broker.is_running
    name = f"hostile-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await node.until_account(name)
    async with scene(node.api, name):
        yield name
        await node.remove_namespace(name)


def as_root(pod: Object) -> Object:
    """The pod with root in its container."""
    pod["spec"]["containers"][0]["securityContext"] = ROOT_USER
    return pod


async def answer(node: Node, namespace: str, name: str, script: str) -> str:
    """Output, errors and exit status of a script in a pod's container."""
    return await node.run(namespace, name, "sh", "-c", f"( {script} ) 2>&1; echo ended with $?")


async def test_pages_and_library_are_the_brokers(node: Node, tenants: str) -> None:
    """Not even root in the container writes, replaces or takes away what holds it; a full `counts` is its own."""
    await node.create(tenants, as_root(template("root", "sleep", "3000")))
    await node.until_ready(tenants, "root")
    for script, said in TRIES.items():
        told = await answer(node, tenants, "root", script)
        say("root in the container", script=script, told=told)
        assert said in told, script
        assert "ended with 0" not in told, script
    listed = (await node.run(tenants, "root", "busybox", "find", "/run/plimsoll")).split()
    pages = {
        "limits/limits",
        "limits/gate",
        "limits/measured",
        "limits/hook.sock",
        "limits/ld.so.preload",
        "counts/counts",
        "counts/exports",
        "counts/waste",
        "lib/libplimsoll.so",
    }
    folders = {"", "/limits", "/counts", "/lib"}
    assert {f"/run/plimsoll/{page}" for page in pages} | {f"/run/plimsoll{one}" for one in folders} == set(
        listed
    )
    assert "CUDA_ERROR_OUT_OF_MEMORY" in await answer(node, tenants, "root", PAST)
    await node.delete(tenants, "root")


async def test_variables_move_no_line(node: Node, tenants: str, parts: Parts) -> None:
    """No variable moves a line. A loader that reads no file of preloads holds none, and an event says so."""
    await node.create(tenants, template("tamper", "sleep", "3000"))
    pod = await node.until_ready(tenants, "tamper")
    for tampered in (
        "PLIMSOLL_LIMITS_DIR=/tmp PLIMSOLL_COUNTS_DIR=/tmp",
        "PLIMSOLL_LIMITS_DIR= PLIMSOLL_COUNTS_DIR=",
        "NVIDIA_VISIBLE_DEVICES=all CUDA_VISIBLE_DEVICES=0",
        "LD_PRELOAD=/run/plimsoll/lib/libplimsoll.so:/nothing.so",
        "env -u LD_PRELOAD",
    ):
        told = await answer(node, tenants, "tamper", f"{tampered} {PAST}")
        say("tampered", variables=tampered, told=told)
        assert "CUDA_ERROR_OUT_OF_MEMORY" in told
    seen = json.loads(await node.run(tenants, "tamper", "env", "NVIDIA_VISIBLE_DEVICES=all", "view"))
    assert [one["uuid"] for one in seen["nvml"]["gpus"]] == [pod["metadata"]["annotations"][GPU_KEY]]
    other = f"busybox sed s,/etc/ld.so.preload,/etc/ld.so.nothing, /{LOADER} >/tmp/loader"
    run = f"chmod +x /tmp/loader; env -u LD_PRELOAD /tmp/loader /usr/bin/{PAST} --hold-seconds 20"
    told = await answer(node, tenants, "tamper", f"{other}; busybox {run}")
    say("without the preload", told=told)
    assert "ended with 0" in told
    subject = f"plimsoll.v1.limit.unenforced.{NODE.replace('.', '_')}"
    await until(lambda: _is_told(parts, subject, pod["metadata"]["uid"]), timeout_s=START_S)
    await node.delete(tenants, "tamper")


async def _is_told(parts: Parts, subject: str, uid: str) -> bool:
    client = await nats.connect(parts.nats.url)
    try:
        with contextlib.suppress(nats.js.errors.NotFoundError):
            message = await client.jetstream().get_last_msg(STREAM, subject)
            return uid.encode() in (message.data or b"")
        return False
    finally:
        await client.close()


async def test_attributes_of_a_volume_lead_nowhere(node: Node, tenants: str) -> None:
    """The kubelet's own words replace those of the pod's author, and the volume has its own pod's pages."""
    await node.create(tenants, as_root(template("victim", "sleep", "3000")))
    victim = (await node.until_ready(tenants, "victim"))["metadata"]["uid"]
    pod = as_root(template("forger", "sleep", "3000"))
    words = {"pod.uid": victim, "pod.name": "victim", "ephemeral": "false"}
    attributes = {f"csi.storage.k8s.io/{key}": value for key, value in words.items()}
    attributes["container"] = "main"
    pod["spec"]["volumes"] = [
        {"name": "mine", "csi": {"driver": "plimsoll.dev", "volumeAttributes": attributes}}
    ]
    await node.create(tenants, pod)
    await node.until_ready(tenants, "forger")
    await node.run(tenants, "forger", "touch", "/run/plimsoll/counts/mark")
    assert "mark" not in await node.run(tenants, "victim", "ls", "/run/plimsoll/counts")
    seen: dict[str, Any] = json.loads(await node.run(tenants, "forger", "view"))
    assert [one["total_bytes"] for one in seen["nvml"]["gpus"]] == [LINE_GIB * GIB]
    for name in ("victim", "forger"):
        await node.delete(tenants, name)


async def test_the_mark_of_a_mirror_pod_starts_nothing(node: Node, tenants: str) -> None:
    """The webhook leaves mirror pods alone. A pod with their mark that no kubelet made never runs."""
    pod = template("mirror", "sleep", "3000", annotations={"kubernetes.io/config.mirror": "forged"})
    pod["spec"] |= {"nodeName": NODE, "runtimeClassName": "nvidia"}
    await node.create(tenants, pod)

    async def is_gone() -> bool:
        found = await node.api.call("GET", f"/api/v1/namespaces/{tenants}/pods/mirror")
        if found.status == 404:
            return True
        assert found.body["status"].get("phase") != "Running"
        assert not found.body["status"].get("containerStatuses")
        return False

    await until(is_gone, timeout_s=START_S)
