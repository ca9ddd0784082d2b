"""The broker's announcements between the socket and the disk.

What always holds: an announcement stays here until the round that took it in is stored. A round that could not be
stored takes the same ones in again.
"""

import asyncio
from typing import Final

from plimsoll.broker.announcements import Announcement

QUEUE_MAX: Final = 1024
"""Announcements queued here at once; more wait in the socket, and then in the broker's journal."""


class AnnouncementQueue:
    """The announcements that are not stored yet."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Announcement] = asyncio.Queue(QUEUE_MAX)
        self._unstored: list[Announcement] = []  # taken from the queue

    @property
    def is_full(self) -> bool:
        """Whether the queue of announcements is full."""
        return self._queue.full()

    async def put(self, announcement: Announcement) -> None:
        """Queue an announcement; waits while the queue is full."""
        await self._queue.put(announcement)

    def next(self) -> tuple[Announcement, ...]:
        """The announcements for the next round, in order; the same ones again until they are stored."""
        while not self._queue.empty() and len(self._unstored) < QUEUE_MAX:
            self._unstored.append(self._queue.get_nowait())
        return tuple(self._unstored)

    def stored(self, count: int) -> None:
        """A round is stored that took in the first `count` announcements that `next` gave."""
        del self._unstored[:count]
