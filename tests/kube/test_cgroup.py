"""A process's pod is read from its cgroup."""

from pathlib import Path

import pytest

from plimsoll.ids import PodUid
from plimsoll.kube.cgroup import find_container_cgroup, find_pod_cgroup, pod_uid

UID = "0b7e8f3c-1d2a-4c5b-9e6f-7a8b9c0d1e2f"
SLICED = UID.replace("-", "_")
CONTAINER = "4f" * 32


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        (f"0::/kubepods/burstable/pod{UID}/{CONTAINER}", UID),
        (f"0::/kubepods/pod{UID}/{CONTAINER}", UID),
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICED}.slice/cri-containerd-{CONTAINER}.scope",
            UID,
        ),
        (f"0::/kubepods.slice/kubepods-pod{SLICED}.slice/crio-{CONTAINER}.scope", UID),
        (f"5:devices:/kubepods/besteffort/pod{UID}/{CONTAINER}\n4:memory:/\n0::/", UID),
        (
            f"11:memory:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{SLICED}.slice/docker-{CONTAINER}.scope",
            UID,
        ),
        (f"0::/docker/{CONTAINER}/kubelet/kubepods/burstable/pod{UID}/{CONTAINER}", UID),
        (
            f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{SLICED}.slice/cri-containerd-{CONTAINER}.scope",
            UID,
        ),
        (f"0::/../../pod{UID}/{CONTAINER}", UID),
        (f"0::/kubepods/pod{'ab' * 16}/{CONTAINER}", "ab" * 16),
        (f"0::/kubepods/pod{UID}/{CONTAINER}/pod{UID.replace('0', '1')}", UID),
        (f"0::/system.slice/docker-{CONTAINER}.scope", None),
        ("0::/user.slice/user-1000.slice/session-1.scope", None),
        ("0::/machine.slice/libpod-abc.scope/podlet", None),
        ("0::/", None),
        ("", None),
        ("\x00garbage", None),
    ],
)
def test_the_pod_is_found_in_every_cgroup_layout(cgroup: str, uid: str | None) -> None:
    """The pod is found in cgroup versions 1 and 2, cgroupfs and systemd, nested and relative paths, nowhere else."""
    assert pod_uid(cgroup) == uid


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
