"""A client of NATS that comes back from every loss of its server; `connect` connects it, with jitter.

What always holds: no credential and no event goes in clear text to a server for which the user demanded TLS. The
connection is never given up because a server is away. Each cause of an outage is logged once, with its remedy, not
each time it occurs.

nats-py 2.16 has five faults. Three were seen on a machine that stood still for some seconds while a server of a
cluster died. `BusClient` mends them, and changes nothing else:

* Where a server's `INFO` does not require TLS, nats-py sends it the password in clear text, whatever the URL says.
* A server may announce its cluster (`INFO`) before it answers the greeting's `PING`. Then nats-py ends `connect`
  without an error and counts as connecting for ever.
* Where a new connection is given up, for a lost `PONG` say, its reader stays and takes bytes from the next one.
* An error that nats-py does not know, such as the `RuntimeError` of two readers, ends the task that reconnects,
  for ever and silently.
* Where the last bytes before the end cannot be written, `close` leaves its socket open and its subscriptions waiting.
"""

import asyncio
import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import nats.errors
from nats.aio.client import Client, Server, Srv

from plimsoll.bus.stream import LOST_PINGS, PING_S
from plimsoll.part.backoff import Pauses
from plimsoll.part.causes import Outage, cause_of
from plimsoll.part.log import get_logger
from plimsoll.part.settings import PREFIX, shown_url

REQUEST_S: Final = 5.0
"""How long a JetStream request may take."""

SILENT_S: Final = 2 * REQUEST_S
"""Seconds without a connection and without an error after which the log says so."""

PAUSE_S: Final = 1.0
"""The time in seconds between an unexpected error of a reconnection and the next attempt."""

log = get_logger()


class ClearTextError(nats.errors.Error):
    """The server offers no TLS, which the user demands."""

    def __str__(self) -> str:
        return "the server offers no TLS, which tls:// or the file of a certificate demands"


class BusClient(Client):
    """See the module. It has the interface of nats-py's own client."""

    async def _connect_to_server(self, s: Srv) -> None:
        """End all that works for the connection before, and connect."""
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None:
                task.cancel()
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]  # nats-py gives it no types
        await super()._connect_to_server(s)

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002 - as nats-py has it
        """Read a server's `INFO`. The first one of a connection comes before the greeting, which has the password.

        Raises:
            ClearTextError: TLS is demanded, and the server does not offer it.
        """
        if initial_connection and self._demands_tls():
            if not info.get("tls_required") and not info.get("tls_available"):
                raise ClearTextError
            info["tls_required"] = True  # nats-py would take what is merely available for not wanted
        await super()._process_info(info, initial_connection)

    def _demands_tls(self) -> bool:
        """Whether the connection must be encrypted after `INFO`; that of wss:// is encrypted before."""
        if self._current_server is not None and self._current_server.uri.scheme == "wss":
            return False
        # A server that another one announced has the scheme of that one, so the user's own URLs decide.
        return "tls" in self.options or any(server.uri.scheme == "tls" for server in self._server_pool)

    async def _process_connect_init(self) -> None:
        """Greet the server; if it closed the connection meanwhile, the reader finds out."""
        await super()._process_connect_init()
        self._status = Client.CONNECTED

    async def _attempt_reconnect(self) -> None:
        """Reconnect, whatever goes wrong, until this client is closed."""
        while not self.is_closed:
            try:
                await super()._attempt_reconnect()
            except Exception as error:  # noqa: BLE001 - whatever it is, the client must come back
                log.warning("an attempt to reach NATS broke off", error=repr(error), again_s=PAUSE_S)
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def _close(self, status: int, do_cbs: bool = True) -> None:  # noqa: FBT001, FBT002 - as nats-py has it
        """Close; also where the server is dead, end the subscriptions and the socket.

        Raises:
            OSError: the last bytes could not be written.
        """
        try:
            await super()._close(status, do_cbs)
        finally:
            for subscription in self._subs.values():
                subscription._stop_processing()  # noqa: SLF001 - nats-py has no public way
            self._subs.clear()
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # nats-py gives it no types


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
