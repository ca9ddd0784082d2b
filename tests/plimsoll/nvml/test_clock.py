"""The driver dates its figures by the wall clock, which may be set back by hours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from plimsoll.native import EMULATOR
from tests.emulator.nvml_program import NODE

READS: dict[str, str] = {
    "samples": "lambda since_us: sum(len(gpu.utilisation) for gpu in nvml.read(since_us))",
    "usage": "lambda since_us: sum(map(len, nvml.usage(since_us, time.time_ns() // 1000 - 5_000_000).values()))",
}

PROGRAM = """
import ctypes, time
from plimsoll.nvml.library import Nvml

cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
module, kernel, length_ns = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(200_000_000)
assert cuda.cuModuleLoadData(ctypes.byref(module), b"any image") == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"busy") == 0
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length_ns))
assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None) == 0
assert cuda.cuCtxSynchronize() == 0
time.sleep(0.2)
nvml, real = Nvml(), time.time_ns
read = {read}
gpus = [gpu.reading.uuid for gpu in nvml.read(None)]
assert read(dict.fromkeys(gpus, 0)) > 0
assert read(dict.fromkeys(gpus, real() // 1000 + 3_600_000_000)) > 0, "nothing since a time that lies ahead"
time.time_ns = lambda: real() - 3_600_000_000_000
assert read(dict.fromkeys(gpus, 0)) == 0, "figures from before the clock was set back"
"""


@pytest.mark.parametrize("what", READS)
def test_a_clock_that_is_set_back_hides_no_utilisation(tmp_path: Path, what: str) -> None:
    """Utilisation is read on at once, and figures with times that lie ahead are dropped."""
    node = tmp_path / "node"
    node.write_text(NODE)
    environment = {"PLIMSOLL_EMULATOR": str(node), "LD_LIBRARY_PATH": str(EMULATOR)}
    program = (sys.executable, "-c", PROGRAM.format(read=READS[what]))
    done = subprocess.run(
        program, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
