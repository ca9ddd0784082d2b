"""The placer's whole state for people, in pieces: measurements, promises, local pods, and pods in doubt.

What always holds: other tasks run between two pieces, so a reader delays no decision by more than a piece. The pieces
together are one `State` in JSON, whose rows are of slightly different moments.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from placer.api.node_rows import NodeRows
from placer.core.booking import Booking
from placer.core.ledger import Ledger
from plimsoll.placer_api.http import DoubtRow, PodRow

PODS_TOGETHER: Final = 512
"""The rows of pods that are encoded, or bookings that are searched, in one piece: less than a millisecond."""


@dataclass(frozen=True, slots=True)
class StateReader:
    """Reads the state.

    Attributes:
        rows: the nodes.
        ledger: the bookings of all pods.
        pods: gives the local pods.
    """

    rows: NodeRows
    ledger: Ledger
    pods: Callable[[], Sequence[PodRow]] = tuple

    async def pieces(self) -> AsyncIterator[bytes]:
        """The state in JSON; nodes in the sorted list's order."""
        yield b'{"nodes":['
        async for piece in self.rows.best_first():
            yield piece
        yield b'],"pods":['
        pods = self.pods()
        for start in range(0, len(pods), PODS_TOGETHER):
            encoded = msgspec.json.encode(pods[start : start + PODS_TOGETHER])
            yield (b"," if start else b"") + encoded[1:-1]
            await asyncio.sleep(0)  # decisions and watches run between two pieces
        yield b'],"doubts":' + msgspec.json.encode(await self._doubts()) + b"}"

    async def _doubts(self) -> list[DoubtRow]:
        found: list[DoubtRow] = []
        bookings = tuple(self.ledger.bookings())
        for start in range(0, len(bookings), PODS_TOGETHER):
            found += _doubt_rows(bookings[start : start + PODS_TOGETHER])
            await asyncio.sleep(0)  # as above
        return sorted(found, key=lambda row: (row.namespace, row.name))


def _doubt_rows(bookings: Sequence[Booking]) -> list[DoubtRow]:
    return [
        DoubtRow(
            namespace=booking.doubt.namespace,
            name=booking.doubt.name,
            uid=booking.pod,
            node=booking.node,
            foreign=booking.doubt.foreign,
            reason=booking.doubt.reason,
        )
        for booking in bookings
        if booking.doubt is not None
    ]
