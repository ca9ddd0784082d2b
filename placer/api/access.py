"""Decides who may read the placer's TCP port: anybody, holders of one token, or users of the cluster.

What always holds: only health and the files of the live page are open to all. A request that cannot be judged gets
503, never an answer. Tokens are compared in constant time, and stand in no log and no message. A stream is judged
again while it is open.
"""

import asyncio
import functools
import hmac
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from placer.live import site
from plimsoll.part.causes import Outage
from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.log import get_logger
from plimsoll.part.settings import PREFIX
from plimsoll.placer_api.access import AUTHORIZATION, PROXIED, TOKEN, read_token
from plimsoll.placer_api.http import Problem
from plimsoll.placer_api.routes import JSON, ROUTES

OPEN_PATHS: Final = frozenset({"/", *(route.path for route in ROUTES if route.is_open)})

FILE_S: Final = 1.0
"""Seconds for which a token that was read from its file is good: a flood of requests is no flood of reads."""

_BEARER: Final = re.compile(rf"bearer +({TOKEN.pattern})", re.IGNORECASE)

NOT_SENT: Final = (
    "Authorization: no bearer token was sent; send `Authorization: Bearer TOKEN`. The commands read a token from "
    "PLIMSOLL_PLACER_TOKEN, or from the file that PLIMSOLL_PLACER_TOKEN_FILE names"
)
NOT_ACCEPTED: Final = "Authorization: the token is not accepted; get a new one from whoever runs the placer"

AGAIN: Final = web.RequestKey("AGAIN", functools.partial)
"""Judges the request's reader once more, as `Access.check`; absent where everybody may read."""

log = get_logger()


class UnknownReaderError(PlimsollError):
    """The token is unknown, or has expired."""


class ForbiddenReaderError(PlimsollError):
    """The reader is known, and may not read the path."""


class CannotJudgeError(PlimsollError):
    """Nobody can say now whether the token is good."""


class Access(Protocol):
    """Judges readers."""

    async def check(self, token: str, path: str) -> None:
        """Return if the token's owner may read the path. Cancelling is harmless.

        Raises:
            UnknownReaderError: the token is not accepted.
            ForbiddenReaderError: its owner may not read the path; the message names both.
            CannotJudgeError: that cannot be known now.
        """


@dataclass(slots=True)
class TokenFile:
    """The token in a file: whoever replaces the file replaces the token, within `FILE_S`."""

    path: Path
    _token: str = ""
    _read_s: float = -FILE_S
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _outage: Outage = field(default_factory=lambda: Outage(log.warning))

    async def check(self, token: str, path: str) -> None:  # noqa: ARG002 - one token reads every path
        """See `Access`."""
        async with self._lock:
            now_s = asyncio.get_running_loop().time()
            if now_s - self._read_s >= FILE_S:
                self._token = await self._newest()
                self._read_s = now_s
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise UnknownReaderError(NOT_ACCEPTED)

    async def _newest(self) -> str:
        try:
            token = await asyncio.to_thread(self.read)
        except InputError as error:
            self._outage.failed("readers of the HTTP port cannot be judged", str(error))
            raise CannotJudgeError(
                "the placer has no token to compare with; its log has the cause"
            ) from error
        self._outage.ended()
        return token

    def read(self) -> str:
        """The token. Blocks.

        Raises:
            InputError: there is no token in the file.
        """
        return read_token(PREFIX + "HTTP_TOKEN_FILE", self.path)


def guard(access: Access) -> Middleware:
    """Let requests through that `access` allows, and those for paths that are open to all.

    The route that was found decides, not the text of the path, which has many spellings. A path without a route
    is let through to its 404.
    """

    @web.middleware
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        if resource is not None and not _is_open(resource.canonical):
            refusal = await _refusal(access, request)
            if refusal is not None:
                return refusal
        return await handler(request)

    return checked


def _is_open(canonical: str) -> bool:
    return canonical in OPEN_PATHS or canonical.startswith(site.PREFIX)


async def _refusal(access: Access, request: web.Request) -> web.Response | None:
    given = [value for name in (AUTHORIZATION, PROXIED) for value in request.headers.getall(name, [])]
    bearer = _BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
    if bearer is None:
        return _unauthorized(NOT_SENT, "")
    again = functools.partial(access.check, bearer[1], request.path)
    try:
        await again()
    except UnknownReaderError as error:
        return _unauthorized(str(error), ', error="invalid_token"')
    except ForbiddenReaderError as error:
        return _problem(403, str(error))
    except CannotJudgeError as error:
        return _problem(503, str(error))
    request[AGAIN] = again
    return None


def _unauthorized(message: str, error: str) -> web.Response:
    answer = _problem(401, message)
    answer.headers["WWW-Authenticate"] = f'Bearer realm="plimsoll"{error}'
    return answer


def _problem(status: int, message: str) -> web.Response:
    body = msgspec.json.encode(Problem(message=message))
    return web.Response(body=body, status=status, content_type=JSON, headers={"Cache-Control": "no-store"})
