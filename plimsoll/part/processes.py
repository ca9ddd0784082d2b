"""The machine's processes, as its node's parts know them: by pid and start time, and by word of their death.

A pid alone names nobody, as it comes again; with the start time it does, and monitor and broker name the same process
alike. What always holds: a handle (`pidfd`) is trusted only once the start time was read after it was opened; a
process is taken for gone only if the kernel says so, never for want of file descriptors.
"""

import asyncio
import contextlib
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

PROC: Final = Path("/proc")

GONE: Final = (FileNotFoundError, ProcessLookupError)
"""How /proc says that there is no such process."""

_STATE, _START_TICKS = 0, 19
"""Fields 3 and 22 of /proc/<pid>/stat, counted after the command's name, which may hold spaces and `)`."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Stat:
    """What `/proc/<pid>/stat` tells.

    Attributes:
        start_ticks: when it began, in clock ticks since boot.
        has_ended: it is a zombie: dead, and its parent has not asked after it.
    """

    start_ticks: int
    has_ended: bool


def parse_stat(text: str) -> Stat | None:
    """The text of a `/proc/<pid>/stat`; None for text that is no such file."""
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _START_TICKS or not fields[_START_TICKS].isdecimal():
        return None
    return Stat(int(fields[_START_TICKS]), fields[_STATE] in ("Z", "X", "x"))


def read_stat(pid: int) -> Stat | None:
    """What the kernel tells of a process now, or None if there is none of this pid. Blocks, briefly.

    Raises:
        OSError: that cannot be told, as descriptors ran out, for example.
    """
    try:
        return parse_stat((PROC / str(pid) / "stat").read_text(errors="replace"))
    except GONE:
        return None


def open_process(pid: int, start_ticks: int) -> int | None:
    """A handle on exactly this process, or None if it is gone; a zombie still is there. Blocks, briefly.

    Raises:
        OSError: descriptors ran out.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        # Only now can the pid not be given to another: who has it?
        stat = read_stat(pid)
    except BaseException:
        os.close(handle)
        raise
    if stat is not None and stat.start_ticks == start_ticks:
        return handle
    os.close(handle)
    return None


class DeathWatch(Generic[K]):
    """Waits for the deaths of many processes at once, without polling. For one event loop; `close` it there."""

    def __init__(self, on_death: Callable[[K], None]) -> None:
        """Tell `on_death`, on the loop, once for each process that is watched."""
        self._on_death = on_death
        self._handles: dict[K, int] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._handles

    def watch(self, key: K, handle: int | None) -> None:
        """Tell of this process once it is dead; at once if `open_process` gave None.

        Takes the handle over. A zombie is dead; a process whose first thread ended is not.
        """
        if handle is None:
            self._on_death(key)
        elif key in self._handles:
            os.close(handle)
        else:
            self._handles[key] = handle
            asyncio.get_running_loop().add_reader(handle, self._ended, key)

    def close(self) -> None:
        """Watch nobody any more; nothing more is told."""
        for key in tuple(self._handles):
            self._forget(key)

    def _ended(self, key: K) -> None:
        self._forget(key)
        self._on_death(key)

    def _forget(self, key: K) -> None:
        handle = self._handles.pop(key)
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


def boot_id() -> str:
    """The machine's, new at every boot. Blocks, briefly."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def allow_many_files() -> None:
    """Lift the soft limit on open files to the hard one: a handle per process soon passes the usual 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
