"""The credentials of requests to the API server, renewed once for all requests, and before they expire.

An exec plugin may take seconds, and a leader's renewal of its Lease has less than one. What always holds: at most
one renewal is under way. While the old token is good, no request waits for a renewal. A request that gives up waiting
does not end the renewal. Reading a token's file never blocks the event loop.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from plimsoll.kube.exec_plugin import CredentialsError, ExecPlugin, ExecStatus
from plimsoll.part.backoff import Pauses
from plimsoll.part.log import get_logger

EARLY_S: Final = 300.0
"""A token is renewed this long before it expires, or in the middle of its life where that comes later."""
SHORTEST_LIFE_S: Final = 10.0
"""A token that expires earlier counts as good for this long. Its issuer's clock may differ from ours, and the API
server refuses a token that has really expired."""
REREAD_S: Final = 30.0
"""A token's file is read again after this time: the kubelet replaces the token in the file."""
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
"""Bounds of the pause after a renewal, which doubles with each failure in a row."""

SERVICE_TOKEN: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
"""The token of a pod's own service account."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class Token:
    """A token as it came.

    Attributes:
        header: the value of `Authorization`; None if requests have none.
        renew_s: seconds until it should be renewed; infinite if never.
        lasts_s: seconds until it expires; infinite where unknown.
    """

    header: str | None
    renew_s: float = math.inf
    lasts_s: float = math.inf


Source = Callable[[], Awaitable[Token]]
"""Brings a new token, or raises `OSError` or `ValueError`."""


class Credentials:
    """The token of all requests of one client, for one event loop; `close` them there."""

    def __init__(self, token: Token, source: Source | None = None) -> None:
        """Begin with `token`. Without a `source` it is used for ever."""
        self._source = source
        self._pauses = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        self._again_s = -math.inf  # no renewal begins earlier
        self._renewal: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._keep(token)

    async def header(self) -> str | None:
        """The value of `Authorization`. Waits only if the token has expired, and then for its renewal.

        Raises:
            CredentialsError: the token has expired, and its last renewal failed.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._renew_s:
            self._begin()
        if now_s >= self._expires_s:
            await self._renewed()
            if self._failure is not None:
                raise CredentialsError(
                    f"there is no token for the API server: {self._failure}"
                ) from self._failure
        return self._header

    async def replaced(self, refused: str | None) -> bool:
        """Renew a token that the API server refused with 401. Returns whether there is another one now.

        Args:
            refused: the refused value of `Authorization`. If another renewal has replaced it, nothing is done.
        """
        if self._header == refused:
            self._begin()
            await self._renewed()
        return self._header != refused

    async def close(self) -> None:
        """End a renewal that is under way."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])

    def _keep(self, token: Token) -> None:
        now_s = asyncio.get_running_loop().time()
        self._header = token.header
        self._renew_s, self._expires_s = now_s + token.renew_s, now_s + token.lasts_s

    def _begin(self) -> None:
        """Begin a renewal, unless one is under way or the last one has just ended."""
        is_under_way = self._renewal is not None and not self._renewal.done()
        if self._source is None or is_under_way or asyncio.get_running_loop().time() < self._again_s:
            return
        self._renewal = asyncio.create_task(self._renew(self._source), name="kube: renew credentials")

    async def _renewed(self) -> None:
        """Wait for the renewal that is under way, if there is one."""
        if self._renewal is not None:
            await asyncio.wait([self._renewal])

    async def _renew(self, source: Source) -> None:
        try:
            token = await source()
        except (OSError, ValueError) as error:
            self._failure = error
            log.warning("the token for the API server was not renewed, retrying", error=str(error))
        else:
            self._failure = None
            self._keep(token)
            self._pauses.reset()
        self._again_s = asyncio.get_running_loop().time() + self._pauses.next_s()


def expiring(header: str | None, expires: datetime | None, now: datetime) -> Token:
    """A token with its time of expiry, or without one; pure."""
    if expires is None:
        return Token(header)
    lasts_s = max(SHORTEST_LIFE_S, (expires - now).total_seconds())
    return Token(header, lasts_s - min(EARLY_S, lasts_s / 2), lasts_s)


async def file_credentials(path: Path) -> Credentials:
    """Credentials from a file that holds a bearer token.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is empty, or no text.
    """

    async def read() -> Token:
        return Token(await asyncio.to_thread(_header_of, path), renew_s=REREAD_S)

    return Credentials(await read(), read)


def plugin_credentials(plugin: ExecPlugin, first: ExecStatus | None) -> Credentials:
    """Credentials from an exec plugin, which has run once; `first` is what it gave, or None if it failed."""

    def token_of(status: ExecStatus) -> Token:
        header = f"Bearer {status.token}" if status.token else None
        return expiring(header, status.expirationTimestamp, datetime.now(UTC))

    async def run() -> Token:
        return token_of(await plugin.run())

    missing = Token(None, renew_s=0.0, lasts_s=0.0)
    return Credentials(token_of(first) if first is not None and first.token else missing, run)


def _header_of(path: Path) -> str:
    token = path.read_text().strip()
    if not token:
        raise CredentialsError(f"{path} holds no token")
    return f"Bearer {token}"
