"""Keeps what was learned in Redis, so that it outlives the placer that learned it.

Every placer learns from the reports by itself; the one that leads stores it. What always holds: nothing waits for
Redis but the store. A placer that takes over reads what others stored before its first decision, for `RESTORE_S` at
most. While Redis is away it goes on with what it saw itself, and reads the rest later. Nothing is written before
everything was read, so that no record is overwritten by one with fewer samples.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

from placer.core.learned import Learned
from placer.stores.learned import LearnedAwayError, LearnedStore
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger

RESTORE_S: Final = 2.0
"""The most seconds that the first decision waits for Redis. Reading ten thousand owners takes some tenths of one."""

WRITE_S: Final = 5.0
"""Seconds between two writes: a burst of tasks of one owner causes one. A placer that dies loses what it learned in
this time at most. Pods that still run are reported again."""

log = get_logger()


class LearnedWriter:
    """Keeps the store equal to the records while `run` runs.

    Attributes:
        restored: set once all that was stored has been read.
    """

    def __init__(
        self,
        store: LearnedStore,
        learned: Learned,
        wall_s: Callable[[], float],
        leads: asyncio.Event | None = None,
        write_s: float = WRITE_S,
    ) -> None:
        """Keep the records of `learned` in `store`.

        Args:
            store: the hash in Redis.
            learned: the records.
            wall_s: the wall clock, in seconds since 1970.
            leads: set once this placer is the one that places; None: it leads from the start.
            write_s: the interval of writes in seconds.
        """
        self._store = store
        self._learned = learned
        self._wall_s = wall_s
        self._leads = leads
        self._write_s = write_s
        self._outage = Outage(log.warning)
        self.restored = asyncio.Event()

    async def restore(self) -> None:
        """Read what was stored, for `RESTORE_S` at most; what cannot be read now is read while `run` runs."""
        try:
            async with asyncio.timeout(RESTORE_S):
                await self._restore()
        except (LearnedAwayError, TimeoutError) as error:
            reason = str(error) or f"no answer within {RESTORE_S:g} s"
            self._outage.failed("what was learned of owners waits for Redis", reason)

    async def run(self) -> NoReturn:
        """Keep the store equal to the records; returns only by cancellation."""
        if self._leads is not None:
            await self._leads.wait()
        pauses = Pauses()
        while True:
            heed_cancellation()
            try:
                await self._keep()
            except LearnedAwayError as error:
                self._outage.failed("what was learned of owners waits for Redis", str(error))
                await asyncio.sleep(pauses.next_s())  # Redis is away
            else:
                self._outage.ended()
                pauses.reset()
                await asyncio.sleep(self._write_s)

    async def _restore(self) -> None:
        now_s = self._wall_s()
        stored = await self._store.read(now_s)
        self._learned.restore(stored, now_s)
        # Owners that are known here alone: the store lost them, or never had them.
        self._learned.note_changed(self._learned.records.keys() - stored.keys())
        self.restored.set()
        if stored:
            log.info("what was learned of owners is read", owners=len(stored))

    async def _keep(self) -> None:
        self._learned.forget_old(self._wall_s())
        if not self.restored.is_set():
            await self._restore()
        await self._write()
        if await self._store.size() != len(self._learned.records):
            # Redis lost its data, or somebody else wrote into the key. A write since the count is no harm.
            await self._restore()
            await self._write()

    async def _write(self) -> None:
        changed = self._learned.take_changed()
        known = self._learned.records
        written = {owner: known[owner] for owner in changed if owner in known}
        try:
            await self._store.write(written, changed - written.keys())
        except BaseException:
            self._learned.note_changed(changed)
            raise
