"""NATS and Valkey for tests: one pair for the whole run, emptied before each test, or a pair for one test.

Take `nats` and `valkey` where the server only has to be there. Take `own_nats` and `own_valkey` to kill it
and bring it back; they cost about 0.1 s each.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import nats as nats_client
import pytest
import redis.asyncio as redis

from plimsoll_cli.demo import servers
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, nats_server, running, valkey_server
from tests.servers.waiting import PATIENCE_S

KEPT = "KEPT"
"""A stream that stays in the shared NATS, without a message, on a subject that nobody uses.

Some time after the last stream is deleted, nats-server 2.15 removes the folder of all streams (the goroutine in
`stream.stop`); a stream made in that moment is refused with 10049, "error creating store for stream".
"""


async def ignore(_: Exception) -> None:
    """The `error_cb` of clients whose server is killed on purpose: by default they print each error."""


@pytest.fixture(scope="session")
async def session_nats(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """The NATS server of the whole run. Tests use `nats`."""
    async with nats_server(tmp_path_factory.mktemp("nats")) as server:
        client = await nats_client.connect(server.url)
        try:
            await client.jetstream(timeout=PATIENCE_S).add_stream(name=KEPT, subjects=["kept"])
        finally:
            await client.close()
        yield server


@pytest.fixture
async def nats(session_nats: EmbeddedServer) -> EmbeddedServer:
    """A NATS server with JetStream that holds no stream but `KEPT`. Tests do not kill it."""
    client = await nats_client.connect(session_nats.url)
    try:
        context = client.jetstream(timeout=PATIENCE_S)
        for stream in await context.streams_info():
            assert stream.config.name is not None
            if stream.config.name != KEPT:
                await context.delete_stream(stream.config.name)
    finally:
        await client.close()
    return session_nats


@pytest.fixture
async def own_nats(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A NATS server for one test, which may kill and restart it. Acknowledged messages survive."""
    async with nats_server(tmp_path / "nats") as server:
        yield server


@pytest.fixture
async def deaf_nats(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A NATS server without JetStream: clients reach it, and no report can be read there."""

    def arguments(port: int, _: Path) -> Sequence[str]:
        return ("--addr", "127.0.0.1", "--port", str(port))

    kind = ServerKind("nats-server", "nats", "Server is ready", servers._nats_program, arguments)
    async with running(kind, tmp_path / "deaf-nats") as server:
        yield server


@pytest.fixture(scope="session")
async def session_valkey(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """The Valkey server of the whole run. Tests use `valkey`."""
    async with valkey_server(tmp_path_factory.mktemp("valkey")) as server:
        yield server


@pytest.fixture
async def valkey(session_valkey: EmbeddedServer) -> EmbeddedServer:
    """An empty Valkey server. Tests do not kill it."""
    async with redis.Redis.from_url(session_valkey.url, protocol=2) as client:
        await client.flushall()
        await client.script_flush()
    return session_valkey


@pytest.fixture
async def own_valkey(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A Valkey server for one test, which may kill and restart it. It comes back empty."""
    async with valkey_server(tmp_path / "valkey") as server:
        yield server
