"""A connection to the broker's control socket, for requests and subscriptions: one line out, lines in.

What always holds: every failure of the connection is `LostError`. A damaged line does not damage the next one.
"""

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path
from typing import Final

import msgspec

from plimsoll.broker.announcements import Announcement, Other, decode
from plimsoll.broker.wire import CONTROL_NAME, BrokerAnswer, BrokerRequest, MemoryChange

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0
"""Bounds of the pauses between attempts to reach the broker, in seconds."""

_CREDENTIALS: Final = struct.Struct("iII")
"""Linux's `struct ucred`: pid, uid, gid."""

_LINES: Final = msgspec.json.Decoder(BrokerAnswer | MemoryChange | Other)


class LostError(Exception):
    """The connection broke, or could not be made: try again."""


class DamagedError(Exception):
    """A received line is no answer; the next one may be. `line` is the line's beginning."""

    def __init__(self, line: bytes, problem: str) -> None:
        super().__init__(problem)
        self.line = line


class Connection:
    """An open connection; it is not opened again after a failure."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, root: Path, line_bytes: int) -> "Connection":
        """Connect once.

        Args:
            root: the broker's root directory.
            line_bytes: the longest line; a longer one counts as damaged.

        Raises:
            LostError: no broker listens there.
        """
        try:
            # On the loop: O_PATH only resolves the name. In a thread, a cancellation could lose the descriptor.
            directory = os.open(root, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            raise LostError(error) from error
        try:
            # A socket's address holds 107 bytes and a root directory may be longer, so connect by the descriptor.
            path = f"/proc/self/fd/{directory}/{CONTROL_NAME}"
            return cls(*await asyncio.open_unix_connection(path, limit=line_bytes))
        except OSError as error:
            raise LostError(error) from error
        finally:
            os.close(directory)

    @property
    def peer(self) -> int | None:
        """The pid of the process that listens; None where the kernel shows none, as in another pid namespace."""
        accepted = self._writer.get_extra_info("socket")
        pid, _, _ = _CREDENTIALS.unpack(
            accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        )
        return pid or None

    async def send(self, request: BrokerRequest) -> None:
        """Write a request.

        Raises:
            LostError: the connection broke.
        """
        self._writer.write(msgspec.json.encode(request) + b"\n")
        try:
            await self._writer.drain()
        except OSError as error:
            raise LostError(error) from error

    async def read(self) -> BrokerAnswer | MemoryChange | Announcement:
        """Read the next answer, announcement or change of memory.

        Raises:
            LostError: the connection broke.
            DamagedError: the received line is none of these.
        """
        line = await self._line()
        try:
            return decode(line, _LINES)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DamagedError(line, str(error)) from error

    async def close(self) -> None:
        """Close, and wait until the connection is closed."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def abort(self) -> None:
        """Close at once, without waiting."""
        self._writer.transport.abort()

    async def _line(self) -> bytes:
        """The next line; of a line that is too long only the beginning, which no decoder accepts."""
        start = b""
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError as error:
                # The rest of the long line must not be taken for a line of its own.
                part = await self._reader.readexactly(error.consumed)
                start = start or part
                continue
            except (OSError, asyncio.IncompleteReadError) as error:
                raise LostError(error) from error
            return start or line
