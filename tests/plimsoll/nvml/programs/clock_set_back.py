"""Reads the utilisation of a GPU at work while the clock jumps. The argument names the reading: samples or usage."""

import ctypes
import sys
import time
from collections.abc import Mapping
from ctypes import byref

from plimsoll.ids import GpuUuid
from plimsoll.nvml.library import Nvml

HOUR_US = 3_600_000_000

cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuCtxCreate_v2(byref(context), 0, 0) == 0
module, kernel, length_ns = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(200_000_000)
assert cuda.cuModuleLoadData(byref(module), b"any image") == 0
assert cuda.cuModuleGetFunction(byref(kernel), module, b"busy") == 0
parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length_ns))
assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None) == 0
assert cuda.cuCtxSynchronize() == 0
time.sleep(0.2)
nvml, real_ns = Nvml(), time.time_ns


def read(since_us: Mapping[GpuUuid, int]) -> int:
    """The number of figures since then."""
    if sys.argv[1] == "samples":
        return sum(len(gpu.utilisation) for gpu in nvml.read(since_us))
    return sum(map(len, nvml.usage(since_us, time.time_ns() // 1000 - 5_000_000).values()))


gpus = [gpu.reading.uuid for gpu in nvml.read(None)]
assert read(dict.fromkeys(gpus, 0)) > 0
assert read(dict.fromkeys(gpus, real_ns() // 1000 + HOUR_US)) > 0, "nothing since a time that lies ahead"
time.time_ns = lambda: real_ns() - 1000 * HOUR_US
assert read(dict.fromkeys(gpus, 0)) == 0, "figures from before the clock was set back"
