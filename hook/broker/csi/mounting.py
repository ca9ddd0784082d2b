"""The calls of Linux that mount and unmount, and the kernel's mount table. Everything here blocks.

The names of flags are those of `mount(2)` and `umount2(2)`. The classic calls work on each kernel that Kubernetes
supports; the newer ones, which make a read-only clone in one step, need Linux 5.12.
"""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

from hook.broker.core.volume import Mount, read_mounts

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_PRIVATE: Final = 1 << 18
MNT_DETACH: Final = 2
UMOUNT_NOFOLLOW: Final = 8

_SAFE: Final = MS_NOSUID | MS_NODEV
_TABLE: Final = Path("/proc/self/mountinfo")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def mounts(naming: str = "") -> tuple[Mount, ...]:
    """The mounts that this process sees.

    Args:
        naming: a text without spaces, such as a pod's uid; mounts whose lines lack it may be left out. A node full of
            pods has a thousand mounts, which take longer to read one by one than to pass over.
    """
    return read_mounts(_TABLE.read_text(errors="surrogateescape"), naming)


def is_in_first_namespace() -> bool:
    """Whether this process mounts where the machine's first process does; False if the first process is hidden."""
    try:
        return Path("/proc/self/ns/mnt").samefile("/proc/1/ns/mnt")
    except OSError:
        return False


def bind(source: Path, target: Path) -> None:
    """Let a directory appear at another path. A read-only source gives a read-only mount.

    Raises:
        OSError: one of them is missing, or this process may not mount.
    """
    _mount(str(source), target, "", MS_BIND, "")


def stage_read_only(source: Path, target: Path) -> None:
    """Bind a directory read-only, as a source of further binds.

    The mount is private. Otherwise mounts inside a pod's volume would appear inside the stage too.

    Raises:
        OSError: as in `bind`.
    """
    _mount(str(source), target, "", MS_BIND, "")
    _mount("none", target, "", MS_PRIVATE, "")
    _mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | _SAFE, "")


def mount_tmpfs(source: str, target: Path, options: str) -> None:
    """Mount an empty file system in memory, without programs or devices.

    Args:
        source: stands in the mount table.
        target: the directory on which it lies.
        options: as in `mount -o`.

    Raises:
        OSError: the directory is missing, or this process may not mount.
    """
    _mount(source, target, "tmpfs", _SAFE | MS_NOEXEC, options)


def unmount(point: Path) -> None:
    """Take away the top mount of a directory, also while a program stands in it; ignore a directory without mounts.

    Raises:
        OSError: this process may not unmount.
    """
    if _LIBC.umount2(os.fsencode(point), MNT_DETACH | UMOUNT_NOFOLLOW) == 0:
        return
    error = ctypes.get_errno()
    if error not in {errno.EINVAL, errno.ENOENT}:
        raise OSError(error, os.strerror(error), str(point))


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags))
    if _LIBC.mount(*arguments, options.encode() or None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(target))
