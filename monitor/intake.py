"""The broker's announcements between the socket and the disk.

What always holds: an announcement stays here until the round that took it in is stored. A round that could not be
stored takes the same ones in again. Once the disk has refused a round, later ones are small, until the backlog is
stored: one round for all of it might need more room than a small disk has, and could then never be stored.
"""

import asyncio
from typing import Final

from monitor.outbox.transaction import COVERED_BYTES
from plimsoll.broker.announcements import Announcement

QUEUE_MAX: Final = 1024
"""Announcements queued here at once; more wait in the socket, and then in the broker's journal."""

UNKNOWN_BYTES: Final = 64 * 1024
"""The size of an event before the first one of this run: that of a node with some 250 tasks."""


class Intake:
    """The announcements that are not stored yet."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Announcement] = asyncio.Queue(QUEUE_MAX)
        self._unstored: list[Announcement] = []  # taken from the queue
        self._event_bytes = UNKNOWN_BYTES
        self._is_refused = False

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
        return tuple(
            self._unstored[: max(1, COVERED_BYTES // self._event_bytes) if self._is_refused else None]
        )

    def refused(self) -> None:
        """The disk took no round."""
        self._is_refused = True

    def stored(self, count: int, event_bytes: int | None) -> bool:
        """A round with so many announcements is stored.

        Args:
            count: the first ones that `next` gave.
            event_bytes: the size of the round's largest event; None if it had none.

        Returns:
            whether more announcements, which an earlier round could not take in, wait for the next round.
        """
        del self._unstored[:count]
        self._event_bytes = event_bytes or self._event_bytes
        self._is_refused = self._is_refused and bool(self._unstored)
        return bool(self._unstored)
