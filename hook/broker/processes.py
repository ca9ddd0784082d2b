"""The machine's processes, read from `/proc`: those behind owner words, and the pods of processes that use a GPU.

The broker must see the containers' processes. So as a DaemonSet it runs with `hostPID: true`.
"""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hook.broker.core.ids import HALF, Process, owner_word
from plimsoll.broker.environment import POD_VARIABLE
from plimsoll.ids import PodUid, ProcessKey
from plimsoll.kube.cgroup import read_pod
from plimsoll.part.clock import OWN, TICKS_PER_S
from plimsoll.part.processes import GONE, PROC, read_proc, read_stat

GENERATIONS_MAX: Final = 256
"""Ancestors that are looked at: far more than real programs have."""

_VARIABLE: Final = f"{POD_VARIABLE}=".encode()

_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO in the kernel's include/linux/proc_ns.h; the same on every machine."""

_ROUNDED_TICKS: Final = (0, 1, -1)
"""By how much a process's own reading of its start time may differ from ours, in ticks."""


def in_first_pid_namespace() -> bool:
    """Whether the broker can see every process of the machine."""
    return str((PROC / "self/ns/pid").readlink()) == _FIRST_PID_NAMESPACE


def uptime_ticks() -> int:
    """Clock ticks since the machine's boot: the uptime or a little more, so that no process starts after it."""
    return int(float((PROC / "uptime").read_text().split()[0]) * TICKS_PER_S) + 2 - OWN.boot_ticks


def read_process(pid: int, owners: Collection[int] = ()) -> Process | None:
    """The process of a pid, or None if there is none.

    A dead process that its parent has not reaped still counts.

    Args:
        pid: the pid here.
        owners: words in use. A time namespace shifted by parts of a tick rounds a start time otherwise, so a word
            that is one tick off names the process too. So does a word without a start time: the process has no /proc
            in which to read its own.

    Raises:
        OSError: `/proc` cannot be read, because the broker ran out of descriptors, for example.
    """
    stat = read_stat(pid)
    own_pid = _own_pid(pid)
    if stat is None or own_pid is None:
        return None
    words = [owner_word(own_pid, stat.start_ticks + later) for later in _ROUNDED_TICKS]
    words.append(owner_word(own_pid, 0))
    owner = next((word for word in words if word in owners), words[0])
    return Process(ProcessKey(pid, stat.start_ticks), owner)


def find_known(keys: Iterable[ProcessKey], owners: Collection[int] = ()) -> list[Process]:
    """The processes of these keys that still exist; for `owners`, see `read_process`."""
    found = ((key, read_process(key.pid, owners)) for key in keys)
    return [process for key, process in found if process is not None and process.key == key]


