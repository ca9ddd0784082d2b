"""The broker's reading of processes from `/proc`."""

from pathlib import Path

import pytest

from hook.broker import processes
from hook.broker.core.ids import full_start_ticks, owner_word
from plimsoll.part import processes as part_processes


@pytest.mark.parametrize("ticks", [29, 58, 3_900_002, 2**33 + 7])
def test_a_process_that_has_just_begun_has_begun_before_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ticks: int
) -> None:
    """A process that lives for less than a tick keeps its start time, though the uptime is a rounded number."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    hundredths = ticks * 100 // processes.TICKS_PER_S
    tmp_path.joinpath("uptime").write_text(f"{hundredths // 100}.{hundredths % 100:02} 17.00\n")
    assert full_start_ticks(owner_word(5, ticks), processes.uptime_ticks()) == ticks


@pytest.mark.parametrize(("own_pid", "is_there"), [(7, True), (0, False)])
def test_a_process_that_gave_its_pid_back_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_pid: int, *, is_there: bool
) -> None:
    """The kernel shows an exiting process without a pid for a moment. It is not taken for another process then."""
    for module in (processes, part_processes):
        monkeypatch.setattr(module, "PROC", tmp_path)
    folder = tmp_path / "4495"
    folder.mkdir()
    folder.joinpath("stat").write_text(f"4495 (a) Z {' '.join(['0'] * 18)} 3900002 {' '.join(['0'] * 30)}")
    folder.joinpath("status").write_text(f"Name:\ta\nNSpid:\t4495\t{own_pid}\nThreads:\t1\n")
    assert (processes.read_process(4495) is not None) == is_there
