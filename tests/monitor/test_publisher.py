"""The publisher moves events from the outbox into a real stream."""

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from nats.js import JetStreamContext
from nats.js.api import Header, StorageType

from monitor import foreign
from monitor.core.entries import Entry, NodeSnapshot, state_entry
from monitor.core.observation import JOURNAL_START
from monitor.core.tasks import Tasks
from monitor.foreign import ForeignReport
from monitor.outbox.database import Checkpoint
from monitor.outbox.store import Store, StoreError, open_store
from monitor.publisher import BATCH, Publisher, PublisherListeners, StreamTarget
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import EVENTS, STREAM, limit_subject, state_subject
from plimsoll.envelope import largest_epoch
from plimsoll.ids import NodeName
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.logs import capture_logs
from tests.monitor.harness import jetstream, stored, until, until_true
from tests.servers.waiting import PATIENCE_S

NODE = NodeName("node-1")
SNAPSHOT = NodeSnapshot(node=NODE, boot_id="boot", epoch=5, seq=0, time="2026-01-01T00:00:00Z", gpus=())


def entries(count: int) -> list[Entry]:
    """Reports numbered from 1, none of which replaces another."""
    states = (state_entry(SNAPSHOT, seq) for seq in range(1, count + 1))
    return [Entry(state.id, state.subject, state.body) for state in states]


@contextlib.asynccontextmanager
async def filled(tmp_path: Path, waiting: list[Entry]) -> AsyncIterator[Store]:
    """An outbox that holds these events."""
    store = await open_store(tmp_path)
    try:
        await store.keep(waiting, Tasks(), Checkpoint("boot", JOURNAL_START))
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def publishing(store: Store, url: str) -> AsyncIterator[tuple[Publisher, list[int]]]:
    """A running publisher, and the epochs that it found in the stream."""
    epochs: list[int] = []

    async def known(epoch: int) -> None:
        epochs.append(epoch)

    target = StreamTarget(url, NODE, Stream(10_000_000, 3600))
    publisher = Publisher(target, store, PublisherListeners(lambda: SNAPSHOT.epoch, known, ignore))
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher, epochs
    finally:
        task.cancel()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait([task])


def ignore(_: ForeignReport) -> None:
    """Hear nothing of other monitors."""


async def sequences(context: JetStreamContext) -> list[int]:
    """The seq of every report in the stream, in its order."""
    return [message.report.state.seq for message in await stored(context)]


async def test_many_batches_arrive_in_order(tmp_path: Path, nats: EmbeddedServer) -> None:
    """More events than fit in flight arrive once each, in their order, and leave the outbox."""
    count = 5 * BATCH + 1
    async with filled(tmp_path, entries(count)) as store, jetstream(nats.url) as context:
        async with publishing(store, nats.url):
            await until_true(lambda: store.waiting_count == 0)
        assert await sequences(context) == list(range(1, count + 1))


