"""The outbox and the table on disk."""

import contextlib
import os
import sqlite3
import time
from pathlib import Path

import pytest

from monitor.core.entries import Entry
from monitor.core.lifecycle import Owner, TaskKey, TaskLife, begin
from monitor.core.observation import JournalPosition
from monitor.core.tasks import REMEMBERED_DEATHS, Tasks, end
from monitor.outbox.database import FILE_NAME, Checkpoint
from monitor.outbox.store import Store, StoreError, open_store
from monitor.outbox.transaction import RESERVE_BYTES
from plimsoll.ids import GpuUuid, PodUid, ProcessKey
from plimsoll.part.errors import InputError
from plimsoll.quantity import MIB


def life(pid: int) -> TaskLife:
    """A task that has just started."""
    key = TaskKey(ProcessKey(pid, 1), GpuUuid("GPU-a"))
    return begin(key, Owner(PodUid("pod")), 5, 0.0, before=None).life


def entry(name: str, *, is_state: bool = False) -> Entry:
    """An event that carries the state."""
    return Entry(name, "subject", name.encode(), carries_state=True, is_state=is_state)


async def kept(store: Store, name: str, *, is_state: bool) -> None:
    """Keep an event, which replaces the state event that waits, if one does."""
    written = (entry(name, is_state=is_state),)
    await store.keep(
        written, Tasks(), Checkpoint("boot", JournalPosition()), replaces_state=store.state_waits
    )


async def test_what_was_kept_is_there_after_reopening(tmp_path: Path) -> None:
    """Events, living and former tasks, deaths, boot and journal position come back after reopening."""
    one, two = life(1), life(2)
    dead = {ProcessKey(pid, 1): frozenset(map(GpuUuid, gpus)) for pid, gpus in ((9, ""), (3, "a"), (7, "ab"))}
    store = await open_store(tmp_path)
    tasks = Tasks(lives={one.key: one}, left={two.key: two}, dead=dead)
    await store.keep((entry("a"), entry("b")), tasks, Checkpoint("boot", JournalPosition(7, "now")))
    await store.close()

    store = await open_store(tmp_path)
    kept = await store.kept()
    assert (kept.boot_id, kept.position, kept.lives, kept.left) == (
        "boot",
        JournalPosition(7, "now"),
        (one,),
        (two,),
    )
    assert list(kept.dead.items()) == list(dead.items())
    assert [each.id for each in await store.oldest(10)] == ["a", "b"]
    assert store.waiting_count == 2
    await store.close()


async def test_the_bytes_that_wait_are_counted(tmp_path: Path) -> None:
    """The bytes are those of the bodies that wait: after a replacement, a removal, and reopening."""
    store = await open_store(tmp_path)
    await kept(store, "state", is_state=True)
    await kept(store, "a state", is_state=True)
    await kept(store, "event", is_state=False)
    assert (store.waiting_count, store.waiting_bytes) == (1, len("event"))
    await kept(store, "another", is_state=False)
    await store.close()

    store = await open_store(tmp_path)
    assert (store.waiting_count, store.waiting_bytes) == (2, len("event" + "another"))
    await store.remove([(await store.oldest(1))[0].number])
    assert (store.waiting_count, store.waiting_bytes) == (1, len("another"))
    await store.close()


async def test_events_that_waited_too_long_are_dropped_and_counted(tmp_path: Path) -> None:
    """The oldest are dropped, also those of an earlier run; the young ones stay, in order."""
    store = await open_store(tmp_path)
    for name in ("a", "b"):
        await kept(store, name, is_state=False)
    await store.close()
    _age(tmp_path, 3600.0)

    store = await open_store(tmp_path, age_s=1800.0)
    assert store.waiting_count == 2
    await kept(store, "c", is_state=False)
    assert [each.id for each in await store.oldest(10)] == ["c"]
    assert (store.waiting_count, store.waiting_bytes, store.dropped_count) == (1, 1, 2)
    await store.close()


async def test_old_events_go_where_nothing_is_kept(tmp_path: Path) -> None:
    """A full outbox keeps nothing new; yet its old events go, and make room."""
    store = await open_store(tmp_path)
    await kept(store, "a", is_state=False)
    await store.close()
    _age(tmp_path, 3600.0)

    store = await open_store(tmp_path, age_s=7200.0)
    await store.drop_old()
    assert (store.waiting_count, store.dropped_count) == (1, 0)
    await store.close()

    store = await open_store(tmp_path, age_s=1800.0)
    await store.drop_old()
    assert (store.waiting_count, store.waiting_bytes, store.dropped_count) == (0, 0, 1)
    await store.close()


