"""A part does not keep the memory that its imports have freed."""

import subprocess
import sys

PROGRAM = """
import ctypes, re
from pathlib import Path
from plimsoll.part.heap import settle_heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]

def resident_kib():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

blocks = [libc.malloc(64 << 10) for _ in range(1024)]
for block in blocks:
    ctypes.memset(block, 1, 64 << 10)
for block in blocks[:-1]:  # the last one keeps the top of the heap in use
    libc.free(block)
before = resident_kib()
settle_heap()
print((before - resident_kib()) // 1024)
"""


def test_freed_memory_goes_back_to_the_kernel() -> None:
    """Nearly all of 64 MiB that were freed below a block in use are no longer resident."""
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(found.stdout) > 48
