"""The stream on a real NATS, and cancellations that a library drops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import nats as nats_client
import pytest
from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy
from nats.js.errors import APIError, NoStreamResponseError, NotFoundError

from plimsoll.bus.stream import DUPLICATE_WINDOW_S, MAX_AGE_S, MAX_BYTES, Stream
from plimsoll.bus.subjects import EVENTS, STREAM
from plimsoll.part.causes import cause_of
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.servers.clusters import nats_cluster
from tests.servers.waiting import PATIENCE_S


@contextlib.asynccontextmanager
async def connected(server: EmbeddedServer) -> AsyncIterator[JetStreamContext]:
    """JetStream on this server."""
    client = await nats_client.connect(server.url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def test_whoever_comes_first_makes_the_stream(nats: EmbeddedServer) -> None:
    """Parts that start together, each over its own connection, find one stream with the default settings."""
    async with connected(nats) as one, connected(nats) as other:
        found = await asyncio.gather(*(Stream().ensure(each) for each in (one, other, one, other)))
        config = (await one.stream_info(STREAM)).config
    assert {each.config.duplicate_window for each in found} == {DUPLICATE_WINDOW_S}
    made = (config.subjects, config.max_bytes, config.max_age, config.duplicate_window)
    assert made == ([EVENTS], MAX_BYTES, MAX_AGE_S, DUPLICATE_WINDOW_S)


async def test_a_stream_that_is_there_is_left_alone(nats: EmbeddedServer) -> None:
    """A stream with an operator's settings stays, and each part reads its duplicate window."""
    async with connected(nats) as jetstream:
        await Stream(5_000_000, 120).ensure(jetstream)
        assert (await Stream().ensure(jetstream)).config.duplicate_window == 120
        config = (await jetstream.stream_info(STREAM)).config
    assert (config.max_bytes, config.max_age) == (5_000_000, 120)


async def test_a_cluster_keeps_the_stream_as_often_as_its_maker_said(tmp_path: Path) -> None:
    """On three servers the stream has three replicas, and a later client that says otherwise leaves them alone."""
    async with nats_cluster(tmp_path) as cluster:
        client = await nats_client.connect(cluster.url.split(","))
        try:
            for stream in (Stream(replicas=3), Stream()):
                await stream.ensure(client.jetstream())
                assert (await client.jetstream().stream_info(STREAM)).config.num_replicas == 3
        finally:
            await client.close()


async def test_more_replicas_than_servers_are_an_error_that_says_so(nats: EmbeddedServer) -> None:
    """A server without a cluster refuses a replicated stream, and nothing is made instead."""
    async with connected(nats) as jetstream:
        with pytest.raises(nats_client.js.errors.APIError, match="replicas > 1 not supported"):
            await Stream(replicas=3).ensure(jetstream)
        with pytest.raises(NotFoundError):
            await jetstream.stream_info(STREAM)


async def test_another_stream_with_our_subjects_is_named(own_nats: EmbeddedServer) -> None:
    """On a server shared with others, the cause is their stream, by its name, and not that none was made."""
    async with connected(own_nats) as jetstream:
        await jetstream.add_stream(name="EVERYTHING", subjects=["plimsoll.>"])
        with pytest.raises(APIError) as caught:
            await Stream().ensure(jetstream)
    cause = cause_of(caught.value, "PLIMSOLL_NATS_URL")
    assert "another stream of this server holds the subjects plimsoll.v1.>" in cause
    assert "EVERYTHING" in cause


@pytest.mark.parametrize(
    ("choice", "cause"),
    [
        ({"max_msg_size": 100}, "--max-msg-size=-1"),
        ({"max_bytes": 200, "discard": DiscardPolicy.NEW}, "--discard=old"),
        ({"max_msgs": 1, "discard": DiscardPolicy.NEW}, "--discard=old"),
    ],
)
async def test_a_stream_that_takes_no_event_is_named_with_its_remedy(
    own_nats: EmbeddedServer, choice: dict[str, Any], cause: str
) -> None:
    """An operator's stream that is full, or takes only short messages."""
    async with connected(own_nats) as jetstream:
        await jetstream.add_stream(name=STREAM, subjects=[EVENTS], **choice)
        with pytest.raises(APIError) as caught:
            await publish_twice(jetstream)
    assert cause in cause_of(caught.value, "PLIMSOLL_NATS_URL")


async def publish_twice(jetstream: JetStreamContext) -> None:
    """Publish two messages of 120 bytes."""
    for _ in range(2):
        await jetstream.publish("plimsoll.v1.node.state.n", b"x" * 120)


async def test_a_stream_with_other_subjects_is_named(own_nats: EmbeddedServer) -> None:
    """Our stream, made by somebody with other subjects, takes no event."""
    async with connected(own_nats) as jetstream:
        await jetstream.add_stream(name=STREAM, subjects=["other.>"])
        with pytest.raises(NoStreamResponseError) as caught:
            await jetstream.publish("plimsoll.v1.node.state.n", b"x", timeout=PATIENCE_S)
    assert "give the stream PLIMSOLL the subject" in cause_of(caught.value, "PLIMSOLL_NATS_URL")
