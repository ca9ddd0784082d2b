"""The pod of a process, from its cgroup."""

import re
from typing import Final

from plimsoll.ids import PodUid
from plimsoll.part.processes import GONE, PROC

_POD: Final = re.compile(
    r"(?:^|-)pod(?P<uid>[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$"
)
"""A pod's own cgroup: `pod<uid>` by the cgroupfs driver, `…-pod<uid>.slice` by the systemd driver, which writes
the uid's `-` as `_`. Static pods have 32 hex digits in place of a UUID."""


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
