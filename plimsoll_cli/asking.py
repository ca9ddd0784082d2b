"""A connection to the placer that a command's user named, or that a kubeconfig's cluster has."""

import contextlib
import os
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.settings import check_url, shown_url
from plimsoll.placer_api.access import check_token, read_token
from plimsoll.placer_api.client import PlacerAwayError, PlacerClient
from plimsoll.placer_api.ways import Direct
from plimsoll_cli.output import named_if_slow, note

if TYPE_CHECKING:
    from plimsoll_cli.service_proxy import PlacerService

Where: TypeAlias = "str | PlacerService"
"""The URL of a placer, the path of its control socket, or the placer of a cluster."""

TIMEOUT_S: Final = 30.0
"""The longest time for an answer. On 20 000 nodes an explanation may take some seconds, and others come before it."""

NAMED: Final = "--placer or PLIMSOLL_PLACER_URL"
TOKEN: Final = "PLIMSOLL_PLACER_TOKEN"  # noqa: S105 - names of variables
TOKEN_FILE: Final = "PLIMSOLL_PLACER_TOKEN_FILE"  # noqa: S105 - likewise

_HOST_PORT: Final = re.compile(r"([\w.-]+|\[[0-9a-fA-F:]+\]):\d+/?")

WHERE: Final = (
    "name the placer with --placer or PLIMSOLL_PLACER_URL: the URL of its PLIMSOLL_HTTP_PORT (http://127.0.0.1:8080 "
    "after `kubectl port-forward`), or the path of its control socket; or give a kubeconfig with --kubeconfig or "
    "KUBECONFIG, and the placer of its cluster is asked"
)


class NoPlacerError(PlimsollError):
    """No placer was named, or none answers there."""


@contextlib.asynccontextmanager
async def asking(where: Where, *, notes: bool = True) -> AsyncIterator[PlacerClient]:
    """A client of a placer, for the time of some requests.

    Args:
        where: the placer.
        notes: write to standard error what the placer lacks now, so that nobody takes old answers for new ones.

    Raises:
        NoPlacerError: nothing names a placer, or a request was not answered.
        InputError: the URL, the kubeconfig or the token is malformed.
    """
    try:
        async with connected(where, TIMEOUT_S) as placer:
            yield placer
            if notes:
                await _note_missing(placer)
    except PlacerAwayError as error:
        raise NoPlacerError(f"no placer answers at {shown_place(where)}: {error}") from error


async def _note_missing(placer: PlacerClient) -> None:
    with contextlib.suppress(PlimsollError):  # the answer has come already
        if missing := await placer.missing():
            note(f"plimsoll: the placer is not ready ({'; '.join(missing)}), so this may be out of date")


def shown_place(where: Where) -> str:
    """The placer for messages, without a password in its URL."""
    return shown_url(where) if isinstance(where, str) else str(where)


@contextlib.asynccontextmanager
async def connected(where: Where, timeout_s: float) -> AsyncIterator[PlacerClient]:
    """A client of a placer, which raises its own errors.

    Raises:
        NoPlacerError: nothing names a placer.
        InputError: as of `asking`.
    """
    async with contextlib.AsyncExitStack() as stack:
        token = token_of(os.environ)
        if not isinstance(where, str):
            from plimsoll_cli.service_proxy import ServiceProxy  # noqa: PLC0415 - takes long, and is seldom needed

            client = PlacerClient(ServiceProxy(where, token), timeout_s)
        else:
            if not where:
                raise NoPlacerError(WHERE)
            if _HOST_PORT.fullmatch(where):
                raise InputError(
                    NAMED, where, "has no scheme", f"write http://{where}, or ./{where} for a socket"
                )
            if "://" in where:
                check_url(NAMED, where, ("http", "https"))
            named = partial(named_if_slow, f"the placer at {shown_url(where)}")
            client = PlacerClient(Direct(where, token, named), timeout_s)
        try:
            await stack.enter_async_context(client)
        except InputError as error:
            if error.value is None:  # no kubeconfig was named, and none is there
                raise NoPlacerError(WHERE) from error
            raise
        yield client


def token_of(environment: Mapping[str, str]) -> str | None:
    """The token for the placer; None where there is none. Blocks.

    Raises:
        InputError: a variable holds no token, or names a file without one; or both are set.
    """
    token, file = environment.get(TOKEN, ""), environment.get(TOKEN_FILE, "")
    if token and file:
        raise InputError(TOKEN_FILE, file, f"is set beside {TOKEN}", "leave one of both out")
    if file:
        return read_token(TOKEN_FILE, Path(file))
    return check_token(TOKEN, token) if token else None
