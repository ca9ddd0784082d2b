"""The reader's clock, and streams that change under it."""

import asyncio

import nats as nats_client
import pytest

from plimsoll.bus.access import BusAccess
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import STREAM
from plimsoll_alerts.core.book import AlertBook
from plimsoll_alerts.reader import AWAY_S, STEP_S, Reader
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.plimsoll_alerts.facts import A, B, Facts, ill, task
from tests.servers.waiting import PATIENCE_S, until_true


async def test_the_clock_stands_still_while_nats_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """An outage, and a standstill of this process, make no node silent; a long outage is an alert."""
    now_s = [0.0]
    reader = Reader(book := AlertBook(), "nats://127.0.0.1:1", BusAccess())
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s[0])
    for now_s[0] in (0.0, 2.0, 4.0, 1000.0):
        reader._answered()
    assert reader.clock_s == 4.0 + STEP_S
    reader._failed_at()
    now_s[0] = 1000.0 + AWAY_S
    reader.note_outage()
    assert book.bus_away_since == ""
    now_s[0] = 1001.0 + AWAY_S
    reader._failed_at()
    reader.note_outage()
    assert book.bus_away_since
    reader._answered()
    now_s[0] += 2
    reader._answered()
    reader.note_outage()
    assert (book.bus_away_since, reader.clock_s) == ("", 6.0 + STEP_S)


async def test_a_stream_that_is_made_anew_is_read_from_its_start(nats: EmbeddedServer) -> None:
    """Known states stay until nodes report, and numbers that begin again count as later ones."""
    node, other = Facts(), Facts("node-2")
    client = await nats_client.connect(nats.url)
    jetstream = client.jetstream(timeout=PATIENCE_S)
    reader = Reader(book := AlertBook(), nats.url, BusAccess())

    async def publish(facts: Facts, body: bytes) -> None:
        await jetstream.publish(facts.subject(body), body)

    reading = asyncio.create_task(reader.run())
    try:
        await Stream().ensure(jetstream)
        for _ in range(5):
            await publish(node, node.report(task(71), health=(ill(),)))
        await publish(node, node.limit("unenforced", pid=71))
        await until_true(lambda: len(book.firing(reader.clock_s)) == 2)
        await jetstream.delete_stream(STREAM)
        await Stream().ensure(jetstream)
        await publish(other, other.report(short=(A, B)))
        await until_true(lambda: len(book.firing(reader.clock_s)) == 4)
        await publish(node, node.report())
        await until_true(lambda: len(book.firing(reader.clock_s)) == 2)
        await client.publish(node.subject(node.report()), b"nonsense")
        await publish(other, other.report())
        await until_true(lambda: not book.firing(reader.clock_s))
        assert reader.damaged == 1
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await client.close()
