"""CPU time and memory of other processes, to the nanosecond and to the page."""

import os
import time
from pathlib import Path
from typing import Final

PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
MIB: Final = 1 << 20
_SCHEDULED: Final = 2
"""CPUCLOCK_SCHED in the kernel's include/linux/posix-timers.h: all CPU time of a process."""


def cpu_ns(pid: int) -> int:
    """The CPU time of a process until now, all threads, user and system, in nanoseconds."""
    return time.clock_gettime_ns((~pid << 3) | _SCHEDULED)


def resident_mib(pid: int) -> float:
    """The resident memory of a process, in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES / MIB


def mapped_mib(pid: int, file: str) -> float:
    """The part of a process's resident memory that is a mapped file of this name, in MiB."""
    found_kib, path = 0, ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):  # the first line of a mapping: addresses, flags and the file
            path = words[-1]
        elif words[0] == "Rss:" and path.endswith(f"/{file}"):
            found_kib += int(words[1])
    return found_kib / 1024


class CpuMeter:
    """The CPU time of a process from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began_ns, self._used_ns = time.monotonic_ns(), cpu_ns(pid)

    def cpu_s(self) -> float:
        """The CPU time since the beginning, in seconds."""
        return (cpu_ns(self._pid) - self._used_ns) / 1e9

    def core_pct(self) -> float:
        """The CPU time since the beginning, in percent of one core."""
        return 100 * (cpu_ns(self._pid) - self._used_ns) / (time.monotonic_ns() - self._began_ns)
