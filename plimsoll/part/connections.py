"""The connections of a part's web port: how long one may take for a request, and how many there may be.

What always holds: a connection waits while the server waits for its client: for the TLS handshake, the header of a
request, or its body. It has a deadline then, and ends at it. Otherwise a handler is at work for it, and there is no
deadline. Where there are too many connections, the one that has waited longest ends. So clients that send half a
request, or nothing, cost little and keep nobody out.
"""

import asyncio
import resource
import socket
import ssl
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

HEADER_S: Final = 10.0
"""Seconds from a connection's beginning for the TLS handshake and the header of the first request; and for the header
of a later request from its first byte on."""

BODY_S: Final = 10.0
"""Seconds for the body of a request. kube-apiserver gives a webhook as long for the whole answer."""

IDLE_S: Final = 75.0
"""Seconds for which a connection may stay open between two requests. Prometheus comes each 15 to 60 s."""

CONNECTIONS_AT_MOST: Final = 512
"""Connections of a port, where the limit on open files allows them."""


class Connections:
    """The connections of a port. `waiting` and `at_work` have them in the order in which they became so."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        """Speak TLS where a context is given."""
        self.server: web.Server | None = None
        self.tls = tls
        self.waiting: dict[_Connection, None] = {}
        self.at_work: dict[_Connection, None] = {}
        self.by_protocol: dict[asyncio.BaseProtocol, _Connection] = {}

    def take_in(self, accepted: socket.socket) -> None:
        """Serve an accepted socket; others make room for it."""
        most = max(1, min(CONNECTIONS_AT_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        while len(self.by_protocol) >= most:
            next(iter(self.waiting or self.at_work)).end()
        assert self.server is not None, "set up before the port is open"
        _Connection(self, self.server(), accepted)

    @web.middleware
    async def watch(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Know that a request is whole but for its body, and when it was answered; the outermost middleware."""
        connection = self.by_protocol.get(request.protocol)
        if connection is None:  # It has ended; the handler finds out as it reads or writes.
            return await handler(request)
        request[CONNECTION] = connection
        connection.works()
        try:
            return await handler(request)
        finally:
            connection.waits_for_request()

    def end(self) -> None:
        """End all connections."""
        for connection in tuple(self.by_protocol.values()):
            connection.end()


class _Connection(asyncio.Protocol):
    """A connection, between its transport and aiohttp's protocol."""

    def __init__(self, all_: Connections, protocol: asyncio.Protocol, accepted: socket.socket) -> None:
        self._all = all_
        self._protocol = protocol
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._is_idle = False
        all_.by_protocol[protocol] = self
        self._wait(HEADER_S)
        self._opening = asyncio.get_running_loop().create_task(self._open(accepted), name="connection")

    async def _open(self, accepted: socket.socket) -> None:
        loop, tls = asyncio.get_running_loop(), self._all.tls
        try:
            await loop.connect_accepted_socket(lambda: self, accepted, ssl=tls)
        except OSError:  # The client left, or speaks no TLS.
            self.end()
        finally:
            if self._transport is None:
                accepted.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._is_idle:
            self._wait(HEADER_S)
        self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        self._protocol.connection_lost(exc)

    def end(self) -> None:
        """End the connection at once."""
        self._forget()
        if self._transport is None:
            self._opening.cancel()
        else:
            self._transport.abort()

    def works(self) -> None:
        """A handler is at work from now on, until the connection waits again."""
        self._leave_state()
        if self._protocol in self._all.by_protocol:
            self._all.at_work[self] = None

    def waits_for_body(self) -> None:
        """The server waits for the rest of a request."""
        self._wait(BODY_S)

    def waits_for_request(self) -> None:
        """The server waits for the next request, and for the client to take the last answer."""
        self._wait(IDLE_S)
        self._is_idle = True

    def _wait(self, most_s: float) -> None:
        self._leave_state()
        if self._protocol in self._all.by_protocol:
            self._all.waiting[self] = None
            self._deadline = asyncio.get_running_loop().call_later(most_s, self.end)

    def _forget(self) -> None:
        self._leave_state()
        self._all.by_protocol.pop(self._protocol, None)

    def _leave_state(self) -> None:
        self._is_idle = False
        self._all.waiting.pop(self, None)
        self._all.at_work.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


CONNECTION: Final = web.RequestKey("connection", _Connection)
"""The key of a request under which its connection is."""
