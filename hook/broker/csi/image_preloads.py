"""The preloads of a container's own image, which the mount over its `/etc/ld.so.preload` hides.

No part sees the image before its container starts: the kubelet asks for the volume before it pulls the image. So the
kernel asks here when a program first opens a container's file of preloads (fanotify, `FAN_OPEN_PERM`). The answer
comes once the lines of the image stand in the file, behind the library's, and the program's loader reads them all.
The image's file lies beneath the mount, in the program's mount namespace. A copy of that namespace's root mount shows
it.

What always holds: a program waits for one answer at most, and the first program of a container alone. Each question
is answered, whatever goes wrong, and the kernel answers those of a broker that ended. Nothing of a tenant is
followed: no link, and no other mount.
"""

import contextlib
import ctypes
import os
import select
import stat
import struct
import threading
from pathlib import Path
from typing import Final

from hook.broker.core.volume import LIMITS_PART
from plimsoll.broker.pages import PRELOADS_NAME
from plimsoll.broker.volume import CONTAINER_LIBRARY, PRELOADS_FILE
from plimsoll.part.log import get_logger
from plimsoll.part.mounting import CLONE_NEWNS, LIBC

MOST_BYTES: Final = 4096
"""An image's file may have this many bytes. glibc reads any number, and no image needs more."""

LINE: Final = f"{CONTAINER_LIBRARY}\n".encode()

_FAN_CLASS_CONTENT: Final = 4
_FAN_CLOEXEC: Final = 1
_FAN_UNLIMITED_MARKS: Final = 0x20
_FAN_MARK_ADD: Final = 1
_FAN_MARK_REMOVE: Final = 2
_FAN_OPEN_PERM: Final = 0x10000
_FAN_ALLOW: Final = 1
_EVENT: Final = struct.Struct("=IBBHQii")
_ANSWER: Final = struct.Struct("=iI")

_CLONE_FS: Final = 0x200
_OPEN_TREE: Final = 428  # the same on every machine, as openat2
_OPENAT2: Final = 437
_OPEN_TREE_CLONE: Final = 1
_RESOLVE_NO_XDEV_NO_SYMLINKS: Final = 0x01 | 0x04
_HOW: Final = struct.Struct("=QQQ")

_log: Final = get_logger()


