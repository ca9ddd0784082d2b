"""Real control groups of version 2, laid out as a kubelet with the systemd driver lays out a pod's."""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from plimsoll.ids import PodUid
from tests.servers.waiting import PATIENCE_S


def cgroup2_mount() -> Path | None:
    """Where control groups of version 2 are mounted, also beside those of version 1; None where they are not."""
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split()
        if fields[fields.index("-") + 1] == "cgroup2" and fields[3] == "/":
            return Path(fields[4])
    return None


@contextmanager
def cgroup_tree() -> Iterator[Path]:
    """A control group of its own, removed with all below it; skips the test where this machine allows none."""
    mount = cgroup2_mount()
    if mount is None:
        pytest.skip("no control groups of version 2 are mounted: they need a mount of type cgroup2")
    if os.geteuid() != 0:
        pytest.skip("control groups need root: run these tests as root")
    try:
        root = Path(tempfile.mkdtemp(prefix="plimsoll-test-", dir=mount))
    except OSError as error:
        pytest.skip(f"this machine makes no control groups: {error}")
    root.chmod(0o755)
    try:
        yield root
    finally:
        deepest_first = sorted(root.rglob("*/"), key=lambda path: len(path.parts), reverse=True)
        for group in (*deepest_first, root):
            _remove(group)


def make_pod_group(root: Path, pod: PodUid) -> Path:
    """Make a pod's own group, as the kubelet does before the pod starts."""
    group = root / "kubepods.slice" / f"kubepods-pod{re.sub('-', '_', pod)}.slice"
    group.mkdir(parents=True)
    return group


def make_container_group(pod: Path, container_id: str) -> Path:
    """Make a container's group, as containerd does."""
    group = pod / f"cri-containerd-{container_id}.scope"
    group.mkdir()
    return group


def inside(group: Path) -> tuple[str, ...]:
    """A command that runs another one in a control group."""
    return ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")


def _remove(group: Path) -> None:
    """Remove a group once its last process, which was killed, is gone."""
    deadline_s = time.monotonic() + PATIENCE_S
    while group.is_dir():
        try:
            group.rmdir()
        except OSError:
            assert time.monotonic() < deadline_s, (group / "cgroup.procs").read_text()
            time.sleep(0.01)
