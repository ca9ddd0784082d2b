"""The outbox's file as the event loop uses it: every access runs on one thread, and no method blocks the loop."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from monitor.core.entries import Entry
from monitor.core.tasks import Tasks
from monitor.foreign import StreamPosition
from monitor.outbox import database
from monitor.outbox.database import Checkpoint, KeptState, OutboxFile, StoredEntry
from plimsoll.bus.stream import MAX_AGE_S
from plimsoll.part.causes import disk_remedy
from plimsoll.part.errors import PlimsollError

T = TypeVar("T")

CLOSE_S: Final = 30.0


class StoreError(PlimsollError):
    """The disk refused, and nothing was changed. Try again later."""


class Store:
    """The open file, made by `open_store`. `close` it when done."""

    def __init__(self, outbox: OutboxFile, thread: ThreadPoolExecutor) -> None:
        self._file = outbox
        self._thread = thread
        self.waiting_count, self.waiting_bytes, self.dropped_count = 0, 0, 0
        """How many events wait, their bytes, and how many were dropped as too old, as of the last change."""
        self.failures_count = 0
        """How often the file could not be read or written."""
        self._take_counts()
        self.state_waits = False
        """The last report that this run stored is a state event that waits: nobody has begun to send it.

        The one thread works in the order in which it is asked. So this is set when it is asked, and is true for the
        next `keep` if nothing is awaited in between.
        """

    async def kept(self) -> KeptState:
        """The state of the last `keep`, of this run or an earlier one."""
        return await self._run(lambda: database.kept(self._file))

    async def keep(
        self,
        entries: Iterable[Entry],
        tasks: Tasks,
        rest: Checkpoint,
        *,
        replaces_state: bool = False,
    ) -> None:
        """Store events together with the table and the journal position that they follow from.

        Cancelling does not undo the transaction.

        Args:
            entries: the events, in order.
            tasks: the table.
            rest: everything else that a restart must know.
            replaces_state: the events replace the state event that waits; only if `state_waits`.

        Raises:
            StoreError: nothing was stored.
        """
        stored = tuple(entries)
        assert self.state_waits or not replaces_state
        if reports := [entry for entry in stored if entry.carries_state]:
            self.state_waits = reports[-1].is_state
        try:
            await self._run(
                lambda: database.keep(self._file, stored, tasks, rest, replaces_state=replaces_state)
            )
        except StoreError:
            self.state_waits = False
            raise
        self._take_counts()

    async def drop_old(self) -> None:
        """Drop the events that have waited too long; `keep` does so by itself.

        Raises:
            StoreError: nothing was dropped.
        """
        await self._run(lambda: database.drop_old(self._file))
        self._take_counts()

    async def oldest(self, limit: int) -> tuple[StoredEntry, ...]:
        """The oldest waiting events, in the order in which they happened, to be sent now.

        No state event that waits now is replaced any more: it may soon be in the stream, which knows it by its id.
        """
        self.state_waits = False
        return await self._run(lambda: database.take_oldest(self._file.database, limit))

    async def position(self) -> StreamPosition:
        """The place in the stream that was last given to `remove`."""
        return await self._run(lambda: database.position(self._file))

    async def remove(self, numbers: Iterable[int], position: StreamPosition | None = None) -> None:
        """Remove events that are in the stream; an unknown number is fine (its event was replaced meanwhile).

        Args:
            numbers: the numbers of the events.
            position: up to here in the stream this node's reports are known; None where that is not so.

        Raises:
            StoreError: the events still wait. Publishing them again is harmless.
        """
        await self._run(lambda: database.remove(self._file, tuple(numbers), position))
        self._take_counts()

    async def close(self) -> None:
        """Close the file and end the thread."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._run(self._file.database.close)
        finally:
            self._thread.shutdown(wait=False)

    def _take_counts(self) -> None:
        outbox = self._file
        self.waiting_count, self.waiting_bytes = outbox.waiting_count, outbox.waiting_bytes
        self.dropped_count = outbox.dropped_count

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.Error as error:
            self.failures_count += 1
            remedy = disk_remedy(error, "look at its disk")
            raise StoreError(
                f"the outbox in PLIMSOLL_STATE_DIR could not be read or written ({error}); {remedy}"
            ) from error


async def open_store(directory: Path, age_s: float = MAX_AGE_S) -> Store:
    """Open the file in `directory`, creating both. A damaged file is renamed, and the log names it.

    Args:
        directory: this monitor's own.
        age_s: an event that has waited longer for NATS is dropped.

    Raises:
        InputError: the directory cannot be used, or another monitor uses it.
    """
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")
    try:
        outbox = await asyncio.get_running_loop().run_in_executor(
            thread, database.open_outbox, directory, age_s
        )
        return Store(outbox, thread)
    except BaseException:
        thread.shutdown(wait=False)
        raise
