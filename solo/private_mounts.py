"""The command's own mounts, by which its programs keep the library without their variables.

The command gets what a container has: `/run/plimsoll` with its pages and the library, and an `/etc/ld.so.preload`
that names the library. So `env -i`, `su -` and sudo take no line away. Needs root and the right to mount; without
them the variables alone hold the programs, and root is told so.

What always holds: nothing of it is seen outside the command. The machine's own preloads go on in the command. A mount
needs a file to lie on, so an empty `/etc/ld.so.preload` exists while commands run. The last one removes it.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from plimsoll.broker.pages import CONTAINER_COUNTS_DIR, CONTAINER_LIMITS_DIR
from plimsoll.broker.volume import CONTAINER_DIR, CONTAINER_LIBRARY, PRELOADS_FILE
from plimsoll.part.mounting import LIBC, MNT_DETACH, MS_NODEV, MS_NOSUID, bind, mount, unshare_mounts

LOCK_NAME: Final = "run.lock"
NO_MOUNTS: Final = (
    "root may not mount here, so only its variables hold the command: a program that clears them (`env -i`, `su -`, "
    "sudo) is reported, and not held; keep LD_PRELOAD and the PLIMSOLL_ variables, or add the capability SYS_ADMIN"
)
_FILE: Final = Path(PRELOADS_FILE)
_SOURCE: Final = "plimsoll"
"""The name of a command's own mount in the mount table."""


@dataclass(frozen=True, slots=True)
class PrivateMounts:
    """The mounts of one command.

    Attributes:
        lock: a descriptor that each process of the command inherits: the mounts stay while one has it.
    """

    lock: int

    def enter(self, library: Path, limits: str, counts: str) -> None:
        """Make the mounts in a namespace of this process's own.

        Args:
            library: `libplimsoll.so`.
            limits: the directory of the command's limits.
            counts: the directory of its counts.

        Raises:
            OSError: this process may not mount.
        """
        lines = [line for line in _FILE.read_bytes().splitlines() if line != CONTAINER_LIBRARY.encode()]
        unshare_mounts()
        place, there = Path(CONTAINER_DIR), Path(CONTAINER_LIBRARY)
        mount(_SOURCE, place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
        for directory in (CONTAINER_LIMITS_DIR, CONTAINER_COUNTS_DIR, there.parent):
            Path(directory).mkdir(0o755)
        bind(Path(limits), Path(CONTAINER_LIMITS_DIR))
        bind(Path(counts), Path(CONTAINER_COUNTS_DIR))
        there.touch()
        bind(library, there)
        preloads = place / _FILE.name
        preloads.write_bytes(b"\n".join([CONTAINER_LIBRARY.encode(), *lines, b""]))
        for path in (place, *(place / part for part in ("limits", "counts", "lib")), preloads):
            path.chmod(0o755)
        bind(preloads, _FILE)


def leave_mounts() -> None:
    """See the machine's own preloads again, in a namespace of this process's own, where an outer command hides them.

    A broker that a command starts must see the GPUs, not the command's line. One that may not mount sees the line.
    """
    with contextlib.suppress(OSError):
        unshare_mounts()
        while _hides_preloads() and LIBC.umount2(os.fsencode(_FILE), MNT_DETACH) == 0:
            pass


def are_in_mounts() -> bool:
    """Whether this process is of a command with mounts of its own."""
    table = Path("/proc/self/mounts").read_text(errors="replace")
    return f"\n{_SOURCE} {CONTAINER_DIR} tmpfs " in table and _hides_preloads()


def _hides_preloads() -> bool:
    return _FILE.is_file() and CONTAINER_LIBRARY.encode() in _FILE.read_bytes().splitlines()


@contextlib.contextmanager
def private_mounts() -> Iterator[PrivateMounts | None]:
    """Keep the place for a command's mounts; yields None where this process may make none. Blocks, briefly."""
    lock = _place() if os.geteuid() == 0 else None
    try:
        yield None if lock is None else PrivateMounts(lock)
    finally:
        if lock is not None:
            _leave(lock)


def _place() -> int | None:
    """Make the places, and lock them; None where the machine's file systems are read-only."""
    try:
        Path(CONTAINER_DIR).mkdir(0o755, exist_ok=True)
        lock = os.open(Path(CONTAINER_DIR) / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        _FILE.touch(0o644)
    except OSError:
        os.close(lock)
        return None
    return lock


def _leave(lock: int) -> None:
    """Remove the file that was made as a place, if no other command uses it and nobody wrote into it."""
    with contextlib.suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _FILE.stat().st_size == 0:
            _FILE.unlink()
    os.close(lock)
