"""The announcements that no subscriber has acknowledged, and their numbers.

The journal is the fold of its file's lines: a `Snapshot`, then each `Announcement` and `Acknowledge` as it happened.
The broker must remember two things over its own death: the next number, and the announced processes that it has not
seen die. Both follow from these lines, so there is no second file that could contradict them.

What always holds:

* Numbers count up, and no number is given twice. An announcement is in the file before any subscriber sees it.
* The journal is bounded. Past half its capacity it refuses `denied`, `unknown`, `paused`, `resumed` and `unmet`,
  because there may be any number of them. When it is full, it drops whole lives (from `hello` to `exited`, oldest
  first). A subscriber then misses processes that are long gone, but keeps none that seems to live for ever.
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import Struct

from plimsoll.broker.announcements import (
    Announcement,
    Context,
    Denied,
    Exited,
    Hello,
    Other,
    Paused,
    Resumed,
    Unknown,
    Unmet,
    decode,
)
from plimsoll.broker.wire import Acknowledge
from plimsoll.ids import ContainerName, GpuUuid, PodUid

TRIM_LINES: Final = 512
"""Dead lines that the file may hold before it is rewritten, so that an acknowledgement costs one line."""

_BY_SEQ: Final = attrgetter("seq")
_Life = tuple[str, str, int, int]


class Announced(Struct, frozen=True, kw_only=True):
    """A process whose `hello` was announced, and whose `exited` was not."""

    pod: PodUid
    container: ContainerName
    pid: int
    start_ticks: int
    contexts: tuple[GpuUuid, ...] = ()


class Snapshot(Struct, frozen=True, kw_only=True, tag="snapshot"):
    """The first line of a journal file: the fold of all earlier lines, which are gone.

    Attributes:
        boot_id: the machine's boot; processes that were announced under another boot are all dead.
        next_seq: the number of the next announcement.
        acknowledged: the highest number acknowledged.
    """

    boot_id: str
    next_seq: int = 1
    acknowledged: int = 0
    processes: tuple[Announced, ...] = ()


JournalLine = Snapshot | Announcement | Acknowledge

_LINES: Final = msgspec.json.Decoder(Snapshot | Acknowledge | Other)


def decode_line(raw: bytes) -> JournalLine:
    """Decode a line of a journal file.

    Raises:
        msgspec.MsgspecError, UnicodeDecodeError: the line is damaged.
    """
    return decode(raw, _LINES)


class Journal:
    """Unacknowledged announcements in order.

    Attributes:
        boot_id: the machine's boot under which the folded lines were written.
        next_seq: the number of the next announcement.
        processes: processes announced and not exited by the folded lines; later announcements do not change it.
    """

    def __init__(self, lines: Iterable[JournalLine], capacity: int) -> None:
        self.boot_id = ""
        self.next_seq = 1
        self.acknowledged = 0
        self.processes: dict[_Life, Announced] = {}
        self._capacity = capacity
        self._pending: list[Announcement] = []
        self._file_lines = 0
        for line in lines:
            self._fold(line)

    def __len__(self) -> int:
        """How many announcements are not acknowledged yet."""
        return len(self._pending)

    def after(self, seq: int) -> list[Announcement]:
        """The announcements past `seq`, in order."""
        return self._pending[bisect_right(self._pending, seq, key=_BY_SEQ) :]

    def admits(self, announcement: Announcement) -> bool:
        """Whether there is room for one more announcement of this sort."""
        may_come_without_end = isinstance(announcement, Denied | Unknown | Paused | Resumed | Unmet)
        return not may_come_without_end or len(self._pending) < self._capacity // 2

    def append(self, announcement: Announcement) -> int:
        """Take in an announcement numbered `next_seq`.

        Returns:
            How many old announcements were dropped for it. If any were, the file must be rewritten, not appended to.
        """
        assert announcement.seq == self.next_seq
        shed = self._shed() if len(self._pending) >= self._capacity else 0
        self._pending.append(announcement)
        self.next_seq += 1
        self._file_lines += 1
        return shed

    def acknowledge(self, seq: int) -> bool:
        """Forget everything up to `seq`; True if the file now holds enough dead lines to be rewritten."""
        self.acknowledged = max(self.acknowledged, seq)
        del self._pending[: bisect_right(self._pending, seq, key=_BY_SEQ)]
        self._file_lines += 1
        return self._file_lines - len(self._pending) > max(TRIM_LINES, len(self._pending))

    def rewritten(self, boot_id: str, processes: tuple[Announced, ...]) -> tuple[JournalLine, ...]:
        """The shortest file that folds into this journal."""
        self._file_lines = 1 + len(self._pending)
        head = Snapshot(
            boot_id=boot_id, next_seq=self.next_seq, acknowledged=self.acknowledged, processes=processes
        )
        return (head, *self._pending)

    def _fold(self, line: JournalLine) -> None:
        self._file_lines += 1
        match line:
            case Snapshot():
                self.boot_id, self.acknowledged = line.boot_id, line.acknowledged
                self.next_seq = max(self.next_seq, line.next_seq)
                self.processes = {(p.pod, p.container, p.pid, p.start_ticks): p for p in line.processes}
            case Acknowledge():
                self.acknowledge(line.seq)
            case Announcement():
                self._fold_announcement(line)

    def _fold_announcement(self, line: Announcement) -> None:
        if self._pending and line.seq <= self._pending[-1].seq:
            return  # A damaged file holds lines twice or out of order: keep the first.
        self.next_seq = max(self.next_seq, line.seq + 1)
        self._pending.append(line)
        life = _life(line)
        match line:
            case Hello():
                new = Announced(
                    pod=line.pod, container=line.container, pid=line.pid, start_ticks=line.start_ticks
                )
                self.processes.setdefault(life, new)
            case Exited():
                self.processes.pop(life, None)
            case Context() if life in self.processes and line.gpu not in self.processes[life].contexts:
                old = self.processes[life]
                self.processes[life] = msgspec.structs.replace(old, contexts=(*old.contexts, line.gpu))

    def _shed(self) -> int:
        """Make room for an eighth of the capacity: drop complete lives first, then the oldest announcements."""
        surplus = len(self._pending) - (self._capacity - max(1, self._capacity // 8))
        doomed = self._oldest_complete_lives(surplus)
        kept = [entry for entry in self._pending if _life(entry) not in doomed]
        kept = kept[max(0, len(kept) - self._capacity + 1) :]
        shed = len(self._pending) - len(kept)
        self._pending = kept
        return shed

    def _oldest_complete_lives(self, surplus: int) -> set[_Life]:
        begun = {_life(entry) for entry in self._pending if isinstance(entry, Hello)}
        sizes: dict[_Life, int] = {}
        for entry in self._pending:
            sizes[_life(entry)] = sizes.get(_life(entry), 0) + 1
        doomed: set[_Life] = set()
        for entry in self._pending:
            if surplus <= 0:
                break
            if isinstance(entry, Exited) and _life(entry) in begun:
                doomed.add(_life(entry))
                surplus -= sizes[_life(entry)]
        return doomed


def _life(entry: Announcement) -> _Life:
    return (entry.pod, entry.container, entry.pid, entry.start_ticks)
