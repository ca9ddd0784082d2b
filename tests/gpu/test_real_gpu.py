"""`plimsoll run` on a machine with a GPU: `make gpu`. Deselected elsewhere.

Everything is the product's own: `plimsoll run` starts a private broker, picks a GPU and preloads the library. The
program is `busy`, whose kernel is PTX on a real GPU. To try these tests without one, set PLIMSOLL_EMULATOR and
LD_LIBRARY_PATH as emulator/README.md says.
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from plimsoll.native import PROGRAMS
from plimsoll.quantity import GIB

pytestmark = pytest.mark.gpu

LINE_BYTES = 2 * GIB
PATHS = ("alloc", "pitch", "managed", "async", "create")

SHOW_MEMORY = "tests.gpu.programs.show_memory"


async def run_under_plimsoll(root: Path, *command: str) -> tuple[int, list[str]]:
    """Run a command with a line of 2 GiB; returns its exit code and output lines."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "plimsoll", "run", "--gpu-memory", "2Gi", "--broker-root", str(root), "--"),
        *command,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode().splitlines()


@pytest.mark.parametrize("path", PATHS)
async def test_a_program_within_its_line_runs(tmp_path: Path, path: str) -> None:
    """1 GiB of a line of 2 GiB is allocated in every way, and the kernels run."""
    busy = (
        str(PROGRAMS / "busy"),
        "--memory",
        "1Gi",
        "--path",
        path,
        "--kernel-ms",
        "5",
        "--iterations",
        "10",
    )
    code, lines = await run_under_plimsoll(tmp_path, *busy)
    assert code == 0, lines
    assert json.loads(lines[-1]) == {"phase": "done", "iterations": 10}


@pytest.mark.parametrize("path", PATHS)
async def test_a_program_past_its_line_is_refused(tmp_path: Path, path: str) -> None:
    """3 GiB of a line of 2 GiB end in CUDA's out-of-memory error, in every way."""
    busy = (str(PROGRAMS / "busy"), "--memory", "3Gi", "--steps", "6", "--path", path, "--iterations", "1")
    code, lines = await run_under_plimsoll(tmp_path, *busy)
    assert code == 2, lines
    assert json.loads(lines[-1])["error"] == "CUDA_ERROR_OUT_OF_MEMORY"


async def test_a_program_sees_its_line_as_the_whole_gpu(tmp_path: Path) -> None:
    """Both cuMemGetInfo and NVML show 2 GiB in total, and no more than that free."""
    code, lines = await run_under_plimsoll(tmp_path, sys.executable, "-m", SHOW_MEMORY)
    assert code == 0, lines
    seen = json.loads(lines[-1])
    assert seen["cuda"] == seen["nvml"] == LINE_BYTES
    assert 0 < seen["cuda_free"] <= LINE_BYTES
    assert 0 < seen["nvml_free"] <= LINE_BYTES