def find_owners(owners: frozenset[int], mapped_file: Path) -> dict[int, Process]:
    """Find the processes behind owner words among all processes of the machine.

    Two containers may each hold a process with the same pid in its own pid namespace and the same start tick. Among
    such twins, the result is the process that maps the container's `counts`. A word without a start time names only a
    process that maps it.

    Args:
        owners: the words; the search costs one small read per process of the machine.
        mapped_file: the `counts` that holds the words.
    """
    if not owners:
        return {}
    found: dict[int, list[Process]] = {}
    starts = {(owner // HALF - later) % HALF for owner in owners for later in _ROUNDED_TICKS}
    has_any_start = any(owner < HALF for owner in owners)
    for pid in _pids():
        stat = read_stat(pid)
        if stat is not None and (has_any_start or stat.start_ticks % HALF in starts):
            process = read_process(pid, owners)
            if process is not None and process.owner in owners and _is_named(process, mapped_file):
                found.setdefault(process.owner, []).append(process)
    return {owner: _the_one_mapping(mapped_file, twins) for owner, twins in found.items()}


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208 - 3x faster


def _own_pid(pid: int) -> int | None:
    """The process's pid in its own namespace; None for a process that is gone, or has given its pid back already."""
    try:
        status = read_proc(pid, "status")
    except GONE:
        return None
    numbers = status.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()
    return (int(numbers[-1]) or None) if numbers else pid


def has_let_go(key: ProcessKey, file: Path) -> bool:
    """Whether a process surely does not map a file: it lives, and its maps can be read and do not show the file.

    An exiting process has no maps. Its death will be reported.
    """
    try:
        wanted = _identity_of(file)
        mapped = _read_mapped(key.pid)
    except OSError:
        return False
    return bool(mapped) and not wanted.is_among(mapped) and bool(find_known([key]))


def _is_named(process: Process, mapped_file: Path) -> bool:
    return process.owner >= HALF or _identity_of(mapped_file).is_among(_mapped(process.key.pid))


def _the_one_mapping(file: Path, twins: list[Process]) -> Process:
    if len(twins) == 1:
        return twins[0]
    wanted = _identity_of(file)
    mapping = [twin for twin in twins if wanted.is_among(_mapped(twin.key.pid))]
    return (mapping or twins)[0]


@dataclass(frozen=True, slots=True)
class _Identity:
    """A file as `/proc/<pid>/maps` names it.

    Attributes:
        inode: its number.
        device: its file system; None where the number alone must do.
    """

    inode: bytes
    device: bytes | None

    def is_among(self, mapped: Collection[tuple[bytes, bytes]]) -> bool:
        """Whether one of these devices and inodes is the file's."""
        return any(inode == self.inode and self.device in (None, device) for device, inode in mapped)


def _identity_of(file: Path) -> _Identity:
    """The identity of a container's `counts`.

    In a tmpfs of its own, the number is the same for most containers, so the file system must agree too. Elsewhere,
    the number does: btrfs shows another device in `maps` than in `stat`.

    Raises:
        OSError: the file is gone.
    """
    about = file.lstat()
    device = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}".encode()
    return _Identity(str(about.st_ino).encode(), device if file.parent.is_mount() else None)


def _mapped(pid: int) -> frozenset[tuple[bytes, bytes]]:
    try:
        return _read_mapped(pid)
    except OSError:
        return frozenset()


def _read_mapped(pid: int) -> frozenset[tuple[bytes, bytes]]:
    """The device and the inode of each file that a process maps."""
    lines = (PROC / str(pid) / "maps").read_bytes().splitlines()
    return frozenset((device, inode) for _, _, _, device, inode in (line.split()[:5] for line in lines))


class PodsOfProcesses:
    """The pods of living processes that neither a hello nor their own cgroup ascribes to one. Blocks, briefly.

    A command under `plimsoll run` has no cgroup of its own. The sources, in order, for the process and then for each
    of its ancestors: it is the `plimsoll run` of a registered command; it carries a registered pod's uid in its
    environment; its cgroup is a registered pod's. `plimsoll run` adopts orphans among its descendants, and so is a
    daemon's ancestor.

    What always holds: a process keeps the pod that was found for it, also where its ancestors have ended since. A
    process for which none was found is looked at again only when pods come or go: a `plimsoll run` registers before
    its first descendant starts.
    """

    def __init__(self) -> None:
        self._known: dict[ProcessKey, PodUid | None] = {}
        self._pods: frozenset[PodUid] = frozenset()

    def pods_of(
        self,
        strays: Collection[ProcessKey],
        runners: Mapping[ProcessKey, PodUid],
        pods: Collection[PodUid],
    ) -> dict[ProcessKey, PodUid]:
        """The pods of these processes, less those of no pod. Every other process is forgotten.

        Args:
            strays: any processes.
            runners: each process whose descendants belong to a pod.
            pods: the registered pods.
        """
        if self._pods != frozenset(pods):
            self._pods = frozenset(pods)
            self._known = {key: pod for key, pod in self._known.items() if pod in self._pods}
        self._known = {
            key: self._known[key] if key in self._known else _pod_of(key, runners, self._pods)
            for key in strays
        }
        return {key: pod for key, pod in self._known.items() if pod is not None}


def _pod_of(key: ProcessKey, runners: Mapping[ProcessKey, PodUid], pods: Collection[PodUid]) -> PodUid | None:
    for each in _lineage(key):
        for pod in (runners.get(each), _named_by(each.pid), read_pod(each.pid)):
            if pod in pods:
                return pod
    return None


def _lineage(key: ProcessKey) -> Iterator[ProcessKey]:
    """A process and its ancestors, the nearest first."""
    pid = key.pid
    for _ in range(GENERATIONS_MAX):
        try:
            stat = read_stat(pid)
        except PermissionError:  # /proc is mounted with hidepid
            return
        if stat is None or (pid == key.pid and stat.start_ticks != key.start_ticks):
            return
        yield ProcessKey(pid, stat.start_ticks)
        if stat.parent <= 1:
            return
        pid = stat.parent


def _named_by(pid: int) -> PodUid | None:
    """The pod that a process's environment names; None where it names none, or is another user's."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    found = [one for one in environment.split(b"\0") if one.startswith(_VARIABLE)]
    return PodUid(found[0].removeprefix(_VARIABLE).decode(errors="replace")) if found else None
