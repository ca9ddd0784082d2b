"""A connection over which a process reports to the share scheduler, for as long as it reports.

What always holds: one report is handled at a time, and the loop turns before the next; a container's processes
together are heard no oftener than `REPORTS_PER_S`, and wait in the kernel meanwhile. So whoever floods its socket
delays nobody but its own container.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Final

from hook.broker.core.datagram import SIZE, is_share

REPORTS_PER_S: Final = 4000
"""About four for each millisecond's burst of a container that gives its token up between bursts; a quarter of one
core of the broker."""

AT_ONCE: Final = 512
"""So many may come together: each of the most processes that a container can have reports twice."""


class Allowance:
    """How often one container is heard; its processes draw on it together."""

    def __init__(self) -> None:
        self._spent_until_s = 0.0

    def spend(self, now_s: float) -> float:
        """One report was heard; returns in how many seconds the next may be."""
        self._spent_until_s = max(self._spent_until_s, now_s) + 1 / REPORTS_PER_S
        return max(0.0, self._spent_until_s - now_s - AT_ONCE / REPORTS_PER_S)


class ShareTalk:
    """Hears one connection."""

    def __init__(self, connection: socket.socket, allowance: Allowance) -> None:
        self._connection = connection
        self._allowance = allowance
        self._hear: Callable[[bytes], None] = _ignored
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[bytes] = self._loop.create_future()
        self._pause: asyncio.TimerHandle | None = None

    async def run(self, first: bytes, hear: Callable[[bytes], None]) -> bytes:
        """Hear this report and all that follow.

        Args:
            first: was received already.
            hear: is told of each, damaged or not.

        Returns:
            The first datagram that is no report; empty at the connection's end.
        """
        self._hear = hear
        self._listen()
        self._heard(first)
        try:
            return await self._over
        finally:
            self._loop.remove_reader(self._connection)
            if self._pause is not None:
                self._pause.cancel()

    def end(self) -> None:
        """As if the process had hung up; changes nothing once it is over."""
        self._end(b"")

    def _listen(self) -> None:
        self._loop.add_reader(self._connection, self._readable)

    def _readable(self) -> None:
        try:
            data = self._connection.recv(SIZE + 1)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if is_share(data):
            self._heard(data)
        else:
            self._end(data)

    def _heard(self, data: bytes) -> None:
        self._hear(data)
        pause_s = self._allowance.spend(time.monotonic())
        if pause_s and not self._over.done():
            self._loop.remove_reader(self._connection)
            self._pause = self._loop.call_later(pause_s, self._listen)

    def _end(self, with_data: bytes) -> None:
        if not self._over.done():
            self._loop.remove_reader(self._connection)
            self._over.set_result(with_data)


def _ignored(_: bytes) -> None: ...
