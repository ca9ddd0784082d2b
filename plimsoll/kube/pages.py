"""The documents of a page of a list, in pieces that hold no other task up, however large a tenant makes an object."""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Raw

PIECE_BYTES: Final = 500_000
"""The documents that are decoded before other tasks run: some 5 ms."""


def pieces(documents: Iterable[Raw]) -> Iterator[list[Raw]]:
    """The documents in order, in pieces of `PIECE_BYTES`. The last document of a piece may pass that size."""
    piece: list[Raw] = []
    piece_bytes = 0
    for document in documents:
        piece.append(document)
        piece_bytes += memoryview(document).nbytes
        if piece_bytes >= PIECE_BYTES:
            yield piece
            piece, piece_bytes = [], 0
    if piece:
        yield piece
