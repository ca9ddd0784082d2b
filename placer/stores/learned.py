"""The samples of owners, kept in Redis: one hash, a field for each owner.

What always holds: a field that cannot be read is logged, removed, and keeps no other from being read. The hash is
read in slices, so that other clients wait for none of them for long.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec
from redis.client import NEVER_DECODE

from placer.core.owner_record import OwnerRecord, checked
from placer.stores.exchange import exchange
from plimsoll.part.errors import SHOWN_CHARS, InputError, PlimsollError
from plimsoll.part.log import get_logger
from plimsoll.placer_api.redis_keys import LEARNED
from plimsoll.redis_client import open_redis

TIMEOUT_S: Final = 5.0
"""How long one exchange may take; a healthy server needs about a millisecond."""

CHUNK: Final = 200
"""Owners in one exchange, some 200 KiB."""

LONGEST_OWNER: Final = 600
"""The most characters of an owner: its kind, namespace and name have 63, 63 and 253 at most."""

LONGEST_RECORD: Final = 65_536
"""The most bytes of a record that is read. The placer writes less than 2 KiB."""

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
