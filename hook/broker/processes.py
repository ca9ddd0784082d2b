"""Who is behind the owner words: the containers' processes as `/proc` shows them.

The broker must see them: as a DaemonSet it runs with `hostPID: true`.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from hook.broker.core.ids import HALF, Process, ProcessKey, owner_word
from plimsoll.part.processes import GONE, PROC, read_stat

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h: the same on every machine."""


def in_first_pid_namespace() -> bool:
    """Whether every process of the machine can be seen from here."""
    return str((PROC / "self/ns/pid").readlink()) == _FIRST_PID_NAMESPACE


def uptime_ticks() -> int:
    """Clock ticks since the machine's boot."""
    return int(float((PROC / "uptime").read_text().split()[0]) * TICKS_PER_S)


def read_process(pid: int) -> Process | None:
    """A process as it is now, or None if there is none of this pid.

    A dead process that its parent has not yet asked after still is one.

    Raises:
        OSError: that cannot be told, as the broker ran out of descriptors, for example.
    """
    stat = read_stat(pid)
    own_pid = _own_pid(pid)
    if stat is None or own_pid is None:
        return None
    return Process(ProcessKey(pid, stat.start_ticks), owner_word(own_pid, stat.start_ticks))


def find_known(keys: Iterable[ProcessKey]) -> list[Process]:
    """Those of these processes that still are there."""
    found = ((key, read_process(key.pid)) for key in keys)
    return [process for key, process in found if process is not None and process.key == key]


def find_owners(owners: frozenset[int], mapped_file: Path) -> dict[int, Process]:
    """The processes behind owner words, by a look at every process of the machine.

    Two containers may each hold a process that sees itself as the same pid and started in the same tick;
    among such twins, the one that maps the container's `counts` is meant.

    Args:
        owners: the words; the search costs one small read per process of the machine.
        mapped_file: the `counts` in which the words stood.
    """
    if not owners:
        return {}
    found: dict[int, list[Process]] = {}
    starts = {owner // HALF for owner in owners}
    for pid in _pids():
        stat = read_stat(pid)
        if stat is not None and stat.start_ticks % HALF in starts:
            process = read_process(pid)
            if process is not None and process.owner in owners:
                found.setdefault(process.owner, []).append(process)
    return {owner: _the_one_mapping(mapped_file, twins) for owner, twins in found.items()}


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208 - 3x faster


def _own_pid(pid: int) -> int | None:
    try:
        status = (PROC / str(pid) / "status").read_bytes()
    except GONE:
        return None
    numbers = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
    return int(numbers[-1]) if numbers else pid


def has_let_go(key: ProcessKey, file: Path) -> bool:
    """Whether a process surely does not map a file: it lives, and its maps can be read and do not show it.

    A process on its way out has no maps; its death will be heard of.
    """
    try:
        inode = str(file.lstat().st_ino).encode()
        mapped = _read_mapped_inodes(key.pid)
    except OSError:
        return False
    return bool(mapped) and inode not in mapped and bool(find_known([key]))


def _the_one_mapping(file: Path, twins: list[Process]) -> Process:
    if len(twins) == 1:
        return twins[0]
    inode = str(file.stat().st_ino).encode()
    mapping = [twin for twin in twins if inode in _mapped_inodes(twin.key.pid)]
    return (mapping or twins)[0]


def _mapped_inodes(pid: int) -> frozenset[bytes]:
    try:
        return _read_mapped_inodes(pid)
    except OSError:
        return frozenset()


def _read_mapped_inodes(pid: int) -> frozenset[bytes]:
    lines = (PROC / str(pid) / "maps").read_bytes().splitlines()
    return frozenset(line.split()[4] for line in lines)
