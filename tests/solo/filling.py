"""A CUDA program that makes a context, allocates until it is refused, and prints the MiB that it got.

With `threads` another thread retains the context and allocates at the same time. With `stay` the program lives until
its input ends.
"""

import ctypes
import sys
import threading

STEP_MIB = 32

cuda = ctypes.CDLL("libcuda.so.1")
got: list[int] = []


def fill() -> None:
    """Retain the primary context, and allocate in it until the driver refuses."""
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    while cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(STEP_MIB << 20)) == 0:
        got.append(STEP_MIB)


cuda.cuInit(0)
threads = [threading.Thread(target=fill) for _ in range(2 if "threads" in sys.argv else 1)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(got), flush=True)  # noqa: T201 - the answer
if "stay" in sys.argv:
    sys.stdin.read()
