"""Prints how many MiB of 64 that were freed below a block in use go back to the kernel."""

import ctypes
import re
import sys
from pathlib import Path

from plimsoll.part.entry import settle_heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]


def _resident_kib() -> int:
    found = re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


blocks = [libc.malloc(64 << 10) for _ in range(1024)]
for block in blocks:
    ctypes.memset(block, 1, 64 << 10)
for block in blocks[:-1]:  # the last one keeps the top of the heap in use
    libc.free(block)
before_kib = _resident_kib()
settle_heap()
sys.stdout.write(f"{(before_kib - _resident_kib()) // 1024}\n")
