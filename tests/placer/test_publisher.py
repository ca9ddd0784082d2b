"""On a real NATS every placement event is stored, and once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from nats.js import JetStreamContext

from placer.metrics import Metrics, ServerMetrics
from placer.publisher import Publisher
from plimsoll.bus.client import BusClient, connect
from plimsoll.bus.subjects import STREAM
from plimsoll.envelope import decode_event
from plimsoll.events import Placement
from plimsoll.ids import NodeName, PodUid
from plimsoll_cli.demo.servers import EmbeddedServer
from tests import cloudevents
from tests.placer.arrivals import bus, eventually
from tests.servers.waiting import PATIENCE_S


def placement(pod: str, node: str | None = "n1", reason: str = "") -> Placement:
    """A placement of a pod."""
    where = NodeName(node) if node else None
    return Placement(namespace="default", name=pod, pod=PodUid(pod), node=where, reason=reason)


@contextlib.asynccontextmanager
async def publishing(
    server: EmbeddedServer, queue_events: int = 100
) -> AsyncIterator[tuple[Publisher, ServerMetrics]]:
    """A running publisher over a connection as the placer makes it."""
    client = BusClient()
    publisher = Publisher(client.jetstream(), metrics := Metrics().servers, queue_events=queue_events)
    await connect(client, server.url, "test")
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher, metrics
    finally:
        task.cancel()
        await asyncio.wait([task])
        with contextlib.suppress(OSError):  # the server may be dead
            await client.close()
    assert task.cancelled(), task.exception()


async def stored(jetstream: JetStreamContext) -> list[tuple[str, Placement]]:
    """Type and data of every event in the stream."""
    state = (await jetstream.stream_info(STREAM)).state
    bodies = [(await jetstream.get_msg(STREAM, seq)).data or b"" for seq in range(1, state.messages + 1)]
    events = [decode_event(body) for body in bodies]
    assert [cloudevents.read(body).get_id() for body in bodies] == [event.id for event in events]
    return [(event.type, msgspec.json.decode(event.data, type=Placement)) for event in events]


async def test_placements_are_published_in_order(nats: EmbeddedServer) -> None:
    """Placements are stored with their type and data, in the order of their announcement."""
    async with bus(nats) as jetstream, publishing(nats) as (publisher, _):
        publisher.unplaceable(placement("p", None, "0/1 nodes are available."))
        publisher.placed(placement("p"))
        publisher.foreign(placement("q", "n2", "somebody else bound it"))
        await eventually(
            lambda: stored(jetstream),
            [
                ("dev.plimsoll.pod.unplaceable.v1", placement("p", None, "0/1 nodes are available.")),
                ("dev.plimsoll.pod.placed.v1", placement("p")),
                ("dev.plimsoll.pod.foreign.v1", placement("q", "n2", "somebody else bound it")),
            ],
        )


async def test_events_of_a_pod_keep_their_order_while_many_are_on_their_way(nats: EmbeddedServer) -> None:
    """Several hundred events are stored, and of each pod the refusals come in order and before the placement."""
    names = [f"p{index}" for index in range(100)]
    async with bus(nats) as jetstream, publishing(nats, queue_events=1000) as (publisher, metrics):
        for name in names:
            publisher.unplaceable(placement(name, None, "first"))
            publisher.unplaceable(placement(name, None, "second"))
        for name in names:
            publisher.placed(placement(name))

        async def all_there() -> bool:
            return len(await stored(jetstream)) == 300

        await eventually(all_there, expected=True)
        by_pod: dict[str, list[str]] = {name: [] for name in names}
        for _, data in await stored(jetstream):
            by_pod[data.name].append(data.reason)
        assert all(reasons == ["first", "second", ""] for reasons in by_pod.values())
        assert metrics.unpublished._value.get() == 0


async def test_same_fact_is_stored_once(nats: EmbeddedServer) -> None:
    """A placement announced twice, also after a restart, is one event. Another reason makes another event."""
    async with bus(nats) as jetstream:
        for _ in range(2):
            async with publishing(nats) as (publisher, _):
                publisher.placed(placement("p"))
                publisher.unplaceable(placement("q", None, "why"))
                publisher.unplaceable(placement("q", None, "another"))
                publisher.placed(placement("last"))

                async def has_last() -> bool:
                    return ("dev.plimsoll.pod.placed.v1", placement("last")) in await stored(jetstream)

                await eventually(has_last, expected=True)
        assert len(await stored(jetstream)) == 4


async def test_events_wait_for_a_killed_bus(own_nats: EmbeddedServer) -> None:
    """Placements announced while NATS is dead are stored once NATS is back, each once."""
    async with bus(own_nats), publishing(own_nats) as (publisher, _):
        publisher.placed(placement("before"))
        await own_nats.kill()
        for index in range(20):
            publisher.placed(placement(f"p{index}"))
        await own_nats.restart()
        async with bus(own_nats) as jetstream:

            async def pods() -> list[str]:
                return [data.name for _, data in await stored(jetstream)]

            await eventually(pods, ["before", *(f"p{index}" for index in range(20))])


async def test_events_before_the_end_are_stored(
    nats: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events that gather, and those whose acknowledgement was not awaited, are in the stream after a cancellation."""
    monkeypatch.setattr("placer.publisher.LAST_S", PATIENCE_S)  # a busy machine may need longer for so many
    names = [f"p{index}" for index in range(200)]
    async with bus(nats) as jetstream:
        async with publishing(nats, queue_events=1000) as (publisher, metrics):
            publisher.placed(placement("first"))
            await eventually(lambda: stored(jetstream), [("dev.plimsoll.pod.placed.v1", placement("first"))])
            for name in names:
                publisher.placed(placement(name))
        assert sorted(one.name for _, one in await stored(jetstream)) == sorted(["first", *names])
        assert metrics.unpublished._value.get() == 0


async def test_events_that_a_dead_bus_cannot_take_at_the_end_are_counted(own_nats: EmbeddedServer) -> None:
    """The end comes though the bus stays away, and the metric has each event that is lost."""
    async with bus(own_nats), publishing(own_nats) as (publisher, metrics):
        await own_nats.kill()
        publisher.placed(placement("p"))
        publisher.placed(placement("q"))
        await asyncio.sleep(0)
    assert metrics.unpublished._value.get() == 2


async def test_full_queue_drops_the_oldest_and_counts_it(own_nats: EmbeddedServer) -> None:
    """While NATS is dead a full queue keeps the newest events and counts the dropped ones."""
    async with bus(own_nats), publishing(own_nats, queue_events=3) as (publisher, metrics):
        await own_nats.kill()
        for index in range(10):
            publisher.placed(placement(f"p{index}"))
        assert metrics.unpublished._value.get() == 7
        await own_nats.restart()
        async with bus(own_nats) as jetstream:

            async def newest_are_there() -> bool:
                return [data.name for _, data in await stored(jetstream)][-3:] == ["p7", "p8", "p9"]

            await eventually(newest_are_there, expected=True)
