"""The one place where announcements are made: numbered, timed, into the journal, and out as instructions.

What always holds: every announcement has a number of its own; one that the journal has no room for is reported, and
never lost silently.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hook.broker.core.ids import ContainerKey, ProcessKey
from hook.broker.core.journal import Journal
from hook.broker.core.turns import Append, Instruction, Report, Rewrite
from plimsoll.broker.wire import Announcement
from plimsoll.ids import GpuUuid
from plimsoll.part.times import rfc3339

NOBODY: Final = ProcessKey(0, 0)
"""Stands for the process of an announcement that is about a container as a whole."""


@dataclass(frozen=True, slots=True)
class Told:
    """What an announcement says beyond who, what and when; see `brokerwire.Announcement`."""

    gpu: GpuUuid | None = None
    requested_bytes: int = 0
    used_bytes: int = 0
    line_bytes: int = 0
    text: str = ""
    waited_s: float = 0.0
    share_pct: int = 0
    limit_pct: int = 0
    used_pct: float = 0.0


NOTHING: Final = Told()


class Announcer:
    """Fills the journal.

    Args:
        journal: where announcements are numbered and kept.
        rewrite: the whole journal file anew, for when lines of it were given up.
    """

    def __init__(self, journal: Journal, rewrite: Callable[[], Rewrite]) -> None:
        self._journal = journal
        self._rewrite = rewrite
        self._shed_count = 0

    def announce(
        self, container: ContainerKey, process: ProcessKey, what: str, now_s: float, told: Told = NOTHING
    ) -> list[Instruction]:
        """Announce `what` (see `brokerwire.Announcement`) of a process, or of `NOBODY`."""
        announcement = Announcement(
            seq=self._journal.next_seq,
            what=what,
            pod=container.pod,
            container=container.container,
            pid=process.pid,
            start_ticks=process.start_ticks,
            time=rfc3339(datetime.fromtimestamp(now_s, UTC)),
            gpu=told.gpu,
            requested_bytes=told.requested_bytes,
            used_bytes=told.used_bytes,
            line_bytes=told.line_bytes,
            text=told.text,
            waited_s=told.waited_s,
            share_pct=told.share_pct,
            limit_pct=told.limit_pct,
            used_pct=told.used_pct,
        )
        shed = self._journal.append(announcement)
        return [*self._shed(shed), self._rewrite()] if shed else [Append(announcement)]

    def announce_if_room(
        self, container: ContainerKey, process: ProcessKey, what: str, now_s: float, told: Told = NOTHING
    ) -> list[Instruction]:
        """The same for what may come without end: only while half of the journal is free."""
        if self._journal.admits(what):
            return self.announce(container, process, what, now_s, told)
        return self._shed(1)

    def _shed(self, count: int) -> list[Instruction]:
        """Say so at once, and then each time the number of lost announcements has doubled."""
        before, self._shed_count = self._shed_count, self._shed_count + count
        if self._shed_count.bit_length() == before.bit_length():
            return []
        remedy = "let a subscriber acknowledge"
        return [Report("journal_is_full", {"lost_so_far": self._shed_count, "remedy": remedy})]
