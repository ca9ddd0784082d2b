"""The samples of owners outlive the placer that took them, in a real Valkey."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
import redis.asyncio as redis

from placer.core.learned import Learned
from placer.core.ledger import Ledger
from placer.core.owner_record import FORGET_S, OwnerRecord, PeakSample
from placer.stores.learned import LONGEST_RECORD, LearnedStore, LearnedWriter
from plimsoll.placer_api.redis_keys import LEARNED
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.logs import capture_logs
from tests.servers.waiting import until, until_true

OWNER = "Deployment team/trainer"
SIX = OwnerRecord((PeakSample("k", 6 * GIB, 1.7e9),))
NOW_S = 1.7e9 + 60
WRITE_S = 0.05


def learned_of(**owners: OwnerRecord) -> Learned:
    """Records of these owners, all of them new."""
    learned = Learned(Ledger())
    learned.restore(owners, NOW_S)
    learned.note_changed(owners.keys())
    return learned


@contextlib.asynccontextmanager
async def keeping(url: str, learned: Learned) -> AsyncIterator[LearnedWriter]:
    """Keeps the records in Redis meanwhile."""
    store = LearnedStore(url)
    learning = LearnedWriter(store, learned, lambda: NOW_S, write_s=WRITE_S)
    task = asyncio.create_task(learning.run())
    try:
        yield learning
        assert not task.done()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await store.close()


@contextlib.asynccontextmanager
async def client_of(url: str) -> AsyncIterator[Any]:
    """A client of the same server, which reads and writes bytes."""
    async with redis.Redis.from_url(url, protocol=2, legacy_responses=True) as client:
        yield client


async def stored(client: Any) -> dict[str, OwnerRecord]:  # noqa: ANN401 - redis-py's client has no types for bytes
    """The contents of the hash."""
    fields = await client.hgetall(LEARNED)
    return {owner.decode(): msgspec.json.decode(text, type=OwnerRecord) for owner, text in fields.items()}


def stands(client: Any, owners: set[str]) -> Callable[[], Awaitable[bool]]:  # noqa: ANN401 - as above
    """Looks whether just these owners stand in the hash."""

    async def look() -> bool:
        return {owner.decode("utf-8", "replace") for owner in await client.hkeys(LEARNED)} == owners

    return look


async def test_a_placer_that_starts_knows_what_another_learned(valkey: EmbeddedServer) -> None:
    """Records are written by one placer, and expected of pods by the next one before its first decision."""
    async with client_of(valkey.url) as client, keeping(valkey.url, learned_of(**{OWNER: SIX})):
        await until(stands(client, {OWNER}))
        assert await stored(client) == {OWNER: SIX}
    ledger = Ledger()
    store = LearnedStore(valkey.url)
    try:
        learning = LearnedWriter(store, Learned(ledger), lambda: NOW_S)
        await learning.restore()
    finally:
        await store.close()
    assert learning.restored.is_set()
    assert ledger.learned_bytes(OWNER) == 6 * GIB


async def test_owners_that_are_forgotten_leave_the_store(valkey: EmbeddedServer) -> None:
    """The store holds no owner that the placer has forgotten, however it came there."""
    old = OwnerRecord((PeakSample("k", GIB, NOW_S - FORGET_S),))
    async with client_of(valkey.url) as client:
        await client.hset(LEARNED, "Job team/old", msgspec.json.encode(old))
        async with keeping(valkey.url, learned_of(**{OWNER: SIX})):
            await until(stands(client, {OWNER}))


async def test_what_redis_loses_is_written_again(valkey: EmbeddedServer) -> None:
    """A store that was flushed gets all records back, without any new report."""
    async with client_of(valkey.url) as client, keeping(valkey.url, learned_of(**{OWNER: SIX})):
        await until(stands(client, {OWNER}))
        await client.flushall()
        await until(stands(client, {OWNER}))


DAMAGES = {
    "no JSON": b"{",
    "another type": b'{"samples":[["k","6Gi",1.7e9]]}',
    "no UTF-8": b'{"samples":[["\xff",1,1]]}',
    "a peak below zero": b'{"samples":[["k",-1,1.7e9]]}',
    "a time to come": b'{"samples":[["k",1,9e18]]}',
    "thousands of brackets": b"[" * 10_000,
    "too large": b" " * (LONGEST_RECORD + 1),
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_data_is_named_and_dropped(valkey: EmbeddedServer, damage: str) -> None:
    """A record that somebody else wrote costs a line in the log and itself, and no other record."""
    async with client_of(valkey.url) as client:
        await client.hset(LEARNED, "Job team/damaged", DAMAGES[damage])
        await client.hset(LEARNED, b"\xff\xfe", msgspec.json.encode(SIX))
        await client.hset(LEARNED, OWNER, msgspec.json.encode(SIX))
        learned = Learned(Ledger())
        with capture_logs() as lines:
            async with keeping(valkey.url, learned):
                await until(stands(client, {OWNER}))
                await until_true(lambda: learned.records.keys() == {OWNER})
    named = [one["owner"] for one in lines if "damaged" in one["event"]]
    assert sorted(named) == ["Job team/damaged", "\ufffd\ufffd"]


async def test_a_key_of_another_type_is_dropped(valkey: EmbeddedServer) -> None:
    """A list in the place of the hash is named, removed, and written anew as a hash."""
    async with client_of(valkey.url) as client:
        await client.rpush(LEARNED, "x")
        with capture_logs() as lines:
            async with keeping(valkey.url, learned_of(**{OWNER: SIX})):

                async def is_written() -> bool:
                    return await client.type(LEARNED) == b"hash" and await stands(client, {OWNER})()

                await until(is_written)
    assert any(one["event"] == "a key in Redis is no hash and is dropped" for one in lines)


async def test_without_redis_learning_waits_and_goes_on_later(own_valkey: EmbeddedServer) -> None:
    """While Redis is away records stay in memory; once it is back they are stored, and what stood there is kept."""
    async with client_of(own_valkey.url) as client:
        await client.ping()
    await own_valkey.kill()
    learned = learned_of(**{OWNER: SIX})
    with capture_logs() as lines:
        async with keeping(own_valkey.url, learned) as learning:
            await learning.restore()
            assert not learning.restored.is_set()
            await until_true(lambda: any("waits for Redis" in one["event"] for one in lines))
            await own_valkey.start()
            async with client_of(own_valkey.url) as client:
                await until(stands(client, {OWNER}))
    assert learned.records.keys() == {OWNER}


async def test_nothing_is_written_before_all_was_read(valkey: EmbeddedServer) -> None:
    """A placer that has seen one pod of an owner does not overwrite what was learned of sixteen."""
    before = OwnerRecord(tuple(PeakSample(f"{number}", 6 * GIB, 1.7e9 + number) for number in range(3)))
    async with client_of(valkey.url) as client:
        await client.hset(LEARNED, OWNER, msgspec.json.encode(before))
        mine = OwnerRecord((PeakSample("mine", GIB, NOW_S),))
        async with keeping(valkey.url, learned_of(**{OWNER: mine})):

            async def is_merged() -> bool:
                return len((await stored(client))[OWNER].samples) == 4

            await until(is_merged)
        assert (await stored(client))[OWNER] == OwnerRecord((*before.samples, *mine.samples))
