"""Writes to the outbox's file: all or nothing, and only while the disk has room."""

import os
import sqlite3
from pathlib import Path
from typing import Final

from plimsoll.quantity import MIB

RESERVE_BYTES: Final = 8 * MIB
"""Bytes that new events leave free on the disk. To remove published events, SQLite writes up to 4 MiB before it uses
its log anew: on a disk without room, no event could ever be removed. The rest is for `COVERED_BYTES` of events, which
are written into the log and then into the file."""

COVERED_BYTES: Final = MIB
"""Bytes of events in one transaction for which the reserve is enough; more events need `ROOM_RATIO` times as much."""

ROOM_RATIO: Final = 3
"""Room that a large transaction takes for each byte of its events: log, file, and what is left of the last pages."""

REUSED_BYTES: Final = 2 * MIB
"""The most bytes of free pages in the file that count as room, because a round fills these before the file grows. The
log needs room on the disk all the same."""


def check_room(database: sqlite3.Connection, directory: Path, event_bytes: int) -> None:
    """See that new events leave `RESERVE_BYTES` free: on the disk of `directory`, and in the file itself.

    SQLite's log keeps the length that its longest transaction gave it. Where room is short, it is cut off first.

    Args:
        database: the open file.
        directory: the directory of the file.
        event_bytes: the sum of the events' bodies.

    Raises:
        sqlite3.OperationalError: less is free, as SQLite says it of a full disk.
    """
    needed_bytes = RESERVE_BYTES + ROOM_RATIO * max(0, event_bytes - COVERED_BYTES)
    if _free_bytes(database, directory) >= needed_bytes:
        return
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    if _free_bytes(database, directory) < needed_bytes:
        problem = f"database or disk is full: less than {RESERVE_BYTES} bytes would stay free"
        raise sqlite3.OperationalError(problem)


def _free_bytes(database: sqlite3.Connection, directory: Path) -> int:
    disk = os.statvfs(directory)
    (pages,), (page_bytes,) = (
        database.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_size")
    )
    return disk.f_bavail * disk.f_frsize + min(int(pages) * int(page_bytes), REUSED_BYTES)


class transaction:  # noqa: N801 - used as a verb
    """A transaction, all or nothing. `sqlite3`'s own context manager begins none in autocommit.

    Without `synced` a power cut may undo it; the death of the monitor never does.
    """

    def __init__(self, database: sqlite3.Connection, *, synced: bool = True) -> None:
        self._database = database
        self._synchronous = "FULL" if synced else "NORMAL"

    def __enter__(self) -> sqlite3.Connection:
        """Begin."""
        self._database.execute(f"PRAGMA synchronous = {self._synchronous}")
        self._database.execute("BEGIN IMMEDIATE")
        return self._database

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Commit, or roll back after an error."""
        try:
            if kind is None:
                self._database.execute("COMMIT")
        finally:
            if self._database.in_transaction:  # SQLite itself rolls back where the disk is full, for example
                self._database.execute("ROLLBACK")
