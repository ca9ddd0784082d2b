"""The bus's client comes back, whatever a server in trouble says and leaves unsaid."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from nats.errors import Error

from plimsoll.bus.access import BusAccess
from plimsoll.bus.client import BusClient, connect
from plimsoll_cli.demo.servers import EmbeddedServer
from plimsoll_cli.events import NoEventsError, connected
from tests.logs import capture_logs
from tests.servers.relay import HANDSHAKE
from tests.servers.waiting import PATIENCE_S, until_true

INFO = b'INFO {"server_id":"A","version":"2.11.0","proto":1,"headers":true,"max_payload":1048576}\r\n'
PING, PONG = b"PING\r\n", b"PONG\r\n"

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *answers: bytes) -> None:
    """Greet a client, and answer the `PING` of its greeting."""
    writer.write(INFO)
    await reader.readuntil(PING)
    writer.writelines(answers)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer every `PING`."""
    while await reader.readline():
        writer.write(PONG)


@contextlib.asynccontextmanager
async def _server(*scripts: Script) -> AsyncIterator[str]:
    """A server that treats each connection after its own script, the later ones after the last; yields its URL."""
    left, ended = list(scripts), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = left.pop(0) if len(left) > 1 else left[0]
        ended.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await script(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in ended:
            writer.close()


@contextlib.asynccontextmanager
async def _client(url: str) -> AsyncIterator[BusClient]:
    """A client that connects again for ever."""

    async def ignore(_: Exception) -> None:
        pass

    client = BusClient()
    await client.connect(url, max_reconnect_attempts=-1, reconnect_time_wait=0, error_cb=ignore)
    try:
        yield client
    finally:
        await client.close()


async def test_news_of_the_cluster_may_come_before_the_answer() -> None:
    """A server may announce a change of its cluster within the greeting; the client is connected all the same."""

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _greeted(reader, writer, INFO, PONG)
        await _serve(reader, writer)

    async with _server(talkative) as url, _client(url) as client:
        assert client.is_connected
        await client.flush()


async def test_a_connection_that_was_given_up_takes_nothing_from_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server greets and then stands still: the client goes to another, and stays there as the first goes on."""
    comes = asyncio.Event()

    async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _greeted(reader, writer, PONG)
        writer.close()

    async def stands_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _greeted(reader, writer, PONG)
        await comes.wait()
        writer.write(PING)  # it goes on while the client greets the next server

    async def next_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        await reader.readuntil(PING)
        comes.set()
        await asyncio.sleep(0.2)
        writer.write(PONG)
        await _serve(reader, writer)

    whole = BusClient.flush

    async def soon(client: BusClient, timeout: int = 1) -> None:  # noqa: ASYNC109 - nats-py's own signature
        await whole(client, timeout)

    monkeypatch.setattr(BusClient, "flush", soon)  # nats-py's own patience is 10 s
    async with _server(ends, stands_still, next_one) as url, _client(url) as client:
        await until_true(comes.is_set)
        await until_true(lambda: client.is_connected)
        await client.flush()


async def test_an_unexpected_error_ends_no_reconnection(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client connects again after an error that nats-py does not know."""

    async def ends(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _greeted(reader, writer, PONG)
        await asyncio.wait([asyncio.create_task(broken.wait())])
        writer.close()

    async def goes_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _greeted(reader, writer, PONG)
        await _serve(reader, writer)

    broken, select, tries = asyncio.Event(), BusClient._select_next_server, list[int]()

    async def breaks_once(client: BusClient) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError(
                "readuntil() called while another coroutine is already waiting for incoming data"
            )
        await select(client)

    async with _server(ends, goes_on) as url, _client(url) as client:
        monkeypatch.setattr(BusClient, "_select_next_server", breaks_once)
        broken.set()
        await until_true(lambda: len(tries) > 1 and client.is_connected)
        with contextlib.suppress(Error):  # the server may have ended this connection just now
            await client.flush()
        await until_true(lambda: client.is_connected)


async def test_a_client_whose_last_bytes_are_lost_ends_all_the_same(own_nats: EmbeddedServer) -> None:
    """No subscription outlives a client that could not write its last message to a dead server."""

    async def ignore(_: object) -> None:
        pass

    client = BusClient()
    await client.connect(own_nats.url, error_cb=ignore)
    before = asyncio.all_tasks()
    await client.subscribe("any", cb=ignore)
    await own_nats.kill()
    await client.publish("any", b"last")
    with contextlib.suppress(OSError):
        await client.close()
    await until_true(lambda: asyncio.all_tasks() <= before)


async def _parts(url: str, access: BusAccess) -> None:
    client = BusClient()
    try:
        await connect(client, url, "test", access.options())
    finally:
        await client.close()


async def _commands(url: str, access: BusAccess) -> None:
    await connected(url, access, "test", [])


AUTHORITY = BusAccess(ca=ssl.get_default_verify_paths().cafile or "")
Way = Callable[[str, BusAccess], Awaitable[None]]
DEMANDS: Sequence[tuple[Way, str, BusAccess]] = (
    (_parts, "tls://placer:SECRET@{}", BusAccess()),
    (_commands, "tls://placer:SECRET@{}", AUTHORITY),
    (_parts, "nats://placer:SECRET@{}", AUTHORITY),
    (_parts, "nats://placer:SECRET@{},tls://placer:SECRET@{}", BusAccess()),
)


@pytest.mark.parametrize(("way", "form", "access"), DEMANDS)
async def test_no_password_goes_in_clear_text_where_tls_is_demanded(
    way: Way,
    form: str,
    access: BusAccess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server whose `INFO` has no TLS, or somebody on the way who took it out, receives nothing and is named."""
    received, tries = bytearray(), list[int]()
    monkeypatch.setattr("plimsoll_cli.events.CONNECT_S", PATIENCE_S)

    async def listens(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(1)
        writer.write(INFO.replace(b"{", b'{"auth_required":true,', 1))
        received.extend(await reader.read())

    async with _server(listens) as url:
        with capture_logs() as logs:
            address = url.removeprefix("nats://")
            asked = asyncio.ensure_future(way(form.format(address, address), access))
            await until_true(lambda: asked.done() or len(logs) > 0)
            asked.cancel()
            [result] = await asyncio.gather(asked, return_exceptions=True)
    assert tries, result
    assert not received
    assert "the server offers no TLS" in f"{result} {logs}"
    assert "SECRET" not in f"{result} {logs}"


async def test_tls_that_a_server_only_offers_is_taken_where_it_is_demanded() -> None:
    """A server that takes both is greeted by TLS, as by the other clients of NATS."""
    first = bytearray()

    async def offers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO.replace(b"{", b'{"tls_available":true,', 1))
        first.extend(await reader.read(1))

    async with _server(offers) as url:
        with pytest.raises(NoEventsError):
            await connected(url.replace("nats", "tls"), BusAccess(), "test", [])
    assert bytes(first[:1]) == HANDSHAKE
