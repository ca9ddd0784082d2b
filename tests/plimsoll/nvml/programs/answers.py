"""Reads the emulated GPU while the book gives it errors. The argument names the case; see `test_answers`."""

import os
import subprocess
import sys
from pathlib import Path

import pynvml

from plimsoll.native import EMULATOR
from plimsoll.nvml.library import Nvml
from plimsoll.nvml.readings import GpuSample, NvmlAwayError


def fail(function: str, error: int) -> None:
    """Let functions of NVML whose names begin so return an error."""
    subprocess.run([EMULATOR / "book", "fail", "0", function, str(error)], check=True)


def away() -> NvmlAwayError:
    """The error of the next reading."""
    try:
        nvml.read(None)
    except NvmlAwayError as error:
        return error
    raise AssertionError("the driver answers")


nvml, case = Nvml(), sys.argv[1]
[before] = nvml.read(None)
library = Path(os.environ["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"
seen: GpuSample = before
match case:
    case "memory" | "processes":
        names = {"memory": "nvmlDeviceGetMemoryInfo", "processes": "nvmlDeviceGetComputeRunningProcesses"}
        fail(names[case], pynvml.NVML_ERROR_NOT_SUPPORTED)
        [seen] = nvml.read(None)
        assert not nvml.failing
        assert seen.lists_processes == (case == "memory")
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        expected = pages if case == "memory" else before.reading.total_bytes
        assert seen.reading.total_bytes == expected
        assert 0 < seen.reading.used_bytes < expected or case == "processes"
    case "mismatch":
        fail("nvml", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        assert away().needs_restart
        assert "restart the machine" in away().remedy
    case "unloaded":
        fail("nvml", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        assert not away().needs_restart
    case "replaced":
        new = library.with_suffix(".new")
        new.write_bytes(library.read_bytes())
        new.rename(library)
        assert nvml.read(None), "the old file works until the module is replaced too"
        fail("nvml", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        assert away().needs_restart
