"""TCP relays before servers: one that a test can hold, as a network fails, and one that adds TLS."""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16
HANDSHAKE = b"\x16"
"""The first byte of a TLS connection."""


@dataclass(slots=True)
class Relay:
    """The way of clients to a server.

    Attributes:
        url: the relay's address, in the form of the server's.
    """

    url: str
    _flows: asyncio.Event = field(default_factory=asyncio.Event)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Let nothing of the server arrive until the context ends. Then all held data arrives."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()


@contextlib.asynccontextmanager
async def relay(url: str) -> AsyncIterator[Relay]:
    """Run a relay to the server at `url` until the context ends."""
    parts = urlsplit(url)
    assert parts.port is not None
    port, flows = parts.port, asyncio.Event()
    flows.set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _join(reader, writer, port, flows)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Relay(f"{parts.scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}", flows)


@dataclass(slots=True)
class TlsRelay:
    """The way of clients to a server that has no TLS of its own.

    Attributes:
        port: the relay's.
        encrypted: the connections with TLS so far.
        plain: those without, which the relay passes on too.
    """

    port: int
    encrypted: int = 0
    plain: int = 0


@contextlib.asynccontextmanager
async def tls_relay(port: int, tls: ssl.SSLContext) -> AsyncIterator[TlsRelay]:
    """Run a relay to this port of this machine until the context ends; it takes connections with and without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)  # for the event loop
        made = TlsRelay(listener.getsockname()[1])
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(_accept(listener, made, port, tls, tasks))
            try:
                yield made
            finally:
                accepting.cancel()


async def _accept(
    listener: socket.socket, made: TlsRelay, port: int, tls: ssl.SSLContext, tasks: asyncio.TaskGroup
) -> None:
    loop = asyncio.get_running_loop()
    served: list[asyncio.Task[None]] = []
    try:
        while True:
            connection, _ = await loop.sock_accept(listener)
            served.append(tasks.create_task(_serve(connection, made, port, tls)))
    finally:
        for task in served:
            task.cancel()


async def _serve(connection: socket.socket, made: TlsRelay, port: int, tls: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(connection, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(connection)
    is_encrypted = connection.recv(1, socket.MSG_PEEK) == HANDSHAKE
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=tls if is_encrypted else None
        )
    except (ssl.SSLError, OSError):
        return  # the client did not take the certificate
    made.encrypted += is_encrypted
    made.plain += not is_encrypted
    flows = asyncio.Event()
    flows.set()
    await _join(reader, asyncio.StreamWriter(transport, protocol, reader, loop), port, flows)


async def _join(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int, flows: asyncio.Event
) -> None:
    """Pass all bytes in both ways until one side ends; those of the server only while `flows` is set."""
    with contextlib.suppress(OSError):
        from_server, to_server = await asyncio.open_connection("127.0.0.1", port)
        up = asyncio.create_task(_pass(reader, to_server))
        try:
            await _pass(from_server, writer, flows)
        finally:
            up.cancel()
            to_server.close()
            writer.close()


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event | None = None
) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            if flows is not None:
                await flows.wait()
            writer.write(chunk)
            await writer.drain()
    writer.close()
