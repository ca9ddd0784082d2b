"""A connection to the placer that a command's user named."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.settings import check_url, shown_url
from plimsoll.placer_api.client import PlacerAwayError, PlacerClient

TIMEOUT_S: Final = 60.0
"""The longest time for an answer. On 20 000 nodes an explanation may take some seconds, and others come before it."""

WHERE: Final = (
    "name the placer with --placer or PLIMSOLL_PLACER_URL: the URL of its PLIMSOLL_HTTP_PORT (http://127.0.0.1:8080 "
    "after `kubectl port-forward`), or the path of its control socket"
)


class NoPlacerError(PlimsollError):
    """No placer was named, or none answers there."""


@contextlib.asynccontextmanager
async def asking(where: str) -> AsyncIterator[PlacerClient]:
    """A client of a placer, for the time of some requests.

    Args:
        where: the URL of a placer, or the path of its control socket.

    Raises:
        NoPlacerError: `where` is empty or no URL, or a request was not answered.
    """
    if not where:
        raise NoPlacerError(WHERE)
    if "://" in where:
        try:
            check_url("--placer or PLIMSOLL_PLACER_URL", where, ("http", "https"))
        except InputError as error:
            raise NoPlacerError(str(error)) from error
    async with PlacerClient(where, TIMEOUT_S) as placer:
        try:
            yield placer
        except PlacerAwayError as error:
            raise NoPlacerError(f"no placer answers at {shown_url(where)}: {error}; {WHERE}") from error
