"""A peer that sends the broker's announcements with faults: damage, repetition, silence.

A healthy broker never does so. The socket and the journal are real, and the journal drops acknowledged
announcements; only the announcements are scripted.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from plimsoll.broker.wire import (
    CONTROL_NAME,
    Acknowledge,
    Announcement,
    Done,
    Request,
    Subscribe,
)
from plimsoll.ids import ContainerName, GpuUuid, PodUid

POD, CONTAINER = PodUid("0b7e8f3c-1d2a-4c5b-9e6f-7a8b9c0d1e2f"), ContainerName("main")


class Announcer:
    """Announces to every subscriber under `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.acknowledged: list[int] = []
        self._journal: list[Announcement] = []
        self._seq = 0
        self._subscribers: list[asyncio.StreamWriter] = []

    def announce(self, what: str, pid: int, start_ticks: int, gpu: GpuUuid | None = None) -> None:
        """Put an announcement into the journal and send it."""
        self._seq += 1
        self._journal.append(
            Announcement(
                seq=self._seq,
                what=what,
                pod=POD,
                container=CONTAINER,
                pid=pid,
                start_ticks=start_ticks,
                time=f"2026-01-01T00:00:00.{self._seq:06d}Z",
                gpu=gpu,
                requested_bytes=7,
                text="cuMemAlloc_v2",
            )
        )
        self._send(msgspec.json.encode(self._journal[-1]))

    def damage(self, line: bytes) -> None:
        """Send a line that is no announcement."""
        self._send(line)

    def repeat(self) -> None:
        """Send every unacknowledged announcement once more."""
        for announcement in self._journal:
            self._send(msgspec.json.encode(announcement))

    @property
    def unacknowledged(self) -> list[int]:
        """The announcements that the journal still holds."""
        return [announcement.seq for announcement in self._journal]

    def disconnect(self) -> None:
        """Close every subscription."""
        for writer in self._subscribers:
            writer.close()
        self._subscribers.clear()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until its end."""
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                request: Request = msgspec.json.decode(line, type=Request)
                writer.write(msgspec.json.encode(Done()) + b"\n")
                if isinstance(request, Subscribe):
                    for announcement in self._journal:
                        writer.write(msgspec.json.encode(announcement) + b"\n")
                    self._subscribers.append(writer)
                elif isinstance(request, Acknowledge):
                    self.acknowledged.append(request.seq)
                    self._journal = [each for each in self._journal if each.seq > request.seq]
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
