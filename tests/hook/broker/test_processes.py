"""The broker's reading of processes from `/proc`."""

from pathlib import Path

import pytest

from hook.broker import processes
from hook.broker.core.ids import full_start_ticks, owner_word


@pytest.mark.parametrize("ticks", [29, 58, 3_900_002, 2**33 + 7])
def test_a_process_that_has_just_begun_has_begun_before_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ticks: int
) -> None:
    """A process that lives for less than a tick keeps its start time, though the uptime is a rounded number."""
    monkeypatch.setattr(processes, "PROC", tmp_path)
    hundredths = ticks * 100 // processes.TICKS_PER_S
    tmp_path.joinpath("uptime").write_text(f"{hundredths // 100}.{hundredths % 100:02} 17.00\n")
    assert full_start_ticks(owner_word(5, ticks), processes.uptime_ticks()) == ticks
