"""Makes all announcements: numbers and dates them, puts them into the journal, and gives them out as instructions.

What always holds: every announcement has its own number. If the journal has no room for an announcement, the log says
so; none is lost silently.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, TypedDict

import msgspec

from hook.broker.core.events import Append, Instruction, LogWarning, Rewrite
from hook.broker.core.ids import ContainerKey
from hook.broker.core.journal import Journal
from plimsoll.broker.announcements import Announcement
from plimsoll.ids import ContainerName, PodUid, ProcessKey
from plimsoll.part.times import rfc3339

NO_PROCESS: Final = ProcessKey(0, 0)
"""The process of an announcement that concerns a container as a whole."""


class Common(TypedDict):
    """The fields of every announcement, while it has neither number nor time."""

    seq: int
    pod: PodUid
    container: ContainerName
    pid: int
    start_ticks: int
    time: str


def about(container: ContainerKey, process: ProcessKey = NO_PROCESS) -> Common:
    """The common fields of an announcement about a process, or about a container as a whole."""
    return Common(
        seq=0,
        pod=container.pod,
        container=container.container,
        pid=process.pid,
        start_ticks=process.start_ticks,
        time="",
    )


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

    def announce(self, announcement: Announcement, now_s: float) -> list[Instruction]:
        """Number and date an announcement made with `about`, and put it into the journal if there is room."""
        if not self._journal.admits(announcement):
            return self._shed(1)
        time = rfc3339(datetime.fromtimestamp(now_s, UTC))
        announcement = msgspec.structs.replace(announcement, seq=self._journal.next_seq, time=time)
        shed = self._journal.append(announcement)
        return [*self._shed(shed), self._rewrite()] if shed else [Append(announcement)]

    def _shed(self, count: int) -> list[Instruction]:
        """Log the loss of announcements at once, and then each time their number has doubled."""
        before, self._shed_count = self._shed_count, self._shed_count + count
        if self._shed_count.bit_length() == before.bit_length():
            return []
        remedy = "let a subscriber acknowledge"
        return [LogWarning("journal_is_full", {"lost_so_far": self._shed_count, "remedy": remedy})]
