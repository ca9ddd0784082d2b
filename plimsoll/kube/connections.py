"""Writes to the API server, over HTTP/1.1 connections that stay open.

A placer writes twice for each pod, and the requests were a fifth of its work: 0.2 ms of CPU each by aiohttp, which
serves every kind of address, redirect, cookie, encoding and stream, and 0.08 ms here. Reads and watches need some of
these and use aiohttp. llhttp (`httptools`) reads the answers.

What always holds: a connection has one request at a time, and the next one only after a whole answer. A connection
whose request was cancelled, or whose answer is damaged, is never used again. No request is sent twice.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import quote, urlsplit

import httptools

from plimsoll.kube.sockets import probe

KEEP_ALIVE_S: Final = 60.0
"""A connection that was idle for longer is not used again. The API server closes one after 90 s."""
READ_BYTES: Final = 2**14
"""The largest record of TLS."""
OTHER_ADDRESS_S: Final = 0.25
"""The time after which the next address of the server's name is tried beside the first."""
_AS_IT_IS: Final = "/:@!$&'()*+,;=~%"
"""The characters beside letters, digits and `_.-` that a path may have."""


class DamagedError(OSError):
    """The server's answer is not HTTP/1.1."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A whole answer.

    Attributes:
        status: HTTP status, 200 to 599.
        body: the body, without any encoding of the transfer.
        retry_after: the header `Retry-After`, or None.
        stays_open: whether the connection may have another request.
    """

    status: int
    body: bytes
    retry_after: str | None = None
    stays_open: bool = True


class Connections:
    """The connections to one server, opened as they are needed. Not thread-safe: one event loop owns it."""

    def __init__(self, server: str, tls: ssl.SSLContext, server_name: str | None, most: int) -> None:
        """Open nothing yet.

        Args:
            server: the server's address with its scheme, `http` or `https`, and perhaps the beginning of all paths.
            tls: for `https`.
            server_name: the name in the server's certificate; None: the host in the address.
            most: the most requests that are under way together; further ones wait.
        """
        address = urlsplit(server)
        is_secure = address.scheme == "https"
        self._host = address.hostname or ""
        self._port = address.port or (443 if is_secure else 80)
        self._tls = tls if is_secure else None
        self._server_name = (server_name or self._host) if is_secure else None
        self._prefix = address.path.rstrip("/")
        self._authority = address.netloc.rpartition("@")[2]
        self._permits = asyncio.Semaphore(most)
        self._idle: list[_Connection] = []  # the last used comes last
        self._all: set[_Connection] = set()

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        check: Callable[[], None] = lambda: None,
    ) -> HttpAnswer:
        """Send a request and return its answer, whatever its status.

        Cancelling abandons the request, which may have arrived then.

        Args:
            method: the method.
            target: path and query; the path begins with `/`.
            headers: none of `Host` and `Content-Length`.
            body: the body.
            check: called right before the request is sent; if it raises `OSError`, nothing is sent.

        Raises:
            OSError: there is no answer, or a damaged one; also what `check` raised.
        """
        head = self._head(method, target, headers, len(body))
        async with self._permits:
            connection = self._take_idle() or await self._open()
            try:
                check()
                answer = await connection.exchange(head + body)
            except BaseException:
                connection.abort()
                raise
            if answer.stays_open and connection.is_open:
                connection.idle_since_s = asyncio.get_running_loop().time()
                self._idle.append(connection)
            else:
                connection.abort()
            return answer

    def close(self) -> None:
        """Close all connections; a request under way fails."""
        for connection in tuple(self._all):
            connection.abort()

    def _head(self, method: str, target: str, headers: Mapping[str, str], body_bytes: int) -> bytes:
        path, mark, query = target.partition("?")
        lines = [f"{method} {self._prefix}{quote(path, _AS_IT_IS)}{mark}{query} HTTP/1.1"]
        lines += (f"{name}: {value}" for name, value in headers.items())
        if any("\n" in line or "\r" in line for line in lines):
            raise OSError("a header has more than one line: is the token whole, and nothing else?")
        lines += (f"Host: {self._authority}", f"Content-Length: {body_bytes}", "", "")
        return "\r\n".join(lines).encode()

    def _take_idle(self) -> "_Connection | None":
        oldest_s = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.idle_since_s >= oldest_s:
                return connection
            connection.abort()
        return None

    async def _open(self) -> "_Connection":
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._forget),
            self._host,
            self._port,
            ssl=self._tls,
            server_hostname=self._server_name,
            happy_eyeballs_delay=OTHER_ADDRESS_S,
        )
        probe(transport.get_extra_info("socket"))
        self._all.add(connection)
        return connection

    def _forget(self, connection: "_Connection") -> None:
        self._all.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.BufferedProtocol):
    """A connection. Methods without a docstring are asyncio's (`BufferedProtocol`) and httptools' (`HTTPProtocol`).

    Attributes:
        idle_since_s: the time of the last answer, on the loop's clock.
    """

    def __init__(self, on_lost: "Callable[[_Connection], None]") -> None:
        self.idle_since_s = 0.0
        self._on_lost = on_lost
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._awaited: asyncio.Future[HttpAnswer] | None = None
        self._end: Exception | None = None
        self._whole: HttpAnswer | None = None
        self._body: list[bytes] = []
        self._retry_after: str | None = None
        self._has_size = self._stays_open = self._is_whole_at_the_end = False

    @property
    def is_open(self) -> bool:
        """Whether the connection may have a request."""
        return self._transport is not None and self._end is None

    async def exchange(self, request: bytes) -> HttpAnswer:
        """Send a request, in this step of the event loop, and wait for its answer."""
        if self._transport is None or self._end is not None:
            raise ConnectionResetError("the connection was closed") from self._end
        self._awaited = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._awaited
        finally:
            self._awaited = None

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
        self._on_lost(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        try:
            if self._awaited is None:
                raise DamagedError("an answer came without a request")
            self._parser.feed_data(self._buffer[:nbytes])
        except (DamagedError, httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._lose(DamagedError(f"the answer is damaged: {error}"))
            self.abort()
            return
        self._give()

    def eof_received(self) -> None:
        if self._is_whole_at_the_end:
            self.on_message_complete()
            self._give()
        self._lose(ConnectionResetError("the server closed the connection"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(exc or ConnectionResetError("the connection was closed"))

    def on_message_begin(self) -> None:
        if self._whole is not None:
            raise DamagedError("a second answer came")
        self._body, self._retry_after, self._has_size = [], None, False
        self._is_whole_at_the_end = False

    def on_header(self, name: bytes, value: bytes) -> None:
        match name.lower():
            case b"retry-after":
                self._retry_after = value.decode("latin-1")
            case b"content-length" | b"transfer-encoding":
                self._has_size = True

    def on_headers_complete(self) -> None:
        self._stays_open = self._parser.should_keep_alive()
        self._is_whole_at_the_end = not self._has_size

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._is_whole_at_the_end = False
        status = self._parser.get_status_code()
        if status >= 200:  # else the final answer follows
            self._whole = HttpAnswer(status, b"".join(self._body), self._retry_after, self._stays_open)

    def _give(self) -> None:
        whole, self._whole = self._whole, None
        if whole is not None and self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(whole)

    def _lose(self, error: Exception) -> None:
        self._end = self._end or error
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(error)
        self._on_lost(self)
