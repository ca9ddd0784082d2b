"""The parameters of a request to the HTTP API, read as the table of routes says."""

import re
from typing import Final

from aiohttp import web

from plimsoll.part.errors import InputError
from plimsoll.placer_api.routes import MOST_ROWS, Query, Route

_WHOLE: Final = re.compile("[0-9]{1,9}", re.ASCII)


class QueryParameters:
    """The query of one request, checked."""

    def __init__(self, route: Route, request: web.Request) -> None:
        """Read it.

        Raises:
            InputError: a parameter stands twice, or is no number where it must be one.
        """
        self._numbers: dict[str, int] = {}
        self._texts: dict[str, str | None] = {}
        for query in route.query:
            given = request.query.getall(query.name, [])
            if len(given) > 1:
                raise InputError(query.name, given, "is given more than once", "give it once")
            text = given[0] if given else None
            if query.default is None:
                self._texts[query.name] = text
            else:
                self._numbers[query.name] = query.default if text is None else _number(query, text)

    def number(self, name: str) -> int:
        """A whole number; its default where the request has none."""
        return self._numbers[name]

    def text(self, name: str) -> str | None:
        """A text, or None."""
        return self._texts[name]


def _number(query: Query, text: str) -> int:
    if not _WHOLE.fullmatch(text) or not 1 <= int(text) <= MOST_ROWS:
        raise InputError(query.name, text, "cannot be", f"give a whole number from 1 to {MOST_ROWS}")
    return int(text)
