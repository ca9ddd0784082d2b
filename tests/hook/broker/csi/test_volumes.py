"""A pod starts with its pages and the library, once its lines are laid out, whatever is restarted meanwhile."""

import asyncio
import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from plimsoll.broker.pages import COUNTS_NAME, Limits
from plimsoll.ids import PodUid
from plimsoll.quantity import GIB
from tests.hook.broker.conftest import until
from tests.hook.broker.csi.conftest import GPU, IN_A_CONTAINER, ON_THE_NODE, NodeMachine
from tests.hook.broker.csi.kubelet import Kubelet, RefusedError

PLACES = pytest.mark.parametrize(
    "where", [ON_THE_NODE, IN_A_CONTAINER], ids=["on the node", "in a container"]
)


def is_read_only(path: Path) -> bool:
    """Whether nothing can be written in a directory."""
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


@PLACES
async def test_a_pod_gets_its_pages_and_the_library(machine: NodeMachine, where: str) -> None:
    """The node sees all mounts; only `counts` can be written, and a program in the pod is counted."""
    await machine.start(where)
    uid = await machine.pod()
    target = machine.see(await machine.kubelet.publish(uid))
    assert {path.name for path in target.iterdir()} == {"limits", "lib", "counts"}
    for part in ("", "limits", "lib"):
        assert is_read_only(target / part), part
    preloads = target / "limits" / "ld.so.preload"
    assert preloads.read_text() == "/run/plimsoll/lib/libplimsoll.so\n"
    assert not is_read_only(target / "counts")
    limits = Limits.from_buffer_copy((target / "limits" / "limits").read_bytes())
    assert (limits.gpu_count, limits.gpus[0].share_pct) == (1, 30)
    assert (target / "lib" / "libplimsoll.so").read_bytes() == machine.library.read_bytes()
    other = await machine.pod("other", share_pct=10)
    await machine.kubelet.publish(other)
    points = [mount.point for mount in machine.mounts()]
    expected = [point for one in (uid, other) for point in expected_points(machine, one, where)]
    assert sorted(points) == sorted(expected)
    program = await machine.run(uid)
    await program.begin(used_bytes=5)
    await until(lambda: counted(machine, 5), "the program is counted")
    await program.kill()
    for name, gone in (("p", uid), ("other", other)):
        await machine.delete_pod(name)
        await machine.kubelet.unpublish(gone)
    await machine.until_gone()
    assert not machine.see(machine.kubelet.target(uid)).exists()


def expected_points(machine: NodeMachine, uid: PodUid, where: str) -> list[str]:
    """A pod's mounts on the node. The broker's own view of `counts` is the container's, if it runs in one."""
    target = machine.kubelet.target(uid)
    own = [] if where else [machine.broker.root / "counts" / uid / "main"]
    return [str(path) for path in (target, target / "limits", target / "counts", *own)]


async def counted(machine: NodeMachine, used_bytes: int) -> bool:
    """Whether the broker counts exactly these bytes."""
    uses = (await machine.broker.client.describe()).containers
    return [process.used_bytes[0] for use in uses for process in use.processes] == [used_bytes]


async def test_a_request_waits_for_the_lines(machine: NodeMachine) -> None:
    """A pod whose lines come late needs no second request."""
    await machine.start()
    # The uid is known only once the pod exists, so a pod that holds the share back stands before it.
    await machine.pod("first", share_pct=80)
    uid = await machine.pod("second", share_pct=40)
    request = asyncio.create_task(machine.kubelet.publish(uid))
    await until(lambda: refused(machine, "second"), "the second pod is refused")
    assert not request.done()
    await machine.delete_pod("first")
    await request


async def refused(machine: NodeMachine, name: str) -> bool:
    """Whether the broker logged that it refused a pod's lines."""
    return any(line["pod"].endswith(f"/{name}") for line in machine.broker.log("pod_has_no_lines"))


async def test_a_refusal_says_what_is_missing(machine: NodeMachine) -> None:
    """Each pod without lines is refused with its own reason, and gets no mount."""
    await machine.start()
    await machine.kubelet.publish(await machine.pod("first", share_pct=80))
    await machine.broker.stop()
    await machine.start(volume_wait_s="0.2")
    count = len(machine.mounts())
    reasons = {
        await machine.pod(
            "foreign", decision=""
        ): "plimsoll.dev/decision]: None is missing; let Plimsoll's placer",
        await machine.pod("unreadable", decision="{"): "plimsoll.dev/decision",
        await machine.pod("too-much", share_pct=40): "brings the shares promised of GPU-aaaa to 120",
        await machine.pod("plain", decision="", resources=""): "asks for no GPU of Plimsoll's",
        await machine.pod(
            "elsewhere", node="n2"
        ): "shows no such pod on node n1; if the pod's node has another name",
    }
    for uid, reason in reasons.items():
        # The broker's watch may be behind, and then says so: the kubelet asks again.
        await until(partial(is_refused_for, machine, uid, reason), reason)
        await machine.kubelet.unpublish(uid)
    assert len(machine.mounts()) == count


