"""The call of Linux that mounts. It blocks.

The names of flags are those of `mount(2)`. The classic call works on each kernel that Kubernetes supports; the newer
ones, which make a read-only clone in one step, need Linux 5.12.
"""

import ctypes
import os
from pathlib import Path
from typing import Final

MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_REC: Final = 1 << 14
MS_PRIVATE: Final = 1 << 18
MS_SLAVE: Final = 1 << 19
MNT_DETACH: Final = 2
CLONE_NEWNS: Final = 1 << 17

LIBC: Final = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system, bind a directory or a file, or change a mount, by the flags.

    Raises:
        OSError: the target is missing, or this process may not mount.
    """
    arguments = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags))
    if LIBC.mount(*arguments, options.encode() or None) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), str(target))


def bind(source: Path, target: Path) -> None:
    """Let a directory or a file appear at another path. A read-only source gives a read-only mount.

    Raises:
        OSError: one of them is missing, or this process may not mount.
    """
    mount(str(source), target, "", MS_BIND)


def unshare_mounts() -> None:
    """Give this thread, and the processes that it starts, a mount namespace of their own.

    Mounts of others still appear in it. Mounts that are made in it appear nowhere else.

    Raises:
        OSError: this process may not.
    """
    if LIBC.unshare(CLONE_NEWNS) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), "unshare")
    mount("none", Path("/"), "", MS_REC | MS_SLAVE)
