"""Passes questions that only the placer that leads can answer on to it, where this one follows.

A follower sees every pod and node, but no attempt, and no pod's place in the queue. One that has just started has not
seen all nodes either. What always holds: a question is
passed on once. It carries the reader's own token, so nobody reads more by this way. Where the leader does not answer,
this placer answers with what it knows, and says that it follows.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import aiohttp
from aiohttp import web

from plimsoll.part.log import get_logger
from plimsoll.placer_api.access import AUTHORIZATION, PROXIED

FORWARDED: Final = "X-Plimsoll-Forwarded"
"""The header of a question that was passed on."""

CONNECT_S: Final = 2.0
ANSWER_S: Final = 15.0
"""Seconds for the connection, and for the whole answer: on 20 000 nodes an explanation may take some seconds. The
reader waits longer, so it gets this placer's own answer from a leader that stands still."""

ANSWERS: Final = frozenset({200, 400, 404, 503})
"""The statuses that answer the question. Any other, such as 401 for a reader of this placer's socket, does not."""

log = get_logger()

Q = TypeVar("Q")
Answer = Callable[[web.Request, Q], Awaitable[web.StreamResponse]]
Leader = Callable[[], str | None]
"""Gives the URL of the placer that leads; None where this one leads, or none is known."""


def by_leader(answer: Answer[Q], leader: Leader, *, wants: Callable[[], bool] = lambda: True) -> Answer[Q]:
    """The handler that asks the leader first, while `wants` says so."""

    @functools.wraps(answer)
    async def handler(request: web.Request, query: Q) -> web.StreamResponse:
        url = leader() if FORWARDED not in request.headers and wants() else None
        found = await _asked(url, request) if url is not None else None
        return found if found is not None else await answer(request, query)

    return handler


async def _asked(url: str, request: web.Request) -> web.Response | None:
    """The leader's answer; None if it has none."""
    headers = {name: request.headers[name] for name in (AUTHORIZATION, PROXIED) if name in request.headers}
    timeout = aiohttp.ClientTimeout(total=ANSWER_S, sock_connect=CONNECT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(
                f"{url}{request.rel_url.raw_path_qs}",
                headers={**headers, FORWARDED: "1"},
                allow_redirects=False,
            ) as response,
        ):
            body = await response.read()
    except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
        log.info("the placer that leads does not answer", url=url, error=str(error) or type(error).__name__)
        return None
    if response.status not in ANSWERS:
        log.info("the placer that leads does not answer", url=url, status=response.status)
        return None
    return web.Response(status=response.status, body=body, content_type=response.content_type)