async def is_refused_for(machine: NodeMachine, uid: PodUid, reason: str) -> bool:
    """Whether the broker refuses a volume, and names the pod and this reason."""
    with pytest.raises(RefusedError) as refusal:
        await machine.kubelet.publish(uid)
    assert refusal.value.code == "FAILED_PRECONDITION"
    assert "ns/pod-" in refusal.value.message
    return reason in refusal.value.message


@PLACES
async def test_running_pods_outlive_brokers(machine: NodeMachine, where: str) -> None:
    """The next broker counts on in the same pages, though the kubelet asks for the volume once more."""
    await machine.start(where)
    uid = await machine.pod()
    target = machine.see(await machine.kubelet.publish(uid)) / "counts" / COUNTS_NAME
    page = target.stat()
    program = await machine.run(uid)
    await program.begin(used_bytes=5)
    await until(lambda: counted(machine, 5), "the program is counted")
    for end in (machine.broker.kill, machine.broker.stop) if where else (machine.broker.kill,):
        await end()
        mounted = machine.mounts()
        await machine.start(where)
        await machine.kubelet.publish(uid)
        assert machine.mounts() == mounted
        assert (target.stat().st_dev, target.stat().st_ino) == (page.st_dev, page.st_ino)
        await until(lambda: counted(machine, 5), "the program is counted")
        await program.do("use 0 7")
        await until(lambda: counted(machine, 7), "the next broker reads the same page")
        await program.do("use 0 5")
    await program.kill()
    await until(lambda: counted_nothing(machine), "the death is seen")


async def counted_nothing(machine: NodeMachine) -> bool:
    """Whether the broker counts no process."""
    return await machine.broker.process_count() == 0


async def test_a_pod_that_ended_without_a_broker_leaves_nothing(machine: NodeMachine) -> None:
    """The next broker forgets the pod, and its volume is taken away. Half a volume is made whole."""
    where = IN_A_CONTAINER
    await machine.start(where)
    uids = [await machine.pod(name, share_pct=10) for name in ("forced", "half-mounted", "stays")]
    for uid in uids:
        await machine.kubelet.publish(uid)
    await machine.broker.kill()
    await machine.delete_pod("forced")
    await machine.delete_pod("half-mounted")
    for uid in uids[1:]:
        umount = ("umount", str(machine.kubelet.target(uid) / "limits"))
        await (await asyncio.create_subprocess_exec(*machine.inside, *umount)).wait()
    await machine.start(where)
    await machine.kubelet.publish(uids[2])
    assert (machine.see(machine.kubelet.target(uids[2])) / "limits/limits").exists(), "completed"
    for uid in uids[:2]:
        await machine.kubelet.unpublish(uid)
        await machine.kubelet.unpublish(uid)
    await until(lambda: only(machine, uids[2]), "only the pod that stays is mounted")
    await machine.kubelet.unpublish(uids[2])
    await machine.delete_pod("stays")
    await machine.until_gone()


async def only(machine: NodeMachine, uid: PodUid) -> bool:
    """Whether nothing but this pod's volume is mounted."""
    return all(uid in mount.point for mount in machine.mounts())


@PLACES
async def test_a_pod_that_ends_before_its_volume_goes_holds_up_nothing(
    machine: NodeMachine, where: str
) -> None:
    """The API server reports a pod's end before the kubelet takes the volume away. Other pods do not wait."""
    await machine.start(where)
    uid = await machine.pod()
    await machine.kubelet.publish(uid)
    await machine.delete_pod()
    other = await machine.pod("other", share_pct=10)
    await machine.kubelet.publish(other)
    assert machine.broker.log("pod_not_laid_out") == []
    await machine.kubelet.unpublish(uid)
    await until(lambda: only(machine, other), "only the other pod is mounted")
    assert not (machine.broker.root / "counts" / uid).exists()
    await machine.kubelet.unpublish(other)
    await machine.delete_pod("other")
    await machine.until_gone()


async def test_a_running_pod_keeps_its_library(machine: NodeMachine) -> None:
    """A pod keeps the version with which it began; only new pods get the next one."""
    await machine.start()
    old = machine.see(await machine.kubelet.publish(await machine.pod("old")))
    first = machine.library.read_bytes()
    await machine.broker.stop()
    machine.put_library(b"version 2")
    await machine.start()
    new = machine.see(await machine.kubelet.publish(await machine.pod("new")))
    assert (old / "lib" / "libplimsoll.so").read_bytes() == first
    assert (new / "lib" / "libplimsoll.so").read_bytes() == machine.library.read_bytes() != first


