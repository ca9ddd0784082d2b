"""A process's pod is read from its cgroup."""

import os
from pathlib import Path

import pytest

from plimsoll.ids import PodUid
from plimsoll.kube.cgroup import find_container_cgroup, find_pod_cgroup, pod_uid, read_pod

UID = "0b7e8f3c-1d2a-4c5b-9e6f-7a8b9c0d1e2f"
SLICED = UID.replace("-", "_")
CONTAINER = "4f" * 32


IN_SLICES = f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICED}.slice"
IN_FOLDERS = f"/kubepods/burstable/pod{UID}"
V1 = "12:pids:{0}\n11:memory:{0}\n5:devices:{0}\n1:name=systemd:{0}\n0::/"
"""Version 1 has a line for each hierarchy, and on many machines one of version 2 that names no group."""

LAYOUTS = {
    "containerd, systemd": f"{IN_SLICES}/cri-containerd-{CONTAINER}.scope",
    "containerd, cgroupfs": f"{IN_FOLDERS}/{CONTAINER}",
    "containerd, cgroupfs below a kubelet with systemd": (
        f"/system.slice/containerd.service/kubepods-burstable-pod{SLICED}.slice:cri-containerd:{CONTAINER}"
    ),
    "containerd, an init system in the container": f"{IN_SLICES}/cri-containerd-{CONTAINER}.scope/init.scope",
    "CRI-O, systemd": f"{IN_SLICES}/crio-{CONTAINER}.scope",
    "CRI-O, systemd, a group of the container's own": f"{IN_SLICES}/crio-{CONTAINER}.scope/container",
    "CRI-O, cgroupfs": f"{IN_FOLDERS}/crio-{CONTAINER}",
    "Docker by cri-dockerd, systemd": f"{IN_SLICES}/docker-{CONTAINER}.scope",
    "Docker by cri-dockerd, cgroupfs": f"{IN_FOLDERS}/{CONTAINER}",
    "guaranteed, systemd": f"/kubepods.slice/kubepods-pod{SLICED}.slice/cri-containerd-{CONTAINER}.scope",
    "guaranteed, cgroupfs": f"/kubepods/pod{UID}/{CONTAINER}",
    "kind, systemd": (
        f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICED}.slice/cri-containerd-{CONTAINER}.scope"
    ),
    "kind, cgroupfs, in Docker": f"/docker/{CONTAINER}/kubelet{IN_FOLDERS}/{CONTAINER}",
    "a node in a container of its own, seen from beside it": f"/../../pod{UID}/{CONTAINER}",
    "a group that the container named like another pod": f"{IN_FOLDERS}/{CONTAINER}/pod{UID.replace('0', '1')}",
}
BARE = {
    "Docker, systemd": f"/system.slice/docker-{CONTAINER}.scope",
    "Docker, cgroupfs": f"/docker/{CONTAINER}",
    "Podman": f"/machine.slice/libpod-{CONTAINER}.scope/container",
    "Podman's pod": "/machine.slice/libpod-abc.scope/podlet",
    "nerdctl": f"/default/{CONTAINER}",
    "Slurm": "/system.slice/slurmstepd.scope/job_7/step_0/user/task_0",
    "a session": "/user.slice/user-1000.slice/session-1.scope",
    "a service": "/system.slice/pod.service",
    "the root": "/",
}


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_pod_is_found_in_every_layout(layout: str, version: str) -> None:
    """The pod is found for each runtime and driver, in both versions of control groups, nested and relative."""
    path = LAYOUTS[layout]
    assert pod_uid(V1.format(path) if version == "1" else f"0::{path}") == UID


@pytest.mark.parametrize("version", ["1", "2"])
@pytest.mark.parametrize("place", BARE)
def test_a_process_outside_of_pods_has_none(place: str, version: str) -> None:
    """A container without Kubernetes, a job of a batch system and a bare process belong to no pod."""
    assert pod_uid(V1.format(BARE[place]) if version == "1" else f"0::{BARE[place]}") is None


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (f"0::/kubepods/pod{'ab' * 16}/{CONTAINER}", "ab" * 16),
        ("", None),
        ("\x00garbage", None),
    ],
)
def test_other_texts_of_proc(cgroup: str, uid: str | None) -> None:
    """A static pod has the hash of its file as uid; a text that is none names no pod."""
    assert pod_uid(cgroup) == uid


def test_a_process_of_this_machine_is_no_pods() -> None:
    """The pod of a living process is read from /proc, and a process that is gone has none."""
    assert read_pod(os.getpid()) == pod_uid(Path("/proc/self/cgroup").read_text())
    assert read_pod(0x7FFFFFFF) is None


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        (f"kubepods/burstable/pod{UID}", CONTAINER),
        (f"kubepods/pod{UID}", CONTAINER),
        (
            f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICED}.slice",
            f"cri-containerd-{CONTAINER}.scope",
        ),
        (f"kubepods.slice/kubepods-pod{SLICED}.slice", f"crio-{CONTAINER}.scope"),
        (f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICED}.slice", CONTAINER),
    ],
)
def test_the_groups_of_a_pod_and_a_container_are_found(tmp_path: Path, pod: str, container: str) -> None:
    """They are found wherever the kubelet put them, and whatever the runtime calls them."""
    (tmp_path / pod / container).mkdir(parents=True)
    (tmp_path / pod / f"crio-{'5e' * 32}.scope").mkdir()
    (tmp_path / f"a-pod{SLICED}.slice:cri-containerd:{CONTAINER}").mkdir()  # a container's own group
    (tmp_path / "kubepods" / "burstable" / "pod00000000-0000-0000-0000-000000000000").mkdir(parents=True)
    found = find_pod_cgroup(tmp_path, PodUid(UID))
    assert found == tmp_path / pod
    assert find_container_cgroup(found, f"containerd://{CONTAINER}") == found / container
    assert find_container_cgroup(found, "containerd://" + "77" * 32) is None
    assert find_container_cgroup(found, "") is None
    assert find_container_cgroup(tmp_path / "gone", CONTAINER) is None


def test_a_group_that_a_tenant_named_like_another_pods_is_not_found(tmp_path: Path) -> None:
    """A pod's own group hides all below it, because a container names groups below its own as it likes."""
    other = "00000000-0000-0000-0000-000000000000"
    (tmp_path / "kubepods" / f"pod{other}" / CONTAINER / f"pod{UID}").mkdir(parents=True)
    assert find_pod_cgroup(tmp_path, PodUid(UID)) is None
