"""Fixtures of the intake's tests: a monitor's connection, and an intake that runs."""

from collections.abc import AsyncIterator

import pytest
from nats.js import JetStreamContext

from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import Running, bus, taking_in


@pytest.fixture
async def jetstream(nats: EmbeddedServer) -> AsyncIterator[JetStreamContext]:
    """A monitor's connection to the bus, with the stream made."""
    async with bus(nats) as made:
        yield made


@pytest.fixture
async def running(
    jetstream: JetStreamContext, nats: EmbeddedServer, valkey: EmbeddedServer
) -> AsyncIterator[Running]:
    """An intake and a list writer that run over this bus."""
    del jetstream  # the stream is there first
    async with taking_in(nats, valkey) as made:
        yield made
