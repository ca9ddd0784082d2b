"""The processes that report to the share scheduler: who they are, whether they live, and the time they say they used.

What always holds: a process is known by the kernel's word alone, and its death is watched from before its first
report is taken in, so that no token is ever given to one that is gone. Its `counts` is read by `pread`, never mapped.
"""

import asyncio
import contextlib
import os
import stat
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hook.broker.core.datagram import ShareReport
from hook.broker.core.facts import ContainerKey, Process, ProcessKey
from hook.broker.core.pages import owner_offset
from hook.broker.core.shares.turns import Use
from hook.broker.processes import read_process
from plimsoll.errors import InputError
from plimsoll.layout import MAX_SLOTS, Slot
from plimsoll.processes import DeathWatch, open_process

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""A tenant may put a link or a pipe in the place of `counts`."""

_OWNER: Final = struct.Struct("<Q")
_BUSY: Final = struct.Struct("<QQ")
assert Slot.busy_since_ns.offset == Slot.busy_ns.offset + 8
_SLOT_BYTES: Final = int(Slot.busy_since_ns.offset) + 8
"""As much of a slot as is looked at."""


@dataclass(eq=False, slots=True)
class Sharer:
    """One process that reports.

    Attributes:
        slot: where it says that it counts; believed only while its owner word stands there.
        counts: its container's `counts`, open; None where there is no file.
        lives: neither is it dead nor its container removed.
        told_ns: the latest of the time that it says it used.
        settled_ns: as much of that as was told of it before it hung up.
        hang_up: ends the connection over which it reports, if there is one.
    """

    container: ContainerKey
    key: ProcessKey
    owner: int
    slot: int
    counts: int | None = None
    lives: bool = True
    told_ns: int = 0
    settled_ns: int = 0
    hang_up: Callable[[], None] = lambda: None

    def check(self, report: ShareReport) -> None:
        """Refuse a report that is another process's; move along with one that changed its slot.

        Raises:
            InputError: naming the owner.
        """
        if report.owner != self.owner:
            problem = f"is not {self.owner}, the word of process {self.key.pid}"
            raise InputError("owner", report.owner, problem, "let each process speak for itself")
        self.slot = report.slot

    def began_before(self, ticks: int) -> bool:
        """Whether it ran already then, in clock ticks since boot."""
        return self.key.start_ticks < ticks

    def use(self) -> Use | None:
        """What its slot says; None if that cannot be read, or is not its slot."""
        if self.counts is None:
            return None
        try:
            words = os.pread(self.counts, _SLOT_BYTES, owner_offset(self.slot))
        except OSError:
            return None
        if len(words) < _SLOT_BYTES or _OWNER.unpack_from(words)[0] != self.owner:
            return None
        return self.told(*_BUSY.unpack_from(words, Slot.busy_ns.offset))

    def told(self, busy_ns: int, busy_since_ns: int) -> Use:
        """What these words come to, since it first reported or came again."""
        if busy_ns < self.settled_ns:  # it became another program, which counts from 0
            self.settled_ns = 0
        self.told_ns = busy_ns
        return Use(busy_ns - self.settled_ns, busy_since_ns)

    def settle(self) -> None:
        """All that it has told is accounted for."""
        self.settled_ns = self.told_ns

    def end(self) -> None:
        """Let go of what is held for it; its connection too, which a child of it may hold for ever."""
        self.lives = False
        self.hang_up()
        if self.counts is not None:
            os.close(self.counts)
            self.counts = None


class Sharers:
    """Every process of the node that reports, each until its death."""

    def __init__(
        self, counts_path: Callable[[ContainerKey], Path], on_death: Callable[[Sharer], None]
    ) -> None:
        """Tell `on_death`, on the loop, once for each that dies before its container is removed."""
        self._counts_path = counts_path
        self._on_death = on_death
        self._sharers: dict[ContainerKey, dict[ProcessKey, Sharer]] = {}
        self._deaths = DeathWatch[Sharer](self._died)

    async def introduce(self, container: ContainerKey, pid: int, report: ShareReport) -> tuple[Sharer, bool]:
        """Who it is, and whether it was unknown; one that is dead by now is given as such, and not kept.

        Raises:
            InputError: it is not who it says, or its container has as many as can count already.
            OSError: descriptors ran out.
        """
        # In no particular thread: behind the one for files, a first launch might wait for a slow disk.
        found = await _in_a_thread(partial(_find, pid, self._counts_path(container)))
        if found is None:
            return Sharer(container, ProcessKey(pid, 0), report.owner, report.slot, lives=False), False
        try:
            return self._take_in(container, found, report)
        finally:
            found.close()

    def _take_in(self, container: ContainerKey, found: "_Found", report: ShareReport) -> tuple[Sharer, bool]:
        sharers = self._sharers.setdefault(container, {})
        known = sharers.get(found.process.key)
        sharer = known or Sharer(container, found.process.key, found.process.owner, report.slot)
        sharer.check(report)
        if known is not None:
            return known, False
        if len(sharers) >= MAX_SLOTS:
            remedy = "run fewer processes in one container"
            raise InputError("processes", len(sharers), "share one container's time already", remedy)
        sharers[sharer.key] = sharer
        sharer.counts, found.counts = found.counts, None
        handle, found.handle = found.handle, None
        self._deaths.watch(sharer, handle)
        return sharer, True

    def uses(
        self, which: Iterable[tuple[ContainerKey, ProcessKey]]
    ) -> dict[tuple[ContainerKey, ProcessKey], Use]:
        """What these say now; who cannot be read is left out."""
        found = ((name, self._sharers.get(name[0], {}).get(name[1])) for name in which)
        uses = ((name, sharer.use()) for name, sharer in found if sharer is not None)
        return {name: use for name, use in uses if use is not None}

    def forget(self, container: ContainerKey) -> None:
        """A container was removed; nothing more is told of its processes."""
        for sharer in self._sharers.pop(container, {}).values():
            sharer.end()

    def close(self) -> None:
        """Know and watch nobody any more."""
        self._deaths.close()
        for container in tuple(self._sharers):
            self.forget(container)

    def _died(self, sharer: Sharer) -> None:
        if not sharer.lives:
            return
        del self._sharers[sharer.container][sharer.key]
        sharer.end()
        self._on_death(sharer)


@dataclass(slots=True)
class _Found:
    """A living process, and what is open of it; `close` closes what was not taken out."""

    process: Process
    handle: int | None
    counts: int | None

    def close(self) -> None:
        for file in (self.handle, self.counts):
            if file is not None:
                os.close(file)


async def _in_a_thread(find: "Callable[[], _Found | None]") -> "_Found | None":
    """Find somebody, and keep nothing open of it if nobody wants to know any more."""
    finding = asyncio.get_running_loop().run_in_executor(None, find)
    try:
        return await asyncio.shield(finding)
    except asyncio.CancelledError:
        finding.add_done_callback(_let_go)
        raise


def _let_go(finding: "asyncio.Future[_Found | None]") -> None:
    if not finding.cancelled() and finding.exception() is None and (found := finding.result()):
        found.close()


def _find(pid: int, counts: Path) -> _Found | None:
    """The process of this pid; None if there is none any more. Blocks, shortly."""
    process = read_process(pid)
    handle = open_process(pid, process.key.start_ticks) if process else None
    if process is None or handle is None:
        return None
    return _Found(process, handle, _opened(counts))


def _opened(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        file = os.open(path, _FLAGS)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
    return None
