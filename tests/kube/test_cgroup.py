"""A process's pod is read from its cgroup."""

import pytest

from plimsoll.kube.cgroup import pod_uid

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
