"""The HTTP server of every part: routes on a TCP port until a context ends.

What always holds: a port that cannot be opened is refused as a bad setting, by its variable's name. Requests under
way delay a part's end by `SHUTDOWN_S` at most. A client that sends no whole request costs a connection for `IDLE_S`,
and all clients of a port have `CONNECTIONS_AT_MOST`. A request that is no HTTP leaves no line in the log.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.log import server_logger
from aiohttp.typedefs import Middleware
from aiohttp.web_protocol import RequestPayloadError
from prometheus_client import CollectorRegistry
from prometheus_client.aiohttp import make_aiohttp_handler

from plimsoll.part.errors import InputError

SHUTDOWN_S: Final = 2.0
"""The longest time for which a request under way may delay a part's end."""

BODY_BYTES: Final = 1024**2
"""The longest request body, unless the caller allows more."""

IDLE_S: Final = 75.0
"""Seconds for which a connection may stay open without a whole request, at its beginning and between two requests.
Prometheus comes each 15 to 60 s."""

CONNECTIONS_AT_MOST: Final = 512
"""Connections of a TCP port. A further one closes the oldest, so that probes are answered however many stay open."""

log = structlog.get_logger("plimsoll.part.web")


@contextlib.asynccontextmanager
async def serving(
    routes: Sequence[web.RouteDef], body_bytes: int = BODY_BYTES, middlewares: Sequence[Middleware] = ()
) -> AsyncIterator[web.AppRunner]:
    """Run these routes until the context ends; the caller adds sites to the runner."""
    app = web.Application(client_max_size=body_bytes, middlewares=middlewares)
    app.add_routes(routes)
    server_logger.addFilter(_is_no_damage)
    runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_S, access_log=None, keepalive_timeout=IDLE_S)
    await runner.setup()
    try:
        yield runner
    finally:
        await runner.cleanup()


def _is_no_damage(record: logging.LogRecord) -> bool:
    """Whether a line is about anything but a damaged request, whose line would quote headers, with tokens in them."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


async def read_body(request: web.Request) -> bytes:
    """The body of a request. Cancelling loses it.

    Raises:
        web.HTTPRequestEntityTooLarge: the body is longer than the server allows.
        web.HTTPBadRequest: the client left in the middle of its body, so nobody reads the answer, or the body is not
            encoded as its headers say.
    """
    try:
        return await request.read()
    except (ConnectionError, RequestPayloadError) as error:
        raise web.HTTPBadRequest(text="the body is incomplete or wrongly encoded\n") from error


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
    async with serving(routes, middlewares=middlewares) as runner:
        assert runner.server is not None, "set up by `serving`"
        try:
            listening = await asyncio.get_running_loop().create_server(_bounded(runner.server), host, port)
        except (OSError, UnicodeError) as error:  # UnicodeError: an impossible host name
            problem = f"cannot be served at {host} ({error})"
            raise InputError(variable, port, problem, "choose a free port, or 0 for any") from error
        try:
            yield int(listening.sockets[0].getsockname()[1])
        finally:
            listening.close()


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


def _bounded(server: web.Server) -> Callable[[], asyncio.Protocol]:
    """Makes the protocol of each connection; the oldest connections go where there are too many."""

    def connection() -> asyncio.Protocol:
        opened = [one.transport for one in server.connections if one.transport is not None]
        for oldest in opened[: max(0, len(opened) - CONNECTIONS_AT_MOST + 1)]:
            oldest.abort()
        return server()

    return connection