async def test_no_attribute_leads_to_another_pods_pages(machine: NodeMachine) -> None:
    """The path names the pod. Words that say otherwise are refused, as a tenant may have written them."""
    await machine.start()
    victim, tenant = await machine.pod("victim"), await machine.pod("tenant", share_pct=10)
    own = machine.kubelet.target(tenant)
    asks: list[dict[str, Any]] = [
        {"context": {"csi.storage.k8s.io/pod.uid": victim}},
        {"context": {"csi.storage.k8s.io/ephemeral": "false"}},
        {"volume_capability": {"block": {}}},
        {"target_path": str(own.parent / ".." / "mount" / "mount")},
        {"target_path": str(own / "deeper")},
        {"target_path": f"/elsewhere{own}"},
        {"target_path": ""},
    ]
    for ask in asks:
        with pytest.raises(RefusedError) as refusal:
            await machine.kubelet.publish(tenant, **ask)
        assert refusal.value.code == "INVALID_ARGUMENT"
        assert not machine.mounts()
    await machine.kubelet.ask("NodeUnpublishVolume", volume_id="x", target_path="/elsewhere")
    with pytest.raises(RefusedError) as refusal:
        await machine.kubelet.ask("NodeUnpublishVolume", volume_id="x", target_path=str(machine.broker.root))
    assert refusal.value.code == "INVALID_ARGUMENT"


async def test_each_container_gets_its_own_pages(machine: NodeMachine) -> None:
    """Two containers of a pod have a volume each. A volume for a container without GPUs, or of no pod, is refused."""
    await machine.start()
    grant = {"gpu": GPU, "memory_bytes": GIB}
    lines = {"main": [{**grant, "line_bytes": GIB}], "side": [{**grant, "line_bytes": 2 * GIB}]}
    decision = {"score": 1.0, "policy": "headroom", "time": "t", "containers": lines}
    uid = await machine.pod(decision=json.dumps(decision))
    found = {}
    for name in ("main", "side"):
        target = machine.kubelet.target(uid, f"lines-of-{name}")
        target.parent.mkdir(parents=True)
        await machine.kubelet.publish(uid, name, target_path=str(target))
        limits = Limits.from_buffer_copy((machine.see(target) / "limits" / "limits").read_bytes())
        found[name] = limits.gpus[0].line_bytes
    assert found == {"main": GIB, "side": 2 * GIB}
    for wrong in (None, "other", "", "../main", "main/"):
        with pytest.raises(RefusedError, match=r"no container .* set container to one of main, side"):
            await machine.kubelet.publish(uid, wrong)
    for name in found:
        target = machine.kubelet.target(uid, f"lines-of-{name}")
        await machine.kubelet.ask("NodeUnpublishVolume", volume_id="x", target_path=str(target))
    await machine.delete_pod()
    await machine.until_gone()


async def test_a_tenant_who_fills_its_counts_harms_itself_alone(machine: NodeMachine) -> None:
    """A full tmpfs costs no other pod anything, not even at the broker's next start."""
    where = IN_A_CONTAINER
    await machine.start(where)
    uid = await machine.pod("greedy", share_pct=10)
    counts = machine.see(await machine.kubelet.publish(uid)) / "counts"
    (counts / COUNTS_NAME).unlink()
    (counts / COUNTS_NAME).symlink_to("/etc/passwd")
    await machine.broker.kill()  # it kept the file that the tenant has removed
    with pytest.raises(OSError, match="No space left"):
        (counts / "waste").write_bytes(bytes(4 << 20))
    await machine.start(where)
    await machine.kubelet.publish(await machine.pod("modest", share_pct=10))


async def test_the_kubelets_directory_may_be_a_link(machine: NodeMachine) -> None:
    """The mount table names the directory behind the link, and each request finds its mounts there."""
    link = machine.directory / "link"
    link.symlink_to("kubelet")
    machine.kubelet = Kubelet(link)
    await machine.start(kubelet_root=str(link))
    uid = await machine.pod()
    await machine.kubelet.publish(uid)
    mounted = machine.mounts()
    await machine.kubelet.publish(uid)
    assert machine.mounts() == mounted
    await machine.delete_pod()
    await machine.kubelet.unpublish(uid)
    await machine.until_gone()


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (
            "mount --make-rprivate {root} && mount --make-rprivate {root}/../kubelet && ",
            "has no shared mount",
        ),
        ("mount -o remount,bind,noexec {root} && ", "noexec"),
        ("mount -o remount,bind,ro {root}/../kubelet && ", "cannot be used"),
    ],
)
async def test_a_node_that_would_start_pods_unheld_is_refused(
    machine: NodeMachine, where: str, problem: str
) -> None:
    """The broker ends at once with the field and the remedy, before a kubelet can find it."""
    await machine.launch(where)
    assert await machine.broker.wait() == 2
    refusal = machine.broker.log("refused to start")[0]["problem"]
    assert problem in refusal
    assert refusal.startswith("PLIMSOLL_BROKER_")
