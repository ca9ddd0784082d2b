"""The outbox's SQLite file. Everything here blocks and runs on the store's one thread.

What always holds:

* One `keep` is one transaction: an event is stored if and only if the table and the journal position that it follows
  from are. A `kill -9` at any instruction leaves the state before or after, never between. So a restart neither
  forgets an event nor publishes it twice.
* Each `keep` is synced to disk: it also outlives a power cut. Removals are not: after a power cut an event may be
  published again, under its old id.
* At most one state event waits to be sent. A state is whole, so a newer event that carries a state may replace an
  older, unsent *state* event, whose number it takes over; task events are never replaced.
* An event that has waited longer than the outbox's `age_s` is dropped and counted. The readers' state does not
  suffer: a newer event of this node waits behind it, and a state is whole. A clock that is set makes no event older.
* New events leave `RESERVE_BYTES` of the disk free, so that old ones can always be removed.
* One monitor owns the file.
"""

import os
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Final

import msgspec

from monitor.core.conditions import Conditions
from monitor.core.entries import Entry
from monitor.core.lifecycle import TaskKey, TaskLife
from monitor.core.observation import JOURNAL_START, JournalPosition
from monitor.core.tasks import REMEMBERED_DEATHS, Tasks
from monitor.foreign import StreamPosition
from monitor.outbox.transaction import check_room, transaction
from plimsoll.gpu_health import GpuRecord
from plimsoll.ids import GpuUuid, ProcessKey
from plimsoll.part.causes import disk_remedy
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

FILE_NAME: Final = "monitor.db"
FILE_MODE: Final = 0o600
"""The events name the pods and owners of every tenant of the node."""

_SCHEMA: Final = """
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = FULL;
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL, subject TEXT NOT NULL, body BLOB NOT NULL,
    is_state INTEGER NOT NULL, stored_s REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS dead (
    number INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, gpus TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS lives (task BLOB PRIMARY KEY, life BLOB NOT NULL, left INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, value TEXT NOT NULL);
BEGIN IMMEDIATE; COMMIT;
"""

CLOCK_SET_S: Final = 60.0
"""Seconds by which the wall clock must leave the time since the boot to count as set: a machine whose clock lost its
power boots in another year, and clocks that are kept right move by far less."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry in the outbox.

    Attributes:
        number: grows with each entry.
        id: the message's `Nats-Msg-Id`.
        stored_s: when it was stored, in seconds since the epoch.
    """

    number: int
    id: str
    subject: str
    body: bytes
    stored_s: float


