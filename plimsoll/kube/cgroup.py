"""The pod of a process, from its cgroup, and the cgroups of a pod and its containers."""

import os
import re
from pathlib import Path
from typing import Final

from plimsoll.ids import PodUid
from plimsoll.part.processes import GONE, PROC

_POD: Final = re.compile(
    r"(?:^|-)pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?(?:$|:)"
)
"""A pod's own cgroup: `pod<uid>` by the cgroupfs driver, `…-pod<uid>.slice` by the systemd driver, which writes
the uid's `-` as `_`. Static pods have 32 hex digits in place of a UUID. Where the kubelet uses the systemd driver and
the runtime does not, one name holds pod and container: `…-pod<uid>.slice:cri-containerd:<id>`."""


def read_pod(pid: int) -> PodUid | None:
    """The pod that a process is in now; None outside of any pod, or if /proc does not show it. Blocks, briefly."""
    try:
        return pod_uid((PROC / str(pid) / "cgroup").read_text(errors="replace"))
    except (*GONE, PermissionError):
        return None


def pod_uid(cgroup: str) -> PodUid | None:
    """The pod that a process runs in, from the text of its `/proc/<pid>/cgroup`; None outside of any pod.

    Handles cgroup v1 and v2, the cgroupfs and systemd drivers, nested clusters, and paths relative to
    a cgroup namespace. The outermost match counts, because a container names folders in its own cgroup as it likes.
    """
    for line in cgroup.splitlines():
        path = line.split(":", 2)[-1]
        for part in path.split("/"):
            if found := _POD.search(part):
                return PodUid(found["uid"].replace("_", "-"))
    return None


def find_pod_cgroup(root: Path, pod: PodUid) -> Path | None:
    """The directory of a pod's own cgroup; None if the kubelet has not made it, or makes none. Blocks, for some ms.

    Args:
        root: where cgroups are mounted. The kubelet's own place below it may be anywhere.
        pod: its uid.
    """
    for directory, names, _ in os.walk(root):
        own = [name for name in names if ":" not in name]  # with a colon, the group is a container's
        pods = {name: found for name in own if (found := pod_uid(f"0::/{name}")) is not None}
        for name, found in pods.items():
            if found == pod:
                return Path(directory, name)
        names[:] = [name for name in names if name not in pods]
    return None


def find_container_cgroup(pod: Path, container_id: str) -> Path | None:
    """The directory of a container's cgroup in its pod's; None if there is none.

    Args:
        pod: the pod's own cgroup.
        container_id: as the pod's status names it, such as `containerd://0a1b…`. Runtimes name the cgroup by the id,
            or put a prefix of theirs and `.scope` around it.
    """
    name = container_id.rpartition("/")[2]
    try:
        names = os.listdir(pod)  # noqa: PTH208 - names are all that is needed
    except OSError:  # The pod has just ended.
        return None
    found = [one for one in names if name and (one == name or one.endswith((f"-{name}", f"-{name}.scope")))]
    return pod / found[0] if found else None
