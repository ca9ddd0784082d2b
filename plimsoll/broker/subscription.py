"""The broker's announcements about hooked processes, across all its restarts.

What always holds:

* The broker keeps an announcement until it is acknowledged (`BrokerClient.acknowledge`). An announcement that was not
  delivered, or whose reader died, therefore comes again: after each reconnection, in a new subscription.
* A damaged line is logged and skipped: the rest of the stream is worth more than one announcement.
* A missing broker is no error; each outage is logged once.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

from plimsoll.broker.announcements import Announcement
from plimsoll.broker.connection import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Connection,
    DamagedError,
    LostError,
)
from plimsoll.broker.wire import Done, MemoryChange, Refused, Subscribe
from plimsoll.part.backoff import Pauses
from plimsoll.part.log import get_logger

LINE_BYTES: Final = 1024 * 1024
"""The longest announcement, in bytes; a longer line counts as damaged. Real ones have a few hundred bytes."""

_SHOWN_CHARS: Final = 200

log = get_logger()


async def subscribed(root: Path, request: Subscribe) -> AsyncGenerator[Announcement | MemoryChange]:
    """Every announcement not yet acknowledged, oldest first, then each new one, for ever.

    After a reconnection unacknowledged announcements come again: compare `seq` and `time`. Wrap the generator in
    `contextlib.aclosing` to end it early; cancelling or abandoning it loses nothing.

    Args:
        root: the broker's root directory; neither the directory nor the broker must exist yet.
        request: whether changes of memory come too, in any order among the announcements.
    """
    pauses, outages = Pauses(FIRST_PAUSE_S, LONGEST_PAUSE_S), _Outages(root)
    while True:
        try:
            async with contextlib.aclosing(_session(root, request, outages)) as session:
                async for message in session:
                    pauses.reset()
                    yield message
        except LostError as error:
            outages.lost(error)
        await asyncio.sleep(pauses.next_s())


async def _session(
    root: Path, request: Subscribe, outages: "_Outages"
) -> AsyncGenerator[Announcement | MemoryChange]:
    """The messages of one connection, until the connection is lost."""
    connection = await Connection.open(root, LINE_BYTES)
    try:
        await connection.send(request)
        while True:
            try:
                answer = await connection.read()
            except DamagedError as error:
                shown = error.line[:_SHOWN_CHARS].decode("utf-8", "replace")
                log.warning("a damaged line from the broker is ignored", line=shown, error=str(error))
                continue
            if isinstance(answer, Announcement | MemoryChange):
                yield answer
            elif isinstance(answer, Refused):
                raise LostError(f"the broker refuses to announce: {answer.message}")
            elif isinstance(answer, Done):
                outages.found()
    finally:
        await connection.close()


class _Outages:
    """Logs one line per outage, not per attempt."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reachable: bool | None = None

    def found(self) -> None:
        if self._reachable is not True:
            self._reachable = True
            log.info("listening to the broker", root=str(self._root))

    def lost(self, error: LostError) -> None:
        if self._reachable is not False:
            self._reachable = False
            problem = str(error) or type(error.__cause__).__name__
            log.warning(
                "no broker answers; announcements are received once one does",
                root=str(self._root),
                error=problem,
            )
