"""Makes all announcements: numbers and dates them, puts them into the journal, and gives them out as instructions.

What always holds: every announcement has its own number. If the journal has no room for an announcement, the log says
so; none is lost silently.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hook.broker.core.ids import ContainerKey, ProcessKey
from hook.broker.core.instructions import Append, Instruction, Report, Rewrite
from hook.broker.core.journal import Journal
from plimsoll.broker.wire import Announcement
from plimsoll.ids import GpuUuid
from plimsoll.part.times import rfc3339

NOBODY: Final = ProcessKey(0, 0)
"""The process of an announcement that concerns a container as a whole."""


@dataclass(frozen=True, slots=True)
class Details:
    """The fields of an announcement beside its process, sort and time; see `plimsoll.broker.wire.Announcement`."""

    gpu: GpuUuid | None = None
    requested_bytes: int = 0
    used_bytes: int = 0
    line_bytes: int = 0
    text: str = ""
    waited_s: float = 0.0
    share_pct: int = 0
    limit_pct: int = 0
    used_pct: float = 0.0


NOTHING: Final = Details()


class Announcer:
    """Fills the journal.

    Args:
        journal: numbers and keeps the announcements.
        rewrite: gives the instruction for a new journal file, after the journal gave up lines.
    """

    def __init__(self, journal: Journal, rewrite: Callable[[], Rewrite]) -> None:
        self._journal = journal
        self._rewrite = rewrite
        self._shed_count = 0

    def announce(
        self,
        container: ContainerKey,
        process: ProcessKey,
        what: str,
        now_s: float,
        details: Details = NOTHING,
    ) -> list[Instruction]:
        """Announce `what` (see `plimsoll.broker.wire.Announcement`) of a process, or of `NOBODY`."""
        announcement = Announcement(
            seq=self._journal.next_seq,
            what=what,
            pod=container.pod,
            container=container.container,
            pid=process.pid,
            start_ticks=process.start_ticks,
            time=rfc3339(datetime.fromtimestamp(now_s, UTC)),
            gpu=details.gpu,
            requested_bytes=details.requested_bytes,
            used_bytes=details.used_bytes,
            line_bytes=details.line_bytes,
            text=details.text,
            waited_s=details.waited_s,
            share_pct=details.share_pct,
            limit_pct=details.limit_pct,
            used_pct=details.used_pct,
        )
        shed = self._journal.append(announcement)
        return [*self._shed(shed), self._rewrite()] if shed else [Append(announcement)]

    def announce_if_room(
        self,
        container: ContainerKey,
        process: ProcessKey,
        what: str,
        now_s: float,
        details: Details = NOTHING,
    ) -> list[Instruction]:
        """Announce something that may come without end: only while half of the journal is free."""
        if self._journal.admits(what):
            return self.announce(container, process, what, now_s, details)
        return self._shed(1)

    def _shed(self, count: int) -> list[Instruction]:
        """Log the loss of announcements at once, and then each time their number has doubled."""
        before, self._shed_count = self._shed_count, self._shed_count + count
        if self._shed_count.bit_length() == before.bit_length():
            return []
        remedy = "let a subscriber acknowledge"
        return [Report("journal_is_full", {"lost_so_far": self._shed_count, "remedy": remedy})]