async def test_a_full_disk_is_no_outage_of_nats(
    tmp_path: Path, nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While published events cannot be removed, NATS counts as reached; they go once there is room, none doubled."""
    async with filled(tmp_path, entries(3)) as store, jetstream(nats.url) as context:
        attempts, remove = 0, store.remove

        async def refused(*_: object) -> None:
            nonlocal attempts
            attempts += 1
            raise StoreError("the disk is full")

        monkeypatch.setattr(store, "remove", refused)
        async with publishing(store, nats.url) as (publisher, _):
            await until_true(lambda: attempts >= 2)
            assert publisher.is_reachable
            monkeypatch.setattr(store, "remove", remove)
            await until_true(lambda: store.waiting_count == 0)
        assert await sequences(context) == [1, 2, 3]


async def test_an_event_that_is_too_large_for_nats_holds_up_no_other(
    tmp_path: Path, nats: EmbeddedServer
) -> None:
    """An outbox may hold a message above the server's limit; it is dropped, logged and counted, and the others go."""
    waiting = entries(3)
    waiting[1] = Entry(waiting[1].id, waiting[1].subject, waiting[1].body + b" " * 1024 * 1024)
    with capture_logs() as logs:
        async with filled(tmp_path, waiting) as store, jetstream(nats.url) as context:
            async with publishing(store, nats.url) as (publisher, _):
                await until_true(lambda: (store.waiting_count, publisher.dropped_count) == (0, 1))
            assert await sequences(context) == [1, 3]
    [dropped] = [line for line in logs if "no message so large" in line["event"]]
    assert (dropped["dropped"], "max_payload" in dropped["remedy"]) == (1, True)


async def test_the_stream_is_made_on_disk_with_bounds(tmp_path: Path, nats: EmbeddedServer) -> None:
    """The publisher makes a missing stream on disk, bounded in age and size, with the window for deduplication."""
    async with filled(tmp_path, entries(1)) as store, jetstream(nats.url) as context:
        async with publishing(store, nats.url):
            await until(context, bool)
        config = (await context.stream_info(STREAM)).config
    assert config.storage == StorageType.FILE.value
    assert (config.max_bytes, config.max_age, config.duplicate_window) == (10_000_000, 3600, 3600)


@pytest.mark.parametrize("window_s", [0.1, 3600])
async def test_events_already_in_the_stream_are_not_doubled(
    tmp_path: Path, nats: EmbeddedServer, window_s: float
) -> None:
    """If JetStream stored two of three events before a kill, only the third is added.

    The same holds after the server dropped the ids.
    """
    waiting = entries(3)
    async with jetstream(nats.url) as context:
        await context.add_stream(name=STREAM, subjects=[EVENTS], duplicate_window=window_s)
        for entry in waiting[:2]:
            await context.publish(entry.subject, entry.body, headers={Header.MSG_ID.value: entry.id})
        if window_s < 1:
            await until_forgotten(context, waiting[0].id)
        async with filled(tmp_path, waiting) as store, publishing(store, nats.url) as (_, epochs):
            await until_true(lambda: store.waiting_count == 0)
            assert epochs == [5]
        last = (await context.stream_info(STREAM)).state
        assert last.messages == 3
        raw = [await context.get_msg(STREAM, number) for number in (1, 2, last.last_seq)]
        assert [message.data for message in raw] == [entry.body for entry in waiting]


@pytest.mark.parametrize("sequence", ["9007199254740992.1", "9" * 5000])
async def test_an_epoch_that_readers_refuse_does_not_become_ours(
    tmp_path: Path, nats: EmbeddedServer, sequence: str
) -> None:
    """After a hostile event with the last epoch, our next epoch is above all that readers took, and they take it."""
    began_s = time.time()
    async with jetstream(nats.url) as context:
        await Stream().ensure(context)
        (entry,) = entries(1)
        event = json.loads(entry.body)
        event["sequence"] = sequence
        await context.publish(entry.subject, json.dumps(event).encode())
        async with filled(tmp_path, entries(2)) as store, publishing(store, nats.url) as (_, epochs):
            await until_true(lambda: store.waiting_count == 0)
        (known,) = epochs
        assert largest_epoch(began_s) - 1 <= known < largest_epoch(time.time())


@pytest.mark.parametrize("later", [limit_subject("denied", NODE), state_subject(NODE)])
async def test_the_greatest_epoch_counts_and_not_the_last(
    tmp_path: Path, nats: EmbeddedServer, later: str
) -> None:
    """Whatever came later than the report with the greatest epoch, and however much, our epoch passes that one."""
    async with jetstream(nats.url) as context:
        await Stream().ensure(context)
        greatest = state_entry(replace(SNAPSHOT, epoch=900), 1)
        await context.publish(greatest.subject, greatest.body)
        lower = state_entry(replace(SNAPSHOT, epoch=3), 1).body if later == state_subject(NODE) else b"{}"
        for _ in range(foreign.BATCH + 10):
            await context.publish(later, lower)
        async with filled(tmp_path, entries(1)) as store:
            async with publishing(store, nats.url) as (_, epochs):
                await until_true(lambda: store.waiting_count == 0)
            assert epochs == [900]
            position = await store.position()
            assert position.seq == (await context.stream_info(STREAM)).state.last_seq
            async with publishing(store, nats.url) as (publisher, epochs):
                await store.keep(entries(2)[1:], Tasks(), Checkpoint("boot", JOURNAL_START))
                publisher.wake()
                await until_true(lambda: store.waiting_count == 0)
            # Also where the file of the epoch was lost, and the rest of the state was not.
            assert epochs == [900]


async def test_a_stream_without_direct_reading_has_a_last_epoch(tmp_path: Path, nats: EmbeddedServer) -> None:
    """Where an operator's stream gives no messages directly, the last report's epoch is passed."""
    async with jetstream(nats.url) as context:
        await context.add_stream(name=STREAM, subjects=[EVENTS], allow_direct=False)
        (entry,) = entries(1)
        await context.publish(entry.subject, entry.body)
        async with filled(tmp_path, entries(2)[1:]) as store:
            async with publishing(store, nats.url) as (_, epochs):
                await until_true(lambda: store.waiting_count == 0)
            assert (epochs, (await store.position()).seq) == ([5], 0)


async def until_forgotten(context: JetStreamContext, event_id: str) -> None:
    """Wait until the server stores a message with this id again, and remove that message."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await asyncio.sleep(0.3)
            headers = {Header.MSG_ID.value: event_id}
            again = await context.publish("plimsoll.v1.pod.placed", b"", headers=headers)
            if not again.duplicate:
                await context.delete_msg(STREAM, again.seq)
                return


async def test_a_lost_stream_is_made_again(tmp_path: Path, nats: EmbeddedServer) -> None:
    """After the stream is deleted it is made again, and later events arrive."""
    async with (
        filled(tmp_path, entries(1)) as store,
        jetstream(nats.url) as context,
        publishing(store, nats.url) as (publisher, _),
    ):
        await until_true(lambda: store.waiting_count == 0)
        await context.delete_stream(STREAM)
        await store.keep(entries(3)[1:], Tasks(), Checkpoint("boot", JOURNAL_START))
        publisher.wake()
        await until_true(lambda: store.waiting_count == 0)
        assert await sequences(context) == [2, 3]


async def test_it_is_cancelled_at_whatever_moment(tmp_path: Path, nats: EmbeddedServer) -> None:
    """A cancelled publisher ends, also while it connects, asks for the stream, or publishes.

    nats-py drops some cancellations.
    """
    moments = random.Random(1)  # noqa: S311 - repeatable, not secret
    async with filled(tmp_path, entries(3000)) as store:
        for _ in range(200):
            async with publishing(store, nats.url):
                await asyncio.sleep(moments.uniform(0, 0.02))