async def test_a_clock_that_is_set_makes_no_event_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node may boot in another year, until its clock is set: the events from before that are as young as ever."""
    store, real = await open_store(tmp_path, age_s=1800.0), time.time
    await kept(store, "a", is_state=False)
    monkeypatch.setattr(time, "time", lambda: real() + 3600.0)
    await kept(store, "b", is_state=False)
    a, b = await store.oldest(10)
    assert (a.id, b.id) == ("a", "b")
    assert b.stored_s - a.stored_s < 1800.0
    await store.close()


async def test_a_full_disk_is_named_and_what_was_kept_before_stays(tmp_path: Path) -> None:
    """An event that finds no room is refused with the cause; once there is room, it is kept behind the others."""
    store = await open_store(tmp_path)
    await kept(store, "a", is_state=False)
    database = store._file.database  # full for this file alone
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    database.execute(f"PRAGMA max_page_count = {pages}")
    large = Entry("b", "subject", bytes(1 << 20), carries_state=True)
    with pytest.raises(StoreError, match=r"full.*free some room on its disk"):
        await store.keep((large,), Tasks(), Checkpoint("boot", JournalPosition()))
    assert store.failures_count == 1
    database.execute("PRAGMA max_page_count = 100000")
    await store.keep((large,), Tasks(), Checkpoint("boot", JournalPosition()))
    assert [each.id for each in await store.oldest(10)] == ["a", "b"]
    await store.close()


async def test_a_read_only_disk_is_named(tmp_path: Path) -> None:
    """An event that cannot be written is refused with the cause and a remedy; what was kept before stays."""
    store = await open_store(tmp_path)
    await kept(store, "a", is_state=False)
    store._file.database.execute("PRAGMA query_only = ON")  # SQLite's own read-only disk
    with pytest.raises(StoreError, match=r"readonly database.*dmesg.*mount it writable"):
        await kept(store, "b", is_state=False)
    assert store.failures_count == 1
    store._file.database.execute("PRAGMA query_only = OFF")
    assert [each.id for each in await store.oldest(10)] == ["a"]
    await store.close()


async def test_new_events_leave_room_to_remove_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a disk that is nearly full nothing new is kept until old events are removed, whose room is used again."""
    store, real = await open_store(tmp_path), os.statvfs(tmp_path)
    large = Entry("a", "subject", bytes(2 << 20), carries_state=True)
    await store.keep((large,), Tasks(), Checkpoint("boot", JournalPosition()))
    blocks = (RESERVE_BYTES - (1 << 20)) // real.f_frsize
    nearly_full = os.statvfs_result((*real[:3], blocks, blocks, *real[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: nearly_full)
    with pytest.raises(StoreError, match="free some room on its disk"):
        await kept(store, "b", is_state=False)
    await store.remove([(await store.oldest(1))[0].number])
    await kept(store, "b", is_state=False)
    assert [each.id for each in await store.oldest(10)] == ["b"]
    await store.close()


async def test_a_small_disk_takes_events_again_once_old_ones_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's log keeps its length; on a disk that events once filled, it takes no room from later ones."""
    real, room_bytes = os.statvfs(tmp_path), 100 * MIB

    def small_disk(_: Path) -> os.statvfs_result:
        used_bytes = sum(file.stat().st_size for file in tmp_path.iterdir())
        blocks = max(0, room_bytes - used_bytes) // real.f_frsize
        return os.statvfs_result((*real[:3], blocks, blocks, *real[5:]))

    monkeypatch.setattr(os, "statvfs", small_disk)
    store = await open_store(tmp_path)
    large = Entry("a", "subject", bytes(13 * MIB // 2), carries_state=True)
    await store.keep((large,), Tasks(), Checkpoint("boot", JournalPosition()))
    room_bytes = 14 * MIB
    with pytest.raises(StoreError, match="free some room on its disk"):
        await kept(store, "b", is_state=False)
    await store.remove([(await store.oldest(1))[0].number])
    await kept(store, "c", is_state=False)
    assert [each.id for each in await store.oldest(10)] == ["c"]
    await store.close()


async def test_more_events_at_once_need_more_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that would use up the room for removing them are refused; in smaller numbers they are kept."""
    store, real = await open_store(tmp_path), os.statvfs(tmp_path)
    blocks = (RESERVE_BYTES + MIB) // real.f_frsize
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*real[:3], blocks, blocks, *real[5:])))
    entries = [Entry(f"{number}", "subject", bytes(MIB), carries_state=True) for number in range(4)]
    with pytest.raises(StoreError, match="free some room on its disk"):
        await store.keep(entries, Tasks(), Checkpoint("boot", JournalPosition()))
    for each in entries:
        await store.keep((each,), Tasks(), Checkpoint("boot", JournalPosition()))
    assert store.waiting_count == 4
    await store.close()


def _age(directory: Path, seconds: float) -> None:
    """Make the events that wait older."""
    with contextlib.closing(sqlite3.connect(directory / FILE_NAME)) as database, database:
        database.execute("UPDATE entries SET stored_s = stored_s - ?", (seconds,))


async def test_a_task_that_is_no_more_is_forgotten(tmp_path: Path) -> None:
    """The table on disk is the last one kept, not the union of all."""
    one, two = life(1), life(2)
    store = await open_store(tmp_path)
    await store.keep((), Tasks(lives={one.key: one, two.key: two}), Checkpoint("boot", JournalPosition()))
    await store.keep((), Tasks(lives={two.key: two}), Checkpoint("boot", JournalPosition()))
    await store.close()
    store = await open_store(tmp_path)
    assert (await store.kept()).lives == (two,)
    await store.close()


async def test_only_the_last_deaths_are_kept(tmp_path: Path) -> None:
    """File and table remember the last deaths, neither grows for ever, and those of another boot are forgotten."""
    store = await open_store(tmp_path)
    tasks = Tasks()
    for start in range(0, 2 * REMEMBERED_DEATHS + 20, 100):
        for pid in range(start, start + 100):
            tasks, _ = end(tasks, ProcessKey(pid, 1), 0.0)
        await store.keep((), tasks, Checkpoint("boot", JournalPosition()))
    await store.close()
    store = await open_store(tmp_path)
    kept = await store.kept()
    assert list(kept.dead) == list(tasks.dead)[-REMEMBERED_DEATHS:]
    assert REMEMBERED_DEATHS <= len(tasks.dead) <= 2 * REMEMBERED_DEATHS
    assert (len(kept.dead), list(kept.dead)[-1]) == (REMEMBERED_DEATHS, ProcessKey(start + 99, 1))
    await store.keep((), Tasks(), Checkpoint("another boot", JournalPosition()))
    assert (await store.kept()).dead == {}
    await store.close()


async def test_a_newer_state_replaces_a_waiting_state_and_no_task_event(tmp_path: Path) -> None:
    """During an outage the disk keeps only the newest state event, and every task event."""
    store = await open_store(tmp_path)
    for name, is_state in (("t1", False), ("s1", True), ("s2", True), ("t2", False), ("s3", True)):
        await kept(store, name, is_state=is_state)
    assert [each.id for each in await store.oldest(10)] == ["t1", "t2", "s3"]
    await store.close()


async def test_a_state_that_is_being_sent_is_not_replaced(tmp_path: Path) -> None:
    """A state event that may be in the stream already keeps its id until it is acknowledged."""
    store = await open_store(tmp_path)
    await kept(store, "s1", is_state=True)
    (taken,) = await store.oldest(10)
    await kept(store, "s2", is_state=True)
    assert [each.id for each in await store.oldest(10)] == ["s1", "s2"]
    await store.remove([taken.number])
    assert [each.id for each in await store.oldest(10)] == ["s2"]
    await store.close()


async def test_a_second_monitor_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    """A second monitor is refused with the name of the setting.

    Two monitors would publish the same outbox and change the same epoch.
    """
    store = await open_store(tmp_path)
    with pytest.raises(InputError, match=r"PLIMSOLL_STATE_DIR.*another monitor"):
        await open_store(tmp_path)
    await store.close()
    await (await open_store(tmp_path)).close()


async def test_only_the_monitors_own_user_reads_the_files(tmp_path: Path) -> None:
    """The events name all tenants of the node, so every file is private, also one that was made for all to read."""
    (tmp_path / FILE_NAME).touch(0o644)
    store = await open_store(tmp_path)
    await kept(store, "a", is_state=False)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}  # noqa: ASYNC240 - a test may block
    await store.close()
    assert len(modes) > 1
    assert set(modes.values()) == {0o600}


async def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    """A monitor that cannot read its outbox begins a new one, and keeps the damaged file for inspection."""
    (tmp_path / FILE_NAME).write_bytes(b"this is no database" * 1000)
    store = await open_store(tmp_path)
    await store.keep((entry("a"),), Tasks(), Checkpoint("boot", JournalPosition()))
    assert store.waiting_count == 1
    await store.close()
    kept_aside = [name for name in os.listdir(tmp_path) if name.startswith("monitor.db.damaged-")]  # noqa: PTH208 - a test may block
    assert len(kept_aside) == 1


async def test_a_directory_that_cannot_be_written_is_refused() -> None:
    """The message names variable, value and remedy."""
    with pytest.raises(InputError, match=r"PLIMSOLL_STATE_DIR.*'/proc/none'.*writable"):
        await open_store(Path("/proc/none"))
