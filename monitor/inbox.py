"""The news for the next round of the monitor: announcements, counted peaks, deaths, XID errors.

What always holds: news stays here until the round that took it in is stored. A round that could not be stored takes
the same news in again.
"""

import asyncio
from typing import Final

from monitor.core.lifecycle import TaskKey
from monitor.core.observation import Findings, Observation
from plimsoll.broker.announcements import Announcement
from plimsoll.broker.wire import MemoryChange
from plimsoll.ids import ProcessKey
from plimsoll.nvml.readings import XidSeen

QUEUE_MAX: Final = 1024
"""Announcements queued here at once; more wait in the socket, and then in the broker's journal."""

XIDS_MAX: Final = 1024
"""XID errors that wait for a round."""


class Inbox:
    """News that came since the last round that was stored.

    Attributes:
        deaths: the processes that died.
        peaks: the largest use of each task as hooked programs counted it.
        has_changes: counts changed since the last sample began.
        xids: the XID errors.
    """

    def __init__(self) -> None:
        self.deaths: set[ProcessKey] = set()
        self.peaks: dict[TaskKey, int] = {}
        self.has_changes = False
        self.xids: list[XidSeen] = []
        self._queue: asyncio.Queue[Announcement] = asyncio.Queue(QUEUE_MAX)
        self._unstored: list[Announcement] = []  # taken from the queue

    @property
    def is_full(self) -> bool:
        """Whether the queue of announcements is full."""
        return self._queue.full()

    async def put(self, announcement: Announcement) -> None:
        """Queue an announcement; waits while the queue is full."""
        await self._queue.put(announcement)

    def add_change(self, change: MemoryChange) -> TaskKey:
        """Add a change of counts; returns the task."""
        key = TaskKey(change.process, change.gpu)
        self.peaks[key] = max(change.peak_bytes, self.peaks.get(key, 0))
        self.has_changes = True
        return key

    def add_xid(self, seen: XidSeen) -> None:
        """Add an XID error. A storm of one error says no more than the first."""
        if len(self.xids) < XIDS_MAX:
            self.xids.append(seen)

    def announcements(self) -> tuple[Announcement, ...]:
        """The announcements for the next round, in order; the same ones again until they are stored."""
        while not self._queue.empty() and len(self._unstored) < QUEUE_MAX:
            self._unstored.append(self._queue.get_nowait())
        return tuple(self._unstored)

    def stored(self, observation: Observation, findings: Findings, xids: int) -> None:
        """A round is stored: remove what it took in, and so many XID errors."""
        del self._unstored[: findings.taken]
        del self.xids[:xids]
        self.deaths.difference_update(findings.ended)
        # A change may come before the announcement of its task.
        tasks = findings.tasks
        self.peaks = {
            key: peak
            for key, peak in self.peaks.items()
            if peak != observation.peaks.get(key)
            or (key not in tasks.lives and key.process not in tasks.dead)
        }