class ImagePreloads:
    """Watches the files of preloads of containers that have not started yet."""

    def __init__(self, root: Path) -> None:
        """Describe them; `open` must come first.

        Args:
            root: the broker's root directory.
        """
        self._limits = root / LIMITS_PART
        self._watched: dict[tuple[int, int], int] = {}
        """By device and inode, our own descriptor of each file. Thread and caller change it, each in one step."""
        self._group = -1
        self._end = -1
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Watch the files that are there. Where the kernel tells no opens, a log line says what stays hidden."""
        self._group = LIBC.fanotify_init(
            _FAN_CLASS_CONTENT | _FAN_CLOEXEC | _FAN_UNLIMITED_MARKS, os.O_RDONLY | os.O_CLOEXEC
        )
        if self._group < 0:
            problem, remedy = (
                os.strerror(ctypes.get_errno()),
                "in pods of such images, set LD_PRELOAD instead",
            )
            _log.warning("preloads_of_images_hidden", file=PRELOADS_FILE, problem=problem, remedy=remedy)
            return
        self._end = os.eventfd(0)
        self._thread = threading.Thread(target=self._answer_all, name="preloads of images", daemon=True)
        self._thread.start()
        for path in self._limits.glob(f"*/*/{PRELOADS_NAME}"):
            self.watch(path.parent)

    def close(self) -> None:
        """Answer no more. The kernel answers what is still asked."""
        if self._thread is not None:
            os.eventfd_write(self._end, 1)
            self._thread.join()
            for number in (self._group, self._end, *self._watched.values()):
                os.close(number)
            self._watched.clear()
            self._thread = None

    def watch(self, directory: Path) -> None:
        """Watch the file in a container's directory of limits, unless lines of its image stand there already."""
        if self._thread is None:
            return
        with contextlib.suppress(OSError):
            file = os.open(directory / PRELOADS_NAME, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            about = os.fstat(file)
            if about.st_size != len(LINE) or (about.st_dev, about.st_ino) in self._watched:
                os.close(file)
                return
            self._watched[about.st_dev, about.st_ino] = file
            self._mark(_FAN_MARK_ADD, file)

    def forget(self) -> None:
        """Drop the files of pods that are gone."""
        for key, file in list(self._watched.items()):
            if os.fstat(file).st_nlink == 0:
                self._drop(key)

    def _mark(self, what: int, file: int) -> None:
        LIBC.fanotify_mark(self._group, what, ctypes.c_uint64(_FAN_OPEN_PERM), file, None)

    def _drop(self, key: tuple[int, int]) -> None:
        file = self._watched.pop(key, None)
        if file is not None:
            self._mark(_FAN_MARK_REMOVE, file)
            os.close(file)

    def _answer_all(self) -> None:
        """Answer until the end. This thread goes into containers' mount namespaces, and looks up nothing else."""
        processes = os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        LIBC.unshare(_CLONE_FS)
        ready = select.poll()
        ready.register(self._group, select.POLLIN)
        ready.register(self._end, select.POLLIN)
        while all(number != self._end for number, _ in ready.poll()):
            events = os.read(self._group, 64 * _EVENT.size)
            for at in range(0, len(events), _EVENT.size):
                *_, opened, pid = _EVENT.unpack_from(events, at)
                try:
                    self._settle(opened, pid, processes)
                except OSError as error:
                    _log.warning("preloads_of_image_unknown", pid=pid, problem=str(error))
                finally:
                    os.write(self._group, _ANSWER.pack(opened, _FAN_ALLOW))
                    os.close(opened)
        os.close(processes)

    def _settle(self, opened: int, pid: int, processes: int) -> None:
        """Add the image's lines to a file, if the process that opens it sees the file as its container's.

        Raises:
            OSError: the process ended, or its namespace cannot be entered.
        """
        about = os.fstat(opened)
        key = about.st_dev, about.st_ino
        file = self._watched.get(key)
        if file is None:
            return
        namespace = os.open(f"{pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC, dir_fd=processes)
        try:
            if LIBC.setns(namespace, CLONE_NEWNS) != 0:
                raise _failed("setns")
        finally:
            os.close(namespace)
        with contextlib.suppress(FileNotFoundError):
            seen = os.stat(PRELOADS_FILE)  # noqa: PTH116 - a `Path` says no more
            if (seen.st_dev, seen.st_ino) == key:
                lines = _beneath()
                if lines:
                    os.pwrite(file, lines + b"\n", len(LINE))
                    _log.info("preloads_of_image_kept", pid=pid, lines=lines.decode(errors="replace"))
                self._drop(key)


def _beneath() -> bytes:
    """The content of the image's own file, in the mount namespace of this thread; empty where it has none."""
    tree = LIBC.syscall(_OPEN_TREE, -100, b"/", _OPEN_TREE_CLONE | os.O_CLOEXEC)
    if tree < 0:
        raise _failed("open_tree")
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    how = _HOW.pack(flags, 0, _RESOLVE_NO_XDEV_NO_SYMLINKS)
    name = PRELOADS_FILE.removeprefix("/").encode()
    file = LIBC.syscall(_OPENAT2, tree, name, how, len(how))
    os.close(tree)
    if file < 0:
        return b""
    try:
        is_plain = stat.S_ISREG(os.fstat(file).st_mode)
        return os.read(file, MOST_BYTES).strip() if is_plain else b""
    finally:
        os.close(file)


def _failed(call: str) -> OSError:
    error = ctypes.get_errno()
    return OSError(error, os.strerror(error), call)
