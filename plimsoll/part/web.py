"""The HTTP server of every part: routes on a TCP port until a context ends.

What always holds: a port that cannot be opened is refused as a bad setting, by its variable's name. Requests under
way delay a part's end by `SHUTDOWN_S` at most. A client that sends half a request, or many connections, is bounded by
`plimsoll.part.connections`. A request that is no HTTP leaves no line in the log.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from aiohttp.typedefs import Middleware
from aiohttp.web_protocol import RequestPayloadError
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from plimsoll.part.accepting import Acceptor
from plimsoll.part.connections import CONNECTION, Connections
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

SHUTDOWN_S: Final = 2.0
"""The longest time for which a request under way may delay a part's end."""

BODY_BYTES: Final = 1024**2
"""The longest request body, unless the caller allows more."""

BACKLOG: Final = 128
"""Connections that may wait to be accepted."""

log = get_logger()


@contextlib.asynccontextmanager
async def serving(
    routes: Sequence[web.RouteDef],
    listeners: Sequence[socket.socket],
    *,
    body_bytes: int = BODY_BYTES,
    middlewares: Sequence[Middleware] = (),
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[None]:
    """Serve these routes on listening sockets, which are closed with the context.

    Args:
        routes: the routes to serve.
        listeners: of `open_tcp`, or UNIX sockets that do not block.
        body_bytes: the longest body of a request.
        middlewares: wrap the handlers of all requests.
        tls: the server's side of TLS; None for plain HTTP.
    """
    connections = Connections(tls)
    app = web.Application(client_max_size=body_bytes, middlewares=(connections.watch, *middlewares))
    app.add_routes(routes)
    server_logger.addFilter(_is_no_damage)
    # aiohttp's own time limit never applies, because `Connections` has a shorter one for each state.
    runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_S, access_log=None)
    await runner.setup()
    connections.server = runner.server
    acceptors = [Acceptor(listener, connections.take_in, log.error) for listener in listeners]
    tasks = [asyncio.create_task(acceptor.run(), name="acceptor") for acceptor in acceptors]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await runner.cleanup()
        connections.end()


async def open_tcp(host: str, port: int, variable: str) -> list[socket.socket]:
    """Listening sockets for a TCP port, one for each address of `host`.

    Args:
        host: an address or a name of this machine; empty for all addresses.
        port: a TCP port, or 0 for any free one.
        variable: the setting that named the port.

    Raises:
        InputError: the port is taken, or the address is not one of this machine.
    """
    loop, opened = asyncio.get_running_loop(), list[socket.socket]()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, address) for family, _, _, _, address in found):
            opened.append(socket.create_server(address, family=family, backlog=BACKLOG))
            opened[-1].setblocking(False)  # noqa: FBT003 - the standard library's own signature
    except (OSError, UnicodeError) as error:  # UnicodeError: an impossible host name
        for listener in opened:
            listener.close()
        problem = f"cannot be served at {host} ({error})"
        raise InputError(variable, port, problem, "choose a free port, or 0 for any") from error
    return opened


def port_of(listeners: Sequence[socket.socket]) -> int:
    """The port of listening TCP sockets."""
    return int(listeners[0].getsockname()[1])


def _is_no_damage(record: logging.LogRecord) -> bool:
    """Whether a line is about anything but a damaged request, whose unbounded lines would quote headers."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | RequestPayloadError)


async def read_body(request: web.Request) -> bytes:
    """The body of a request, for which its connection has `BODY_S`. Cancelling loses it.

    Raises:
        web.HTTPRequestEntityTooLarge: the body is longer than the server allows.
        web.HTTPBadRequest: the client left in the middle of its body, so nobody reads the answer, or the body is not
            encoded as its headers say.
    """
    connection = request.get(CONNECTION)
    if connection is not None:
        connection.waits_for_body()
    try:
        return await request.read()
    except (ConnectionError, RequestPayloadError) as error:
        raise web.HTTPBadRequest(text="the body is incomplete or wrongly encoded\n") from error
    finally:
        if connection is not None:
            connection.works()


@contextlib.asynccontextmanager
async def serving_tcp(
    routes: Sequence[web.RouteDef],
    host: str,
    port: int,
    variable: str,
    middlewares: Sequence[Middleware] = (),
) -> AsyncIterator[int]:
    """Serve on a TCP port until the context ends; yields the port's number, also where 0 was given.

    Args:
        routes: the routes to serve.
        host: an address of this machine.
        port: a TCP port, or 0 for any free one.
        variable: the setting that named the port.
        middlewares: wrap the handlers of all requests.

    Raises:
        InputError: the port is taken, or the address is not one of this machine.
    """
    listeners = await open_tcp(host, port, variable)
    number = port_of(listeners)
    async with serving(routes, listeners, middlewares=middlewares):
        yield number


@contextlib.asynccontextmanager
async def serving_health(
    registry: CollectorRegistry,
    missing: Callable[[], Sequence[str]],
    host: str,
    port: int | None,
    variable: str,
) -> AsyncIterator[None]:
    """Serve `/metrics`, `/healthz` and `/readyz` on a TCP port until the context ends; nothing without a port.

    Args:
        registry: the part's metrics.
        missing: names what keeps the part from its work now, for people; nothing while it is ready.
        host: as for `serving_tcp`.
        port: likewise, or None.
        variable: likewise.

    Raises:
        InputError: as `serving_tcp`.
    """
    if port is None:
        yield
        return

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def ready(_: web.Request) -> web.Response:
        lacks = missing()
        return web.Response(status=503 if lacks else 200, text="\n".join(lacks or ["ok"]) + "\n")

    routes = [
        web.get("/metrics", make_aiohttp_handler(registry)),
        web.get("/healthz", healthy),
        web.get("/readyz", ready),
    ]
    async with serving_tcp(routes, host, port, variable) as opened:
        log.info("http ready", address=host, port=opened)
        yield
