"""NVML's errors: what a card does not offer is no fault, and a replaced driver needs a new process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from plimsoll.native import EMULATOR
from plimsoll.nvml.calls import away

NODE = "[gpu 0]\nmodel = NVIDIA GB10\nmemory = 8Gi\nuuid = GPU-00000000-0000-4000-8000-000000000000\n"
PROGRAM = Path(__file__).parent / "programs" / "answers.py"


@pytest.mark.parametrize("case", ["memory", "processes", "mismatch", "unloaded", "replaced"])
def test_each_answer_has_its_meaning(tmp_path: Path, case: str) -> None:
    """A GPU without memory of its own has the machine's; a process ends for a replaced driver, and for no other."""
    node = tmp_path / "node"
    node.write_text(NODE)
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(EMULATOR / name, tmp_path / name)
    environment = {"PLIMSOLL_EMULATOR": str(node), "LD_LIBRARY_PATH": str(tmp_path)}
    program = (sys.executable, PROGRAM, case)
    done = subprocess.run(
        program, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_process_that_begins_beside_a_mismatch_waits() -> None:
    """A library that is newer than the kernel's module ends no process: the next one would find the same."""
    mismatch = pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    assert not away("no driver", mismatch, had_session=False).needs_restart
    assert away("no driver", mismatch, had_session=True).needs_restart
