"""The placer's connection to NATS, which reconnects for ever, with jitter.

What always holds: the connection is never given up because a server is away. An error is logged when it differs from
the last one, not each time it occurs.
"""

import random
from typing import Any, Final

import structlog
from nats.aio.client import Client, Server

from plimsoll.bus import LOST_PINGS, PING_S
from plimsoll.part.backoff import Pauses
from plimsoll.part.settings import shown_url

REQUEST_S: Final = 5.0
"""How long a JetStream request may take."""

log = structlog.get_logger(__name__)


async def connect(client: Client, url: str, name: str) -> None:
    """Connect; retries until a server answers. Cancelling is safe.

    Args:
        client: not connected yet; its JetStream context may exist already.
        url: one NATS URL, or several with commas.
        name: the client's name in the server's monitoring.
    """
    pauses = Pauses()
    logged: list[str] = []

    async def on_error(error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if logged != [text]:
            logged[:] = [text]
            log.warning("nats is out of reach, retrying", url=shown_url(url), error=text)

    async def on_reconnect() -> None:
        pauses.reset()
        logged.clear()
        log.info("nats is back", url=shown_url(url))

    def next_server(servers: list[Server], _: dict[str, Any]) -> tuple[Server, float]:
        return random.choice(servers), pauses.next_s()  # noqa: S311 - spreads load, no secret

    await client.connect(
        url.split(","),
        name=name,
        error_cb=on_error,
        reconnected_cb=on_reconnect,
        reconnect_to_server_handler=next_server,
        max_reconnect_attempts=-1,
        # Applies only before the first connection, when the client does not call the handler. Drawn for each process.
        reconnect_time_wait=random.uniform(0.5, 1.5),  # type: ignore[arg-type]  # noqa: S311 - only slept on
        connect_timeout=int(REQUEST_S),
        ping_interval=PING_S,
        max_outstanding_pings=LOST_PINGS,
    )
