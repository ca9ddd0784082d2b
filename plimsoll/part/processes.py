"""The machine's processes: start times, handles (`pidfd`), and deaths.

A pid alone does not identify a process, because the kernel uses it again; pid and start time together do
(`plimsoll.ids.ProcessKey`). What always holds: a handle is trusted only if the start time, read after the handle was
opened, is the expected one. A process counts as gone only if the kernel says so, never because file descriptors ran
out.
"""

import asyncio
import contextlib
import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, TypeVar

from plimsoll.part.clock import OWN

PROC: Final = Path("/proc")

GONE: Final = (FileNotFoundError, ProcessLookupError)
"""The errors by which /proc reports that there is no such process."""

PROC_BYTES: Final = 16384
"""The kernel writes at most a page into `stat` and `status`; a page has 4 to 16 KiB where we run."""

_STATE, _PARENT, _START_TICKS = 0, 1, 19
"""Fields 3, 4 and 22 of /proc/<pid>/stat, counted after the command's name, which may hold spaces and `)`."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of `/proc/<pid>/stat` that we read.

    Attributes:
        start_ticks: start time in clock ticks since the machine's boot, whatever time namespace reads it.
        has_ended: the process is a zombie: dead, and its parent has not waited for it.
        parent: the pid of its parent; 0 where it has none in our pid namespace.
        is_stopped: a signal or a tracer has stopped it.
    """

    start_ticks: int
    has_ended: bool
    parent: int = 0
    is_stopped: bool = False


def parse_stat(text: str) -> Stat | None:
    """Parse the text of a `/proc/<pid>/stat`; None for any other text."""
    fields = text.rpartition(")")[2].split()
    if len(fields) <= _START_TICKS or not fields[_START_TICKS].isdecimal():
        return None
    state = fields[_STATE]
    start_ticks = int(fields[_START_TICKS]) - OWN.boot_ticks
    return Stat(start_ticks, state in ("Z", "X", "x"), int(fields[_PARENT]), state in ("T", "t"))


def read_stat(pid: int) -> Stat | None:
    """The `stat` of the process that has this pid now, or None if none has it. Blocks, briefly.

    Raises:
        OSError: /proc could not be read, for example because file descriptors ran out.
    """
    try:
        return parse_stat(read_proc(pid, "stat").decode(errors="replace"))
    except GONE:
        return None


def read_proc(pid: int, name: str) -> bytes:
    """A small file of `/proc/<pid>`, at most `PROC_BYTES` of it; by a third of the cost of `Path.read_bytes`.

    Raises:
        OSError: as `open` and `read`; the errors of `GONE` for a process that is gone.
    """
    with open(f"{PROC}/{pid}/{name}", "rb", buffering=0) as file:  # noqa: PTH123 - see above
        return file.read(PROC_BYTES)


def open_process(pid: int, start_ticks: int) -> int | None:
    """A handle on exactly this process, or None if it is gone; a zombie is not gone. Blocks, briefly.

    Raises:
        OSError: file descriptors ran out.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        # The open handle keeps the kernel from giving the pid to another process: now read whose pid it is.
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
        """Call `on_death`, on the loop, once for each watched process."""
        self._on_death = on_death
        self._handles: dict[K, int] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._handles

    def watch(self, key: K, handle: int | None) -> None:
        """Call `on_death` with `key` once the process is dead; at once if `handle` is None.

        The watch closes the handle. A zombie is dead; a process whose first thread alone ended is not.

        Args:
            key: identifies the process to `on_death`.
            handle: the handle from `open_process`.
        """
        if handle is None:
            self._on_death(key)
        elif key in self._handles:
            os.close(handle)
        else:
            self._handles[key] = handle
            asyncio.get_running_loop().add_reader(handle, self._ended, key)

    def close(self) -> None:
        """Stop watching; `on_death` is not called any more."""
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
    """The machine's boot id, new at every boot. Blocks, briefly."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def allow_many_files() -> None:
    """Raise the soft limit on open files to the hard one: a handle per process soon passes the usual 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
