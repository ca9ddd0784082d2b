"""The rooms that are kept for the replacements of moved pods, and the last moves, in Redis, for the next leader.

What always holds: nothing waits for Redis longer than `TIMEOUT_S`, and rooms that cannot be stored or read are lost
only if their placer dies.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import redis.asyncio as redis
from redis.client import NEVER_DECODE

from placer.relocation.memory import StoredRelocations
from plimsoll.part.errors import PlimsollError
from plimsoll.part.log import get_logger
from plimsoll.placer_api.redis_keys import ROOMS
from plimsoll.redis_client import exchange, open_redis

TIMEOUT_S: Final = 2.0
"""How long one exchange may take; a healthy server needs about a millisecond. Evictions wait for it."""

log = get_logger()


@asynccontextmanager
async def room_store(url: str) -> AsyncIterator["RoomStore"]:
    """The rooms in the Redis of this URL."""
    client = open_redis(url, timeout_s=TIMEOUT_S, connections=1)
    try:
        yield RoomStore(client)
    finally:
        await client.aclose()


class _RoomsAwayError(PlimsollError):
    """Redis did not answer, or not as expected."""


class RoomStore:
    """One key, over a connection of its own; see `placer.relocation.memory.RelocationMemory`."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    async def read(self) -> StoredRelocations:
        """See `RelocationMemory`."""
        try:
            async with exchange("give the rooms of moved pods", TIMEOUT_S, _RoomsAwayError):
                # Bytes, as a text that is no UTF-8 would fail the whole answer.
                text = await self._client.execute_command(  # type: ignore[no-untyped-call]  # redis-py has no type for it
                    "GET", ROOMS, **{NEVER_DECODE: True}
                )
            return msgspec.json.decode(text, type=StoredRelocations) if text else StoredRelocations()
        except (_RoomsAwayError, msgspec.MsgspecError, RecursionError) as error:
            log.warning("rooms of moved pods are not known", key=ROOMS, problem=str(error))
            return StoredRelocations()

    async def write(self, relocations: StoredRelocations) -> bool:
        """See `RelocationMemory`."""
        try:
            async with exchange("store the rooms of moved pods", TIMEOUT_S, _RoomsAwayError):
                await self._client.set(ROOMS, msgspec.json.encode(relocations))
        except _RoomsAwayError as error:
            log.warning("rooms of moved pods are not stored", problem=str(error))
            return False
        return True