@dataclass(frozen=True, slots=True)
class KeptState:
    """The state of the last `keep`.

    Attributes:
        boot_id: the boot id of the machine's boot then; empty on the first start.
        position: the last announcement taken in.
        lives: tasks that had not exited.
        left: last lives of processes that had left a GPU but still ran.
        dead: the processes of that boot that died last, oldest first, see `Tasks`.
        records, short: of the GPUs, see `Conditions`.
    """

    boot_id: str = ""
    position: JournalPosition = JOURNAL_START
    lives: tuple[TaskLife, ...] = ()
    left: tuple[TaskLife, ...] = ()
    dead: Mapping[ProcessKey, frozenset[GpuUuid]] = field(default_factory=dict)
    records: tuple[GpuRecord, ...] = ()
    short: Mapping[GpuUuid, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The knowledge that a restart needs besides events and tasks.

    Attributes:
        boot_id: the boot id of the machine's boot.
        position: the last announcement taken in.
        conditions: the conditions of the GPUs; None keeps those that are on disk.
    """

    boot_id: str
    position: JournalPosition
    conditions: Conditions | None = None


def _booted_s() -> float:
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class OutboxFile:
    """The open file and its contents in memory. The store's thread alone writes; the loop reads the counts.

    Attributes:
        directory: the directory of the file.
        age_s: an event that has waited longer is dropped.
        waiting_count, waiting_bytes: how many events wait, and the sum of their bodies.
        dropped_count: how many were dropped since the file was opened.
        booted_s: when the machine booted, by the wall clock as it was last read.
    """

    database: sqlite3.Connection
    directory: Path
    age_s: float
    lives: dict[TaskKey, tuple[TaskLife, bool]] = field(default_factory=dict)
    dead: Mapping[ProcessKey, frozenset[GpuUuid]] = field(default_factory=dict)
    waiting_count: int = 0
    waiting_bytes: int = 0
    dropped_count: int = 0
    booted_s: float = field(default_factory=_booted_s)


def open_outbox(directory: Path, age_s: float) -> OutboxFile:
    """Open the file in `directory`, creating both. A damaged file is renamed, and the log names it.

    Raises:
        InputError: the directory cannot be used, or another monitor uses it.
    """
    path = directory / FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _make_private(path)
        try:
            return _connect(path, age_s)
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise _unusable(directory, "is used by another monitor", error) from error
            raise
        except sqlite3.DatabaseError as error:
            aside = path.with_name(f"{FILE_NAME}.damaged-{time.time_ns()}")
            log.error("the outbox is damaged; begun anew", put_aside=str(aside), error=str(error))
            path.rename(aside)
            for rest in ("-wal", "-shm"):
                path.with_name(FILE_NAME + rest).unlink(missing_ok=True)
            _make_private(path)
            return _connect(path, age_s)
    except (OSError, sqlite3.Error) as error:
        raise _unusable(directory, f"cannot be used ({error})", error) from error


def _unusable(directory: Path, problem: str, cause: Exception) -> InputError:
    log.debug("the state directory was refused", cause=repr(cause))
    remedy = disk_remedy(cause, "give a writable directory of this monitor's own")
    return InputError("PLIMSOLL_STATE_DIR", str(directory), problem, remedy)


def _make_private(path: Path) -> None:
    """Make the file, or mend its mode. SQLite gives its other files the same mode."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        if os.fstat(file).st_uid == os.geteuid():
            os.fchmod(file, FILE_MODE)
    finally:
        os.close(file)


def _connect(path: Path, age_s: float) -> OutboxFile:
    # Autocommit: a transaction begins and ends only where this file says so.
    database = sqlite3.connect(path, timeout=2.0, isolation_level=None, check_same_thread=False)
    try:
        database.executescript(_SCHEMA)
        outbox = OutboxFile(database, path.parent, age_s)
        outbox.lives = {life.key: (life, left) for life, left in _lives(database)}
        outbox.dead = _dead(database)
        _count(outbox)
    except (sqlite3.Error, msgspec.MsgspecError) as error:
        database.close()
        if isinstance(error, msgspec.MsgspecError):
            raise sqlite3.DatabaseError(f"a kept task cannot be read ({error})") from error
        raise
    return outbox


def kept(outbox: OutboxFile) -> KeptState:
    """The state of the last `keep`."""
    values: Mapping[str, str] = dict(outbox.database.execute("SELECT name, value FROM kept").fetchall())
    return KeptState(
        boot_id=values.get("boot_id", ""),
        position=JournalPosition(int(values.get("mark_seq", "0")), values.get("mark_time", "")),
        lives=tuple(life for life, left in outbox.lives.values() if not left),
        left=tuple(life for life, left in outbox.lives.values() if left),
        dead=outbox.dead,
        records=msgspec.json.decode(values.get("gpu_records", "[]"), type=tuple[GpuRecord, ...]),
        short=msgspec.json.decode(values.get("gpus_short", "{}"), type=dict[GpuUuid, str]),
    )


def _lives(database: sqlite3.Connection) -> list[tuple[TaskLife, bool]]:
    rows = database.execute("SELECT life, left FROM lives").fetchall()
    return [(msgspec.json.decode(life, type=TaskLife), bool(left)) for life, left in rows]


def _dead(database: sqlite3.Connection) -> dict[ProcessKey, frozenset[GpuUuid]]:
    rows = database.execute("SELECT pid, start_ticks, gpus FROM dead ORDER BY number").fetchall()
    # No UUID has a comma. Where two lines name the same process, the later line counts.
    return {
        ProcessKey(pid, start_ticks): frozenset(map(GpuUuid, gpus.split(",") if gpus else ()))
        for pid, start_ticks, gpus in rows
    }


def keep(
    outbox: OutboxFile,
    entries: tuple[Entry, ...],
    tasks: Tasks,
    rest: Checkpoint,
    *,
    replaces_state: bool,
) -> None:
    """Store events together with the table and the journal position that they follow from.

    Args:
        outbox: the open file.
        entries: the events, in order.
        tasks: the table.
        rest: everything else.
        replaces_state: the events replace the state event that waits.
    """
    lives = {key: (life, False) for key, life in tasks.lives.items()}
    lives |= {key: (life, True) for key, life in tasks.left.items() if key not in lives}
    booted_s = _booted_s()
    check_room(outbox.database, outbox.directory, sum(len(entry.body) for entry in entries))
    with transaction(outbox.database) as database:
        dropped = _drop_old(outbox, booted_s)
        if replaces_state:
            database.execute("DELETE FROM entries WHERE is_state")
        elif any(entry.carries_state for entry in entries):
            database.execute("UPDATE entries SET is_state = 0 WHERE is_state")
        for entry in entries:
            _add(database, entry)
        _keep_lives(database, outbox.lives, lives)
        _keep_dead(database, outbox.dead, tasks.dead)
        position = rest.position
        values = {"boot_id": rest.boot_id, "mark_seq": str(position.seq), "mark_time": position.time}
        if rest.conditions is not None:
            values |= _conditions(rest.conditions)
        database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", values.items())
    outbox.lives, outbox.dead, outbox.booted_s = lives, tasks.dead, booted_s
    _count(outbox, dropped)


def drop_old(outbox: OutboxFile) -> None:
    """Drop the events that have waited too long. `keep` does so too."""
    booted_s = _booted_s()
    with transaction(outbox.database, synced=False):
        dropped = _drop_old(outbox, booted_s)
    outbox.booted_s = booted_s
    _count(outbox, dropped)


def _drop_old(outbox: OutboxFile, booted_s: float) -> int:
    database, moved_s = outbox.database, booted_s - outbox.booted_s
    if abs(moved_s) > CLOCK_SET_S:
        database.execute("UPDATE entries SET stored_s = stored_s + ?", (moved_s,))
    # Numbers grow with time, so the search ends at the first young event, and reads nothing while no event is old.
    before_s, last = time.time() - outbox.age_s, 0
    for number, stored_s in database.execute("SELECT number, stored_s FROM entries ORDER BY number"):
        if stored_s >= before_s:
            break
        last = number
    return database.execute("DELETE FROM entries WHERE number <= ?", (last,)).rowcount if last else 0


def _conditions(conditions: Conditions) -> dict[str, str]:
    # Times of this run of the monitor mean nothing to the next one.
    records = [replace(one, seen_s={}) for one in conditions.records.values()]
    texts = {"gpu_records": records, "gpus_short": conditions.short}
    return {name: msgspec.json.encode(value).decode() for name, value in texts.items()}


def _add(database: sqlite3.Connection, entry: Entry) -> None:
    row = (entry.id, entry.subject, entry.body, entry.is_state, time.time())
    database.execute(
        "INSERT INTO entries (id, subject, body, is_state, stored_s) VALUES (?, ?, ?, ?, ?)", row
    )


def _keep_lives(
    database: sqlite3.Connection,
    before: Mapping[TaskKey, tuple[TaskLife, bool]],
    after: Mapping[TaskKey, tuple[TaskLife, bool]],
) -> None:
    changed = [
        (msgspec.json.encode(key), msgspec.json.encode(life), left)
        for key, (life, left) in after.items()
        if before.get(key) != (life, left)
    ]
    gone = [(msgspec.json.encode(key),) for key in before.keys() - after.keys()]
    database.executemany("INSERT OR REPLACE INTO lives VALUES (?, ?, ?)", changed)
    database.executemany("DELETE FROM lives WHERE task = ?", gone)


def _keep_dead(
    database: sqlite3.Connection,
    before: Mapping[ProcessKey, frozenset[GpuUuid]],
    after: Mapping[ProcessKey, frozenset[GpuUuid]],
) -> None:
    if after is before:
        return
    if not after:
        database.execute("DELETE FROM dead")
        return
    # New deaths are at the end, so that a round's work does not grow with the deaths that are remembered.
    new = list(takewhile(lambda each: before.get(each[0]) != each[1], reversed(list(after.items()))))
    rows = [(each.pid, each.start_ticks, ",".join(sorted(gpus))) for each, gpus in reversed(new)]
    database.executemany("INSERT INTO dead (pid, start_ticks, gpus) VALUES (?, ?, ?)", rows)
    last = "(SELECT number FROM dead ORDER BY number DESC LIMIT 1)"
    database.execute(f"DELETE FROM dead WHERE number <= {last} - ?", (REMEMBERED_DEATHS,))  # noqa: S608 - a constant


def take_oldest(database: sqlite3.Connection, limit: int) -> tuple[StoredEntry, ...]:
    """The oldest events; no state event that waits now is replaced any more."""
    columns = "number, id, subject, body, stored_s"
    rows = database.execute(f"SELECT {columns} FROM entries ORDER BY number LIMIT ?", (limit,)).fetchall()  # noqa: S608 - a constant
    if database.execute("SELECT 1 FROM entries WHERE is_state").fetchone():
        with transaction(database, synced=False):
            database.execute("UPDATE entries SET is_state = 0 WHERE is_state")
    return tuple(StoredEntry(*row) for row in rows)


def position(outbox: OutboxFile) -> StreamPosition:
    """The place in the stream up to which this node's reports are known."""
    rows = outbox.database.execute("SELECT name, value FROM kept WHERE name LIKE 'stream%'")
    values: Mapping[str, str] = dict(rows.fetchall())
    seq, epoch = (int(values.get(name, "0")) for name in ("stream_seq", "stream_epoch"))
    return StreamPosition(values.get("stream", ""), seq, epoch)


def remove(outbox: OutboxFile, numbers: tuple[int, ...], position: StreamPosition | None) -> None:
    """Remove events by their numbers, and keep a position, if there is one; an unknown number is ignored."""
    with transaction(outbox.database, synced=False) as database:
        database.executemany("DELETE FROM entries WHERE number = ?", [(number,) for number in numbers])
        if position is not None:
            numbers_of = {"stream_seq": str(position.seq), "stream_epoch": str(position.epoch)}
            values = {"stream": position.stream, **numbers_of}
            database.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", values.items())
    _count(outbox)


def _count(outbox: OutboxFile, dropped: int = 0) -> None:
    counts = outbox.database.execute("SELECT count(*), ifnull(sum(length(body)), 0) FROM entries").fetchone()
    outbox.waiting_count, outbox.waiting_bytes = counts
    if dropped:
        outbox.dropped_count += dropped
        log.error(
            "events that NATS did not take were dropped: they had waited too long",
            dropped=dropped,
            age_s=outbox.age_s,
            waiting=outbox.waiting_count,
            remedy="see why this node does not reach NATS",
        )
