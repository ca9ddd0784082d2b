"""Namespaces of a test node (mounts, network, processes), so that nothing of it outlives a run or is seen outside.

Namespaces do not cover control groups and a few settings of the kernel that a kubelet changes. These are put back.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from plimsoll.part.child import dying_with_us
from tests.node import requirements
from tests.node.places import DIRECTORY_VARIABLE

KEEP_VARIABLE = "KEEP_NODE_FILES"
"""Set to read the logs of all servers after the run."""
# The kubelet writes these, for all of the machine.
SETTINGS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
SETTINGS_OF_KEYS = ("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes")
END_S = 10.0
"""The kernel ends the processes of a namespace after its first process; on a busy machine that takes seconds."""
WEIGHT_OF_A_STEP = 1.25
"""The kernel's own factor between two steps of niceness."""
WEIGHTS = {"cpu.shares": (1024, 262_144), "cpu.weight": (100, 10_000)}
"""The usual and the largest weight of a control group, in version 1 and in version 2."""


def run_inside(command: Sequence[str]) -> int:
    """Run a command in fresh namespaces, with a directory for a node's files; return its exit status."""
    with own_directory() as directory, kept_settings(), own_cgroup(directory.name):
        environment = {**os.environ, DIRECTORY_VARIABLE: str(directory)}
        enter = (sys.executable, "-m", "tests.node.enter", *command)
        # Ended by a signal or by force, this process takes the namespaces along.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
        unshare = dying_with_us(shutil.which("unshare") or "unshare")
        entered = [*unshare, *requirements.NAMESPACES, *enter]
        return subprocess.run(entered, env=environment, check=False).returncode


@contextlib.contextmanager
def own_directory() -> Iterator[Path]:
    """A directory for all files, removed afterwards. Its path is short, as the paths of UNIX sockets must be."""
    directory = Path(tempfile.mkdtemp(prefix="pn-", dir="/tmp"))
    directory.chmod(0o755)  # programs of containers, under any user, read files in it
    try:
        yield directory
    finally:
        if not os.environ.get(KEEP_VARIABLE):
            shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def kept_settings() -> Iterator[None]:
    """Put the kernel's settings back afterwards."""
    paths = [Path("/proc/sys") / name for name in (*SETTINGS, *SETTINGS_OF_KEYS)]
    before = {path: path.read_text() for path in paths if path.exists()}
    try:
        yield
    finally:
        for path, value in before.items():
            if path.read_text() != value:
                path.write_text(value)


@contextlib.contextmanager
def own_cgroup(name: str) -> Iterator[None]:
    """A control group for the kubelet in each hierarchy, removed with all below it afterwards.

    All pods together weigh as much as one process of this priority: `nice -n -15 make bench-e2e` puts pods, too,
    before other work of the machine.
    """
    roots = cgroup_roots()
    weight = WEIGHT_OF_A_STEP ** -os.nice(0)
    for root in roots:
        (root / name).mkdir(exist_ok=True)
        for file, (usual, most) in WEIGHTS.items():
            if (path := root / name / file).exists():
                path.write_text(str(min(most, max(2, round(usual * weight)))))
    try:
        yield
    finally:
        for root in roots:
            remove_cgroup(root / name)


def cgroup_roots() -> list[Path]:
    """The hierarchies of version 1, or the only one of version 2."""
    if (requirements.CGROUPS / "cgroup.controllers").exists():
        return [requirements.CGROUPS]
    return [path for path in requirements.CGROUPS.iterdir() if path.is_dir() and not path.is_symlink()]


def remove_cgroup(path: Path) -> None:
    """Remove a control group and those below it. Groups of processes that do not end in `END_S` stay."""
    give_up_s = time.monotonic() + END_S
    while path.exists() and time.monotonic() < give_up_s:
        for below, _, _ in os.walk(path, topdown=False):
            with contextlib.suppress(OSError):
                Path(below).rmdir()
        if path.exists():
            time.sleep(0.1)
