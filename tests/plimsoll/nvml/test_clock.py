"""The driver dates its figures by the wall clock, which may be set back by hours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.native import EMULATOR
from tests.emulator.nvml_program import NODE

PROGRAM = Path(__file__).parent / "programs" / "clock_set_back.py"


@pytest.mark.parametrize("what", ["samples", "usage"])
def test_a_clock_that_is_set_back_hides_no_utilisation(tmp_path: Path, what: str) -> None:
    """Utilisation is read on at once, and figures with times that lie ahead are dropped."""
    node = tmp_path / "node"
    node.write_text(NODE)
    environment = {"PLIMSOLL_EMULATOR": str(node), "LD_LIBRARY_PATH": str(EMULATOR)}
    program = (sys.executable, PROGRAM, what)
    done = subprocess.run(
        program, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
