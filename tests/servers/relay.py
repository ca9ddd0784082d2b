"""A TCP relay before a server. A test can hold back all that the server sends, as a network does that fails."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CHUNK_BYTES = 1 << 16


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
        """Let nothing of the server arrive until the context ends. Then all of it arrives."""
        self._flows.clear()
        try:
            yield
        finally:
            self._flows.set()


@contextlib.asynccontextmanager
async def relay(url: str) -> AsyncIterator[Relay]:
    """Run a relay to the server at `url` until the context ends."""
    parts = urlsplit(url)
    flows: list[asyncio.Event] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            to_server = await asyncio.open_connection(parts.hostname, parts.port)
            up = asyncio.create_task(_pass(reader, to_server[1], None))
            try:
                await _pass(to_server[0], writer, flows[0])
            finally:
                up.cancel()
                to_server[1].close()
                writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        made = Relay(f"{parts.scheme}://127.0.0.1:{port}")
        made._flows.set()
        flows.append(made._flows)
        yield made


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event | None
) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            if flows is not None:
                await flows.wait()
            writer.write(chunk)
            await writer.drain()
    writer.close()
