"""A container that shares compute time: its terms, its gate, and the pages on which its processes record their work.

The pages are read once a tick, by `pread`. What always holds: whatever a tenant does to its `counts`, the broker
reads no other file and does not crash, because it follows no link and never maps the file. A page counts only while
slot and page name the same owner.
"""

import contextlib
import os
import stat
import struct
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hook.broker.core.codec import SLOT_BYTES, owner_offset, owners, work_offset
from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import ShareTerms, Words
from hook.broker.core.shares.meters import WORDS
from hook.broker.shares.gate_files import GateFile
from plimsoll.broker.pages import MAX_SLOTS
from plimsoll.ids import ProcessKey
from plimsoll.part.log import get_logger

_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags for `counts`: a tenant may put a link or a pipe in its place."""

UNKNOWN_S: Final = 1.0
"""Seconds. A process sends its hello as soon as it owns a slot; after this time the hello is lost."""

SURVEY_PAUSE_S: Final = 10.0
"""Seconds between two surveys of a container: each reads every process of the machine."""

_log: Final = get_logger()

_TRIES: Final = 3
"""Readings in a row of a page that a process is writing; the write takes some tens of nanoseconds."""


@dataclass(eq=False, slots=True)
class WorkPage:
    """A process's page.

    Attributes:
        number: the scheduler's number of the process.
        file: the descriptor of the container's `counts`; None where there is no such file.
        offset: the page's offset in the file.
        format: the owner word, and the words for all of the container's GPUs.
        data: the bytes that were last read.
        is_live: the page shows unfinished work or a waiting thread, or was not read yet.
    """

    number: int
    slot: int
    owner: int
    file: int | None
    offset: int
    format: struct.Struct
    data: bytes = b""
    is_live: bool = True

    def read(self) -> Words | None:
        """The words of the process; None if nothing changed, or the page cannot be read."""
        for _ in range(_TRIES):
            data = _read(self.file, self.format.size, self.offset)
            if data == self.data and not self.is_live:
                return None
            if len(data) < self.format.size:
                return None
            words = self.format.unpack(data)
            if words[0] != self.owner:
                return None
            is_live = False
            for place in range(1, len(words), WORDS):
                if words[place] != words[place + 6]:
                    break  # The process is writing the page.
                is_live = is_live or words[place + 1] != 0 or words[place + 8] != 0
            else:
                self.data, self.is_live = data, is_live
                return words[1:]
        return None


class WorkPages:
    """All pages of a container. `close` it when the container leaves."""

    def __init__(self, gpu_count: int, new_number: Callable[[], int]) -> None:
        """Begin with no process.

        Args:
            gpu_count: the number of GPUs with words on each page.
            new_number: gives the number of a new process.
        """
        self._new_number = new_number
        self._format = struct.Struct(f"<{1 + WORDS * gpu_count}Q")
        self._file: int | None = None
        self._pages: dict[tuple[int, int], WorkPage] = {}
        self._dead: set[int] = set()
        self.changes = 0
        """How often a process came or went."""

    @property
    def all(self) -> Collection[WorkPage]:
        """The pages of the processes that own slots."""
        return self._pages.values()

    def rescan(self) -> tuple[list[WorkPage], list[WorkPage]]:
        """Read the owners of all slots; returns the pages that came, and those that went.

        All slots are read: `slots_touched` is for the library, and a tenant may write anything there.
        """
        data = _read(self._file, SLOT_BYTES * MAX_SLOTS, owner_offset(0))
        owned = {(slot, owner) for slot, owner in enumerate(owners(data)) if owner}
        self._dead.intersection_update([owner for _, owner in owned])
        owned = {(slot, owner) for slot, owner in owned if owner not in self._dead}
        went = [self._pages.pop(name) for name in sorted(self._pages.keys() - owned)]
        came = [self._page(*name) for name in sorted(owned - self._pages.keys())]
        self._pages.update({(page.slot, page.owner): page for page in came})
        self.changes += len(went) + len(came)
        return came, went

    def look(self, slot: int) -> WorkPage | None:
        """Read the owner of one slot; returns its page if the owner is new. A page of an earlier owner stays."""
        for owner in owners(_read(self._file, SLOT_BYTES, owner_offset(slot))):
            if owner and owner not in self._dead and (slot, owner) not in self._pages:
                page = self._pages[slot, owner] = self._page(slot, owner)
                self.changes += 1
                return page
        return None

    def slots(self) -> bytes:
        """The slots in which processes count their memory, up to the last one in use; fewer bytes of a short file."""
        count = 1 + max((page.slot for page in self._pages.values()), default=-1)
        return _read(self._file, SLOT_BYTES * count, owner_offset(0))

    def drop(self, owner: int) -> list[WorkPage]:
        """Drop and return the pages of a dead process. No page is read again, though slots are cleared later."""
        self._dead.add(owner)
        dropped = [page for page in self._pages.values() if page.owner == owner]
        for page in dropped:
            del self._pages[page.slot, page.owner]
        self.changes += len(dropped)
        return dropped

    def take(self, file: int | None) -> None:
        """Read from this descriptor of `open_counts` from now on, and own it."""
        self.close()
        self._file = file
        for page in self._pages.values():
            page.file = file

    def close(self) -> None:
        """Close the descriptor."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _page(self, slot: int, owner: int) -> WorkPage:
        return WorkPage(self._new_number(), slot, owner, self._file, work_offset(slot), self._format)


