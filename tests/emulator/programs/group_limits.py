"""Evaluates an expression over the functions below, and prints its value as JSON.

The arguments: the expression, and the user as whom to evaluate it, with NVML already open.
"""

import ctypes
import json
import os
import sys
from ctypes import byref

import pynvml as n

n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)


def put(path: str, hard: int, soft: int = 0) -> int:
    asked = n.c_nvmlSetMemoryLimits_v1_t()
    asked.nameSpace, asked.softLimit, asked.hardLimit = path.encode(), soft, hard
    try:
        n.nvmlDeviceSetMemoryLimits_v1(gpu, asked)
    except n.NVMLError as error:
        return int(error.value)
    return 0


def get(path: str) -> int | list[int]:
    asked = n.c_nvmlGetMemoryLimits_v1_t()
    asked.nameSpace = path.encode()
    try:
        n.nvmlDeviceGetMemoryLimits_v1(gpu, asked)
    except n.NVMLError as error:
        return int(error.value)
    return [asked.softLimit, asked.hardLimit, asked.currentUsed]


def context() -> int:
    cuda, made = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    cuda.cuInit(0)
    return int(cuda.cuCtxCreate_v2(byref(made), 0, 0))


def alloc(size: int) -> int:
    cuda = ctypes.CDLL("libcuda.so.1")
    return int(cuda.cuMemAlloc_v2(byref(ctypes.c_uint64()), ctypes.c_size_t(size)))


os.setuid(int(sys.argv[2]))
json.dump(eval(sys.argv[1]), sys.stdout)  # noqa: S307 - the test's own
