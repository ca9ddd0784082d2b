"""The broker's reading of processes from `/proc`."""

import os
from pathlib import Path

import pytest

from hook.broker import proc
from hook.broker.core.ids import full_start_ticks, owner_word
from plimsoll.part import processes as part_processes
from plimsoll.part.clock import TICKS_PER_S


@pytest.mark.parametrize("ticks", [29, 58, 3_900_002, 2**33 + 7])
def test_a_process_that_has_just_begun_has_begun_before_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ticks: int
) -> None:
    """A process that lives for less than a tick keeps its start time, though the uptime is a rounded number."""
    monkeypatch.setattr(proc, "PROC", tmp_path)
    hundredths = ticks * 100 // TICKS_PER_S
    tmp_path.joinpath("uptime").write_text(f"{hundredths // 100}.{hundredths % 100:02} 17.00\n")
    assert full_start_ticks(owner_word(5, ticks), proc.uptime_ticks()) == ticks


@pytest.mark.parametrize(("own_pid", "is_there"), [(7, True), (0, False)])
def test_a_process_that_gave_its_pid_back_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_pid: int, *, is_there: bool
) -> None:
    """The kernel shows an exiting process without a pid for a moment. It is not taken for another process then."""
    for module in (proc, part_processes):
        monkeypatch.setattr(module, "PROC", tmp_path)
    folder = tmp_path / "4495"
    folder.mkdir()
    folder.joinpath("stat").write_text(f"4495 (a) Z {' '.join(['0'] * 18)} 3900002 {' '.join(['0'] * 30)}")
    folder.joinpath("status").write_text(f"Name:\ta\nNSpid:\t4495\t{own_pid}\nThreads:\t1\n")
    assert (proc.read_process(4495) is not None) == is_there


@pytest.mark.parametrize(("later", "is_it"), [(0, True), (1, True), (-1, True), (2, False)])
def test_a_start_time_rounded_otherwise_names_the_same_process(later: int, *, is_it: bool) -> None:
    """A time namespace shifted by parts of a tick shows a start time of one tick more or less."""
    ours = proc.read_process(os.getpid())
    assert ours is not None
    word = owner_word(os.getpid(), ours.key.start_ticks + later)
    found = proc.read_process(os.getpid(), (word,))
    assert found is not None
    assert (found.owner == word) == is_it
    assert (word in proc.find_owners(frozenset((word,)), Path(os.devnull))) == is_it


def test_a_file_in_a_tmpfs_of_its_own_is_known_by_its_file_system_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most containers' `counts` have the same inode, each in its own tmpfs; elsewhere the number alone must do."""
    monkeypatch.setattr(proc, "PROC", tmp_path)
    counts = tmp_path / "counts"
    counts.write_bytes(b"x")
    about = counts.stat()
    device = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}"
    for is_mount, shown, maps_it in ((True, device, True), (True, "fe:ff", False), (False, "fe:ff", True)):
        monkeypatch.setattr(Path, "is_mount", lambda _, answer=is_mount: answer)
        (tmp_path / "7").mkdir(exist_ok=True)
        (tmp_path / "7/maps").write_text(f"7f00-7f01 rw-s 00000000 {shown} {about.st_ino}    /counts\n")
        assert proc._identity_of(counts).is_among(proc._mapped(7)) == maps_it
