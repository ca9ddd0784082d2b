"""The gate file is always the same and always whole, and every waiting thread is woken."""

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hook.broker.shares.gate_files import GateConstants, GateFile, open_gate
from plimsoll.broker.pages import GATE_MAGIC, GATE_METERED, GATE_OPEN, GATE_SHUT, GATE_STEP, LATE_NS, VERSION
from plimsoll.broker.pages import Gate as GatePage
from plimsoll.part.clock import machine_ns
from tests.hook.broker.gateview import GateView
from tests.servers.waiting import PATIENCE_S

PACE = GateConstants(ahead_us=10_000, alone_us=100_000, slice_us=2000)


@contextlib.contextmanager
def opened(directory: Path, constants: GateConstants = PACE) -> Iterator[GateFile]:
    """The broker's side of a gate, for the length of a block."""
    gate = open_gate(directory, constants)
    try:
        yield gate
    finally:
        gate.close()


def test_a_new_gate_is_open_and_says_how_to_wait(tmp_path: Path) -> None:
    """A new file holds its head, its constants and an open gate, and every tenant may read it."""
    with opened(tmp_path) as gate:
        page = GateView(tmp_path).page
        assert (page.magic, page.version, page.size, page.word) == (
            GATE_MAGIC,
            VERSION,
            ctypes.sizeof(GatePage),
            GATE_OPEN,
        )
        assert (page.ahead_us, page.alone_us, page.slice_us, page.sharers) == (10_000, 100_000, 2000, 1)
        assert page.beat_ns == 0  # the sharing of compute time writes the first beat
        assert not gate.was_unheld
        assert (tmp_path / "gate").stat().st_mode & 0o777 == 0o644


def _cut(path: Path) -> None:
    os.truncate(path, 5)


def _grow(path: Path) -> None:
    os.truncate(path, 5000)


def _scribble(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * 16)


@pytest.mark.parametrize("damage", [_cut, _grow, _scribble])
def test_a_damaged_gate_is_mended_in_place(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    """After any damage the file is repaired in place, as processes may wait on it."""
    path = tmp_path / "gate"
    with opened(tmp_path):
        inode = path.stat().st_ino
    damage(path)
    with opened(tmp_path, GateConstants(1000, 2500, 500)) as gate:
        view = GateView(tmp_path)
        assert (path.stat().st_ino, path.stat().st_size) == (inode, ctypes.sizeof(GatePage))
        assert (view.page.magic, view.page.version, view.page.size) == (
            GATE_MAGIC,
            VERSION,
            ctypes.sizeof(GatePage),
        )
        assert (view.page.ahead_us, view.page.alone_us, view.page.slice_us) == (1000, 2500, 500)
        gate.set(GATE_STEP + GATE_SHUT)
        assert view.word == GATE_STEP + GATE_SHUT


def test_a_gate_without_room_on_the_disk_is_not_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a full disk a gate file of any length is not mapped, as a write to a hole would kill the broker."""

    def is_full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", is_full)  # A test cannot fill the disk for this file alone.
    path = tmp_path / "gate"
    for size in (0, ctypes.sizeof(GatePage)):
        path.write_bytes(b"")
        os.truncate(path, size)
        with pytest.raises(OSError, match="no space left"):
            open_gate(tmp_path, PACE)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize("put", [Path.mkdir, _link, os.mkfifo])
def test_what_is_no_file_gives_way_to_one(tmp_path: Path, put: Callable[[Path], None]) -> None:
    """A directory, link or pipe in the file's place is replaced, and a link's target is left alone."""
    before = Path("/etc/passwd").read_bytes()
    put(tmp_path / "gate")
    with opened(tmp_path):
        assert GateView(tmp_path).page.magic == GATE_MAGIC
    assert (tmp_path / "gate").is_file()
    assert not (tmp_path / "gate").is_symlink()
    assert Path("/etc/passwd").read_bytes() == before


def test_the_word_outlives_its_broker(tmp_path: Path) -> None:
    """The word of an earlier broker stands until the next one writes."""
    with opened(tmp_path) as gate:
        gate.set(7 * GATE_STEP + GATE_METERED)
    with opened(tmp_path) as gate:
        assert gate.word == GateView(tmp_path).word == 7 * GATE_STEP + GATE_METERED


@pytest.mark.parametrize(
    ("word", "gone_ns", "was_unheld"),
    [
        (GATE_SHUT, LATE_NS + 1, True),
        (GATE_SHUT, LATE_NS, False),
        (GATE_SHUT, -1, True),
        (GATE_OPEN, LATE_NS + 1, False),
    ],
)
def test_a_broker_knows_whether_nobody_held_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: int, gone_ns: int, *, was_unheld: bool
) -> None:
    """A broker reports a container that no broker held.

    Its gate was not open, and its beat is older than the library's wait, or from before the machine's boot.
    """
    now_ns = machine_ns()
    monkeypatch.setattr("hook.broker.shares.gate_files.machine_ns", lambda: now_ns)
    with opened(tmp_path) as gate:
        gate.set(word)
    with (tmp_path / "gate").open("r+b") as file:
        page = GatePage.from_buffer_copy(file.read())
        page.beat_ns = now_ns - gone_ns
        file.seek(0)
        file.write(bytes(page))
    with opened(tmp_path) as gate:
        assert gate.was_unheld == was_unheld
        gate.beat()
        assert GateView(tmp_path).page.beat_ns == now_ns


def test_everybody_who_waits_is_woken(tmp_path: Path) -> None:
    """Several threads that wait on a read-only mapping of the word go on as soon as it changes."""
    with opened(tmp_path) as gate, ThreadPoolExecutor(3) as threads:
        gate.set(GATE_STEP + GATE_SHUT)
        view = GateView(tmp_path)
        waiting = [threads.submit(view.wait, view.word, PATIENCE_S) for _ in range(3)]
        time.sleep(0.1)  # Most threads wait by now; a late one reads the new word.
        gate.set(2 * GATE_STEP + GATE_METERED)
        assert [each.result(PATIENCE_S / 2) for each in waiting] == [True] * 3


def test_who_waits_at_a_lost_gate_is_let_through(tmp_path: Path) -> None:
    """If the file is gone another takes over its state, and the old one is opened, as nobody writes it again."""
    old = open_gate(tmp_path, PACE)
    view = GateView(tmp_path)
    old.set(3 * GATE_STEP + GATE_SHUT)
    (tmp_path / "gate").unlink()
    with opened(tmp_path) as new:
        assert new.identity != old.identity
        new.take_over(old)
        assert view.word == 4 * GATE_STEP + GATE_OPEN
        assert GateView(tmp_path).word == 3 * GATE_STEP + GATE_SHUT
