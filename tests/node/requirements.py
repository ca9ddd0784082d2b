"""The programs and rights that a real node needs, and where Debian has them."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

NAMESPACES: Final = ("--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Options of `unshare` for the namespaces of a node: what runs in them ends with them."""

CGROUPS: Final = Path("/sys/fs/cgroup")

CNI_PLUGINS: Final = Path("/usr/lib/cni")

PROGRAMS: Final[Mapping[str, str]] = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    str(CNI_PLUGINS / "bridge"): "containernetworking-plugins",
    "ip": "iproute2",
    "mount": "mount",
    "unshare": "util-linux",
}
"""Each program with the Debian package that has it."""

BUILDERS: Final = ("buildah", "debootstrap")
"""The programs, and packages, that build images on a base of Debian's packages."""


def missing_packages(programs: Mapping[str, str] = PROGRAMS) -> tuple[str, ...]:
    """The packages whose programs are not installed, sorted, each once."""
    return tuple(sorted({package for name, package in programs.items() if shutil.which(name) is None}))


def obstacle(*, images: bool = False) -> str | None:
    """The reason why no node can run on this machine, with the remedy; None if a node can.

    Args:
        images: whether images are to be built as well.
    """
    programs = {**PROGRAMS, **(dict(zip(BUILDERS, BUILDERS, strict=True)) if images else {})}
    if problem := machine_obstacle():
        return problem
    if packages := " ".join(missing_packages(programs)):
        return f"missing: {packages}; remedy: apt-get install {packages}"
    return None


def machine_obstacle() -> str | None:
    """Like `obstacle`, of the machine itself: what no package mends."""
    if os.geteuid() != 0:
        return "a kubelet needs root; remedy: run as root"
    tried = subprocess.run(["unshare", *NAMESPACES, "true"], check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no namespaces of its own ({tried.stderr.strip()}); remedy: run outside of containers, or privileged"
    if not os.access(CGROUPS, os.W_OK):
        return f"{CGROUPS} is read-only; remedy: run outside of containers, or privileged"
    return None
