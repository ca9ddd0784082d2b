"""A connection to NATS, which reconnects for ever, with jitter.

What always holds: the connection is never given up because a server is away. Each cause of an outage is logged once,
with its remedy, not each time it occurs.
"""

import asyncio
import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from nats.aio.client import Client, Server

from plimsoll.bus.stream import LOST_PINGS, PING_S
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage, cause_of
from plimsoll.part.log import get_logger
from plimsoll.part.settings import PREFIX, shown_url

REQUEST_S: Final = 5.0
"""How long a JetStream request may take."""

SILENT_S: Final = 2 * REQUEST_S
"""Seconds without a connection and without an error after which the log says so."""

log = get_logger()


class _Link:
    """Logs each cause of an outage of a client once, and paces its attempts to connect."""

    def __init__(self, url: str) -> None:
        self._url = shown_url(url)
        self._pauses, self._outage = Pauses(), Outage(log.warning)

    async def failed(self, error: Exception) -> None:
        # After a refused password the server also closes the connection, and that is not the cause.
        if not (isinstance(error, ConnectionResetError) and self._outage.is_on):
            cause = cause_of(error, f"{PREFIX}NATS_URL")
            self._outage.failed("nats is out of reach, retrying", cause, url=self._url)

    async def came_back(self) -> None:
        self._pauses.reset()
        self._outage.ended()
        log.info("nats is back", url=self._url)

    def next_server(self, servers: list[Server], _: dict[str, Any]) -> tuple[Server, float]:
        return random.choice(servers), self._pauses.next_s()  # noqa: S311 - spreads load, no secret

    async def report_silence(self) -> None:
        # The client reports nothing of a server that takes the connection and never speaks.
        await asyncio.sleep(SILENT_S)  # a server under load may take as long
        if not self._outage.is_on:
            await self.failed(TimeoutError("the server sent no greeting"))


async def connect(
    client: Client, url: str, name: str, options: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Connect; retries until a server answers. Cancelling is safe.

    Args:
        client: not connected yet; its JetStream context may exist already.
        url: one NATS URL, or several with commas.
        name: the client's name in the server's monitoring.
        options: see `BusAccess.options`.
    """
    link = _Link(url)
    silence = asyncio.create_task(link.report_silence(), name="nats: report silence")
    try:
        await client.connect(
            url.split(","),
            name=name,
            error_cb=link.failed,
            reconnected_cb=link.came_back,
            reconnect_to_server_handler=link.next_server,
            max_reconnect_attempts=-1,
            # Applies only before the first connection, when the client does not call the handler. Drawn for each
            # process.
            reconnect_time_wait=random.uniform(0.5, 1.5),  # type: ignore[arg-type]  # noqa: S311 - only slept on
            connect_timeout=int(REQUEST_S),
            ping_interval=PING_S,
            max_outstanding_pings=LOST_PINGS,
            **options,
        )
    finally:
        silence.cancel()