def open_counts(path: Path) -> int | None:
    """Open a container's `counts`; None where there is no regular file. Blocks."""
    with contextlib.suppress(OSError):
        file = os.open(path, _FLAGS)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
        os.close(file)
    return None


def _read(file: int | None, size_bytes: int, offset: int) -> bytes:
    try:
        return os.pread(file, size_bytes, offset) if file is not None else b""
    except OSError:
        return b""  # The tenant caused this.


@dataclass(eq=False, slots=True)
class TenantFiles:
    """A container with its gate and pages.

    If a slot's owner stays unknown for a while, the container is surveyed. Surveys are rare, because a tenant may
    write any number of unknown owners.

    Attributes:
        is_scanned: its slots were read before, so a process that now appears is new.
        unknown_s: since when each unknown owner is in its slots.
        surveyed_s: when the container was last surveyed for unknown owners.
        unheld: its processes that were announced as having run without their share enforced.
    """

    key: ContainerKey
    terms: ShareTerms
    gate: GateFile
    pages: WorkPages
    is_scanned: bool = False
    unknown_s: dict[int, float] = field(default_factory=dict)
    surveyed_s: float = -SURVEY_PAUSE_S
    unheld: set[ProcessKey] = field(default_factory=set)

    def adopt(self, gate: GateFile) -> None:
        """Take the gate of a new layout; close it if the file is the same."""
        if self.gate.identity == gate.identity:
            gate.close()
            return
        _log.warning(
            "gate_was_replaced",
            pod=self.key.pod,
            container=self.key.container,
            value=gate.identity,
            was=self.gate.identity,
            effect="its programs run unheld",
            remedy="restart them; leave the gate file to the broker",
        )
        gate.take_over(self.gate)
        self.gate = gate

    def needs_survey(self, known: Mapping[ProcessKey, int]) -> bool:
        """Whether a survey for unknown owners is due; `known` holds the announced processes."""
        now_s, unknown = time.monotonic(), {page.owner for page in self.pages.all}.difference(known.values())
        self.unknown_s = {owner: self.unknown_s.get(owner, now_s) for owner in unknown}
        is_due = now_s - min(self.unknown_s.values(), default=now_s) > UNKNOWN_S
        if not is_due or now_s - self.surveyed_s < SURVEY_PAUSE_S:
            return False
        self.surveyed_s = now_s
        return True

    def newly_unheld(self, known: Mapping[ProcessKey, int], started_ticks: int) -> list[ProcessKey]:
        """Processes that started before `started_ticks` (clock ticks since boot) and ran without a gate until now."""
        if not self.gate.was_unheld:
            return []
        owners = {page.owner for page in self.pages.all}
        found = [key for key, owner in known.items() if owner in owners and key.start_ticks < started_ticks]
        new = [key for key in sorted(found) if key not in self.unheld]
        self.unheld.update(new)
        return new
