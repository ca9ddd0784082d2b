"""The connections of an experiment: each task connects to one UNIX socket, and makes the calls it is asked for."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.kang.card.script import Call, Step

PATIENCE_S: Final = 120.0
"""A task has this many seconds to start, and to answer. No figure depends on it."""

_EXIT_CODES: Final = {Call.COMPLETE: 0, Call.FAIL: 1}


@dataclass(slots=True)
class Connections:
    """The tasks that have connected, by number."""

    socket: Path
    _tasks: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = field(default_factory=dict)
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def command(self, number: int) -> list[str]:
        """The command line of a task."""
        return [sys.executable, "-m", "bench.kang.card.task", str(self.socket), str(number)]

    @property
    def numbers(self) -> frozenset[int]:
        """The tasks that have connected, those among them that have ended."""
        return frozenset(self._tasks)

    async def until(self, count: int) -> None:
        """Wait until this many tasks have connected.

        Raises:
            TimeoutError: they have not within `PATIENCE_S`.
        """
        async with asyncio.timeout(PATIENCE_S), self._changed:
            await self._changed.wait_for(lambda: len(self._tasks) >= count)

    async def make(self, number: int, step: Step) -> bool:
        """Let a task make a call; returns whether the driver granted it. The end of a task returns True at once.

        Raises:
            EOFError: the task ended by itself.
        """
        reader, writer = self._tasks[number]
        if step.call in _EXIT_CODES:
            writer.write(b"exit %d\n" % _EXIT_CODES[step.call])
            return True
        writer.write(b"context\n" if step.call is Call.CONTEXT else b"allocate %d\n" % step.size_mib)
        async with asyncio.timeout(PATIENCE_S):
            answer = await reader.readline()
        if not answer:
            raise EOFError(f"task {number} ended before it answered {step.call.name}")
        return answer == b"granted\n"

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take in a task that has connected."""
        number = int(await reader.readline())
        async with self._changed:
            self._tasks[number] = reader, writer
            self._changed.notify_all()

    def close(self) -> None:
        """Close all connections, on which the tasks end."""
        for _, writer in self._tasks.values():
            writer.close()


@contextlib.asynccontextmanager
async def listening(folder: Path) -> AsyncIterator[Connections]:
    """Listen in a folder, for the length of a block."""
    connections = Connections(folder / "tasks.sock")
    server = await asyncio.start_unix_server(connections.accept, connections.socket)
    try:
        yield connections
    finally:
        connections.close()
        server.close()
