"""Processes of this machine: their identity, their pod, and their death.

A `pidfd` reports a death, 58 µs after it; nothing is polled. What always holds: `on_death` is called once for every
watched process, on the loop's thread, also for a process that died before the watch began.
"""

from collections.abc import Callable, Iterable, Mapping

from monitor.core.lifecycle import NO_OWNER, Owner
from plimsoll.ids import ProcessKey
from plimsoll.kube.cgroup import read_pod
from plimsoll.part.processes import DeathWatch, open_process, read_stat


class Identities:
    """Identifies pids by blocking reads of /proc: call it on the driver's thread, not on the loop's.

    The pod of a process is read once, as a process does not move between pods.
    """

    def __init__(self) -> None:
        self._owners: dict[ProcessKey, Owner] = {}

    def of(self, pids: set[int], watched: Mapping[int, ProcessKey]) -> dict[int, tuple[ProcessKey, Owner]]:
        """The living processes among `pids`; every other process is forgotten.

        Args:
            pids: any pids of this machine.
            watched: processes whose deaths are watched, by pid. They need no reading of /proc.
        """
        owners: dict[ProcessKey, Owner] = {}
        found: dict[int, tuple[ProcessKey, Owner]] = {}
        for pid in pids:
            if (process := watched.get(pid) or read_process(pid)) is not None:
                owner = self._owners.get(process) or _owner(pid)
                owners[process] = owner
                found[pid] = (process, owner)
        self._owners = owners
        return found


def read_process(pid: int) -> ProcessKey | None:
    """The process that has `pid` now; None if none lives (a zombie holds no GPU). Blocks, briefly.

    Raises:
        OSError: /proc could not be read, for example because file descriptors ran out.
    """
    try:
        stat = read_stat(pid)
    except PermissionError:  # /proc is mounted with hidepid
        return None
    return None if stat is None or stat.has_ended else ProcessKey(pid, stat.start_ticks)


def _owner(pid: int) -> Owner:
    pod = read_pod(pid)
    return Owner(pod=pod) if pod else NO_OWNER


class Deaths:
    """Watches processes for their death. For one event loop; `close` it there."""

    def __init__(self, on_death: Callable[[ProcessKey], None]) -> None:
        self._watch = DeathWatch(self._ended)
        self._on_death = on_death
        self._watched: dict[int, ProcessKey] = {}

    @property
    def watched(self) -> dict[int, ProcessKey]:
        """The watched processes by pid, as of now."""
        return dict(self._watched)

    def watch(self, processes: Iterable[ProcessKey]) -> None:
        """Call `on_death` when one of them ends; at once if it has ended. A second watch changes nothing.

        It opens handles on the loop's thread, as a change of threads costs more than the kernel's answer from memory.
        """
        for process in processes:
            if process not in self._watch:
                self._watched[process.pid] = process
                self._watch.watch(process, open_process(process.pid, process.start_ticks))

    def close(self) -> None:
        """Stop watching; `on_death` is not called any more."""
        self._watch.close()

    def _ended(self, process: ProcessKey) -> None:
        if self._watched.get(process.pid) == process:
            del self._watched[process.pid]
        self._on_death(process)
