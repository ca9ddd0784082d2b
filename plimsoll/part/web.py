"""HTTP as every part serves it: routes on a TCP port until a context ends.

What always holds: a port that cannot be had is a setting that cannot work, told by its variable's name; what is
under way may keep a part from ending for a moment only.
"""

import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Final

from aiohttp import web

from plimsoll.part.errors import InputError

SHUTDOWN_S: Final = 2.0
"""How long a request under way may keep a part from ending."""

BODY_BYTES: Final = 1024**2
"""The longest body of a request, unless more is expected."""


@contextlib.asynccontextmanager
async def serving(
    routes: Sequence[web.RouteDef], body_bytes: int = BODY_BYTES
) -> AsyncIterator[web.AppRunner]:
    """A runner of these routes, to which sites are added, until the context ends."""
    app = web.Application(client_max_size=body_bytes)
    app.add_routes(routes)
    runner = web.AppRunner(app, shutdown_timeout=SHUTDOWN_S, access_log=None)
    await runner.setup()
    try:
        yield runner
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def serving_tcp(
    routes: Sequence[web.RouteDef], host: str, port: int, variable: str
) -> AsyncIterator[int]:
    """Serve on a TCP port until the context ends; gives the port, also where 0 was asked for.

    Args:
        routes: what is served.
        host: an address of this machine.
        port: 0 for any free one.
        variable: the setting that named the port.

    Raises:
        InputError: the port is taken, or the address is none of this machine.
    """
    async with serving(routes) as runner:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            problem = f"cannot be served at {host} ({error})"
            raise InputError(variable, port, problem, "choose a free port, or 0 for any") from error
        yield int(runner.addresses[0][1])
