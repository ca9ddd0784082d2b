"""A connection to NATS, which reconnects for ever, with jitter.

What always holds: the connection is never given up because a server is away. Each cause of an outage is logged once,
with its remedy, not each time it occurs.
"""

import asyncio
import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import structlog
from nats.aio.client import Client, Server

from plimsoll.bus.stream import LOST_PINGS, PING_S
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage, cause_of
from plimsoll.part.settings import PREFIX, shown_url

REQUEST_S: Final = 5.0
"""How long a JetStream request may take."""

SILENT_S: Final = 2 * REQUEST_S
"""Seconds without a connection and without an error after which the log says so."""

log = structlog.get_logger(__name__)


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
    pauses, outage = Pauses(), Outage(log.warning)

    async def on_error(error: Exception) -> None:
        # After a refused password the server also closes the connection, and that is not the cause.
        if not (isinstance(error, ConnectionResetError) and outage.is_on):
            cause = cause_of(error, f"{PREFIX}NATS_URL")
            outage.failed("nats is out of reach, retrying", cause, url=shown_url(url))

    async def on_reconnect() -> None:
        pauses.reset()
        outage.ended()
        log.info("nats is back", url=shown_url(url))

    def next_server(servers: list[Server], _: dict[str, Any]) -> tuple[Server, float]:
        return random.choice(servers), pauses.next_s()  # noqa: S311 - spreads load, no secret

    async def tell_silence() -> None:
        # The client says nothing of a server that takes the connection and never speaks.
        await asyncio.sleep(SILENT_S)  # a server under load may take as long
        if not outage.is_on:
            await on_error(TimeoutError("the server sent no greeting"))

    silence = asyncio.create_task(tell_silence(), name="nats: tell silence")
    try:
        await client.connect(
            url.split(","),
            name=name,
            error_cb=on_error,
            reconnected_cb=on_reconnect,
            reconnect_to_server_handler=next_server,
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
