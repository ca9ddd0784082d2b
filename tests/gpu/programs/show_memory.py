"""Prints the memory of the first GPU, in total and free, as the driver and NVML show it."""

import json
import sys
from ctypes import byref, c_int, c_ubyte

import pynvml

from tests.programs.cuda import cuda

cuda.context()
free, total = cuda.info()
device, uuid = c_int(), (c_ubyte * 16)()
cuda.cuDeviceGet(byref(device), 0)
cuda.cuDeviceGetUuid(uuid, device)
text = bytes(uuid).hex()
name = "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
pynvml.nvmlInit()
seen = pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(name))
shown = {"cuda": total, "cuda_free": free, "nvml": seen.total, "nvml_free": seen.free}
sys.stdout.write(json.dumps(shown) + "\n")
