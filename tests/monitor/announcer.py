"""A peer that sends the broker's announcements with faults: damage, repetition, silence.

A healthy broker never does so. The socket and the journal are real, and the journal drops acknowledged
announcements; only the announcements are scripted.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from plimsoll.broker.wire import CONTROL_NAME, Acknowledge, BrokerRequest, Done, Subscribe
from plimsoll.ids import GpuUuid
from tests.announcements import announcement_line


class Announcer:
    """Announces to every subscriber under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.acknowledged: list[int] = []
        self._journal: dict[int, bytes] = {}
        self._seq = 0
        self._subscribers: list[asyncio.StreamWriter] = []

    def announce(self, what: str, pid: int, start_ticks: int, gpu: GpuUuid | None = None) -> None:
        """Put an announcement into the journal and send it."""
        self._seq += 1
        time = f"2026-01-01T00:00:00.{self._seq:06d}Z"
        line = announcement_line(
            what, seq=self._seq, pid=pid, start_ticks=start_ticks, time=time, gpu=gpu, text="cuMemAlloc_v2"
        )
        self._journal[self._seq] = line
        self._send(line)

    def damage(self, line: bytes) -> None:
        """Send a line that is no announcement."""
        self._send(line)

    def repeat(self) -> None:
        """Send every unacknowledged announcement once more."""
        for line in self._journal.values():
            self._send(line)

    @property
    def unacknowledged(self) -> list[int]:
        """The announcements that the journal still holds."""
        return list(self._journal)

    def disconnect(self) -> None:
        """Close every subscription."""
        for writer in self._subscribers:
            writer.close()
        self._subscribers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until its end."""
        with contextlib.suppress(ConnectionError):
            while asked := await reader.readline():
                request: BrokerRequest = msgspec.json.decode(asked, type=BrokerRequest)
                writer.write(msgspec.json.encode(Done()) + b"\n")
                if isinstance(request, Subscribe):
                    for line in self._journal.values():
                        writer.write(line + b"\n")
                    self._subscribers.append(writer)
                elif isinstance(request, Acknowledge):
                    self.acknowledged.append(request.seq)
                    self._journal = {n: line for n, line in self._journal.items() if n > request.seq}
        writer.close()

    def _send(self, line: bytes) -> None:
        self._subscribers = [writer for writer in self._subscribers if not writer.is_closing()]
        for writer in self._subscribers:
            writer.write(line + b"\n")


@contextlib.asynccontextmanager
async def announcer(root: Path) -> AsyncIterator[Announcer]:
    """Announce under `root` until the context ends."""
    peer = Announcer(root)
    server = await asyncio.start_unix_server(peer.serve, root / CONTROL_NAME)
    try:
        yield peer
    finally:
        peer.disconnect()
        server.close()
        (root / CONTROL_NAME).unlink(missing_ok=True)
