"""Keeps the samples of owners in Redis, so that they outlive the placer that took them: one hash, a field an owner.

Every placer learns from the reports by itself; the one that leads stores it. What always holds:

- Nothing waits for Redis but the store. A placer that takes over reads what others stored before its first decision,
  for `RESTORE_S` at most. While Redis is away it goes on with what it saw itself, and reads the rest later.
- Nothing is written before everything was read, so that no record is overwritten by one with fewer samples.
- A field that cannot be read is logged, removed, and keeps no other from being read. The hash is read in slices, so
  that other clients wait for none of them for long.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, NoReturn

import msgspec
from redis.client import NEVER_DECODE

from placer.core.learned import Learned
from placer.core.owner_record import OwnerRecord, checked
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.errors import SHOWN_CHARS, InputError, PlimsollError
from plimsoll.part.log import get_logger
from plimsoll.placer_api.redis_keys import LEARNED
from plimsoll.redis_client import exchange, open_redis

TIMEOUT_S: Final = 5.0
"""How long one exchange may take; a healthy server needs about a millisecond."""

CHUNK: Final = 200
"""Owners in one exchange, some 200 KiB."""

LONGEST_OWNER: Final = 600
"""The most characters of an owner: its kind, namespace and name have 63, 63 and 253 at most."""

LONGEST_RECORD: Final = 65_536
"""The most bytes of a record that is read. The placer writes less than 2 KiB."""

RESTORE_S: Final = 2.0
"""The most seconds that the first decision waits for Redis. Reading ten thousand owners takes some tenths of one."""

WRITE_S: Final = 5.0
"""Seconds between two writes: a burst of tasks of one owner causes one. A placer that dies loses what it learned in
this time at most. Pods that still run are reported again."""

log = get_logger()


class LearnedAwayError(PlimsollError):
    """Redis did not answer, or not as expected: try again after a pause; nothing is lost."""


class LearnedStore:
    """The hash, over a connection of its own."""

    def __init__(self, url: str) -> None:
        self._client = open_redis(url, timeout_s=TIMEOUT_S, connections=1)

    async def close(self) -> None:
        """Close the connection; call no method afterwards."""
        await self._client.aclose()

    async def size(self) -> int:
        """The number of owners that are stored; a key of another type is removed first.

        Raises:
            LearnedAwayError: no answer.
        """
        async with self._asking("give the number of learned owners"):
            kind = await self._client.type(LEARNED)
            if kind not in ("hash", "none"):
                log.warning("a key in Redis is no hash and is dropped", key=LEARNED, type=kind)
                await self._client.delete(LEARNED)
            size: int = await self._client.hlen(LEARNED)
            return size

    async def read(self, now_s: float) -> dict[str, OwnerRecord]:
        """All records that can be read; the others are removed.

        Args:
            now_s: the time in seconds since 1970.

        Raises:
            LearnedAwayError: no answer.
        """
        await self.size()
        found: dict[str, OwnerRecord] = {}
        cursor = 0
        while True:
            async with self._asking("give what was learned"):
                # Bytes, as a text that is no UTF-8 would fail the whole answer.
                cursor, fields = await self._client.execute_command(  # type: ignore[no-untyped-call]
                    "HSCAN", LEARNED, cursor, "COUNT", CHUNK, **{NEVER_DECODE: True}
                )
                damaged = [owner for owner, text in fields.items() if not _took(found, owner, text, now_s)]
                if damaged:
                    await self._client.hdel(LEARNED, *damaged)
            if not cursor:
                return found
            await asyncio.sleep(0)  # other tasks run between two slices

    async def write(self, records: Mapping[str, OwnerRecord], gone: Collection[str]) -> None:
        """Store these owners' records, and remove owners that are gone.

        Raises:
            LearnedAwayError: no answer; some may have been written. Writing them again is harmless.
        """
        rest = [*records, *gone]
        while rest:
            owners, rest = rest[:CHUNK], rest[CHUNK:]
            texts = [
                part for one in owners if one in records for part in (one, msgspec.json.encode(records[one]))
            ]
            removed = [one for one in owners if one not in records]
            async with self._asking("store what was learned"), self._client.pipeline() as pipe:
                if texts:
                    pipe.hset(LEARNED, items=texts)
                if removed:
                    pipe.hdel(LEARNED, *removed)
                await pipe.execute()

    def _asking(self, request: str) -> AbstractAsyncContextManager[None]:
        return exchange(request, TIMEOUT_S, LearnedAwayError)


def _took(found: dict[str, OwnerRecord], owner: bytes, text: bytes, now_s: float) -> bool:
    """Take a field in; returns False for one that cannot be read, after a line in the log."""
    try:
        name = owner.decode()
        if not 0 < len(name) <= LONGEST_OWNER:
            raise InputError("owner", name[:SHOWN_CHARS], "is no owner", "let the placer write it")
        if len(text) > LONGEST_RECORD:
            raise InputError("record", f"{len(text)} bytes", "are too many", "let the placer write it")
        found[name] = checked(msgspec.json.decode(text, type=OwnerRecord), now_s)
    except (InputError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        shown = owner[:SHOWN_CHARS].decode("utf-8", "replace")
        log.warning(
            "a learned record in Redis is damaged and dropped", key=LEARNED, owner=shown, problem=str(error)
        )
        return False
    return True


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
