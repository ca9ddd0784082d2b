"""The simulator's program: its name, Ctrl-C from its first moment on, and outputs that cannot be written."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from simulator.command import main
from tests.placer.local.world import REPOSITORY
from tests.servers.waiting import until_true

GAIA = ("kubeshare", "--figures", "3", "--jobs", "1", "--runs", "1")


async def started(*words: str, stdout: int = asyncio.subprocess.PIPE) -> asyncio.subprocess.Process:
    """The simulator as a process."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "simulator", *words),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("pause_s", [0.0, 0.05, 0.2])
async def test_ctrl_c_at_the_start_is_no_traceback(pause_s: float) -> None:
    """From the moment at which `plimsoll simulate` becomes the simulator, Ctrl-C ends it silently."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "simulate", "kang"),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    words = Path(f"/proc/{process.pid}/cmdline")
    await until_true(lambda: b"program.py\0simulator\0" in words.read_bytes())
    await asyncio.sleep(pause_s)
    process.send_signal(signal.SIGINT)
    _, said = await process.communicate()
    assert process.returncode in {-signal.SIGINT, 130}
    assert said == b""


async def test_a_full_disk_is_one_line() -> None:
    """Where standard output takes nothing, one line says so."""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        process = await started(*GAIA, stdout=full)
    finally:
        os.close(full)
    _, said = await process.communicate()
    assert process.returncode == 1
    assert said.decode().splitlines() == [
        "simulator: standard output cannot be written (No space left on device); give it a place with room"
    ]


def test_a_folder_for_charts_that_cannot_be_made_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file in the folder's place is named before anything is replayed."""
    file = tmp_path / "file"
    file.write_text("")
    for words in (GAIA, ("convgpu", "--draws", "1", "--containers", "4")):
        assert main([*words, "--charts", str(file)]) == 2
        shown = capsys.readouterr()
        assert (shown.out, str(file) in shown.err) == ("", True)


def test_help_has_the_name_by_which_it_was_called(capsys: pytest.CaptureFixture[str]) -> None:
    """`plimsoll simulate --help` names no other program."""
    with pytest.raises(SystemExit):
        main(["--as", "plimsoll simulate", "trace", "--help"])
    assert "usage: plimsoll simulate trace" in capsys.readouterr().out
