"""The ways on which a client's requests reach its placer."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import aiohttp
from yarl import URL

from plimsoll.placer_api.access import AUTHORIZATION, bearer

LONGEST_LINE_BYTES: Final = 1 << 22
"""A message of the stream is one line: 16 nodes of 16 GPUs with 64 pods each have 3 MiB."""

Query = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class PlacerRequest:
    """A request.

    Attributes:
        path: encoded, without the query.
        timeout: its limits of time.
    """

    method: str
    path: str
    timeout: aiohttp.ClientTimeout
    query: Query
    body: bytes | None = None


class Way(Protocol):
    """Sends requests, inside of its own context."""

    async def __aenter__(self) -> Self:
        """Open it; nothing is sent."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""

    def sent(self, request: PlacerRequest) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The answer to a request, whatever its status, open while the context lasts."""


class Direct:
    """To a control socket, or to a URL.

    Args:
        where: the path of the socket, or the `http://` URL.
        token: a bearer token, which is sent to the URL and never to a socket, nor anywhere else; None for none.
        waiting: makes the context in which a request waits for its answer.
    """

    def __init__(
        self,
        where: Path | str,
        token: str | None = None,
        waiting: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._is_url = str(where).startswith(("http://", "https://"))
        self._where = where
        self._waiting = waiting
        self._base = str(where).rstrip("/") if self._is_url else "http://placer"
        self._token = token if self._is_url else None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the session."""
        connector = None if self._is_url else aiohttp.UnixConnector(str(self._where))
        headers = {AUTHORIZATION: bearer(self._token)} if self._token is not None else {}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()

    @contextlib.asynccontextmanager
    async def sent(self, request: PlacerRequest) -> AsyncIterator[aiohttp.ClientResponse]:
        """See `Way`. A placer never sends anybody elsewhere, so a redirection is not followed."""
        assert self._session is not None, "used outside its context"
        url = URL(self._base + request.path, encoded=True).update_query(request.query)
        with self._waiting():
            response = await self._session.request(
                request.method,
                url,
                data=request.body,
                timeout=request.timeout,
                allow_redirects=False,
                read_bufsize=LONGEST_LINE_BYTES,
            )
        async with response:
            yield response
