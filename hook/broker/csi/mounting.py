"""The mounts and unmounts of volumes, and the kernel's mount table. Everything here blocks."""

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

from hook.broker.core.volume import Mount, read_mounts
from plimsoll.part.mounting import (
    LIBC,
    MNT_DETACH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REMOUNT,
    bind,
    mount,
)

__all__ = ["bind", "is_in_first_namespace", "mount_tmpfs", "mounts", "stage_read_only", "unmount"]

UMOUNT_NOFOLLOW: Final = 8

_SAFE: Final = MS_NOSUID | MS_NODEV
_TABLE: Final = Path("/proc/self/mountinfo")


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


def stage_read_only(source: Path, target: Path) -> None:
    """Bind a directory read-only, as a source of further binds.

    The mount is private. Otherwise mounts inside a pod's volume would appear inside the stage too.

    Raises:
        OSError: as in `bind`.
    """
    bind(source, target)
    mount("none", target, "", MS_PRIVATE)
    mount("none", target, "", MS_REMOUNT | MS_BIND | MS_RDONLY | _SAFE)


def mount_tmpfs(source: str, target: Path, options: str) -> None:
    """Mount an empty file system in memory, without programs or devices.

    Args:
        source: stands in the mount table.
        target: the directory on which it lies.
        options: as in `mount -o`.

    Raises:
        OSError: the directory is missing, or this process may not mount.
    """
    mount(source, target, "tmpfs", _SAFE | MS_NOEXEC, options)


def unmount(point: Path) -> None:
    """Take away the top mount of a directory, also while a program stands in it; ignore a directory without mounts.

    Raises:
        OSError: this process may not unmount.
    """
    if LIBC.umount2(os.fsencode(point), MNT_DETACH | UMOUNT_NOFOLLOW) == 0:
        return
    error = ctypes.get_errno()
    if error not in {errno.EINVAL, errno.ENOENT}:
        raise OSError(error, os.strerror(error), str(point))
