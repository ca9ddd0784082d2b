"""Processes of this machine: who they are, and word of their death.

Death is told by `pidfd`, 58 µs after it, and by no polling. What always holds: a death is told once, by calling
`on_death` on the loop's thread, for every process that is watched, also for one that died before the watch began.
"""

import asyncio
from collections.abc import Callable

from monitor.core.lifecycle import NOBODY, Owner
from plimsoll.ids import ProcessKey
from plimsoll.kube.cgroup import read_pod
from plimsoll.part.processes import DeathWatch, open_process, read_stat


class Identities:
    """Who a pid is. Blocking reads of /proc, for the driver's thread; not for the loop's.

    Whose pod a process is in is read once: a process does not move between pods.
    """

    def __init__(self) -> None:
        self._owners: dict[ProcessKey, Owner] = {}

    def of(self, pids: set[int]) -> dict[int, tuple[ProcessKey, Owner]]:
        """The living ones among `pids`; what was known of others is forgotten."""
        owners: dict[ProcessKey, Owner] = {}
        found: dict[int, tuple[ProcessKey, Owner]] = {}
        for pid in pids:
            if (process := read_process(pid)) is not None:
                owner = self._owners.get(process) or _owner(pid)
                owners[process] = owner
                found[pid] = (process, owner)
        self._owners = owners
        return found


def read_process(pid: int) -> ProcessKey | None:
    """The process that has `pid` now; None if none lives (a zombie holds no GPU). Blocks, briefly.

    Raises:
        OSError: that cannot be told, as descriptors ran out, for example.
    """
    try:
        stat = read_stat(pid)
    except PermissionError:  # /proc is mounted so that others' processes are hidden
        return None
    return None if stat is None or stat.has_ended else ProcessKey(pid, stat.start_ticks)


def _owner(pid: int) -> Owner:
    pod = read_pod(pid)
    return Owner(pod=pod) if pod else NOBODY


class Deaths:
    """Watches processes for their end. For one event loop; `close` it there."""

    def __init__(self, on_death: Callable[[ProcessKey], None]) -> None:
        self._watch = DeathWatch(on_death)

    async def watch(self, process: ProcessKey) -> None:
        """Tell `on_death` when the process ends; at once if it has ended. A second watch changes nothing."""
        if process not in self._watch:
            handle = await asyncio.to_thread(open_process, process.pid, process.start_ticks)
            self._watch.watch(process, handle)

    def close(self) -> None:
        """Watch no longer; nothing more is told."""
        self._watch.close()
