"""A CUDA program that makes a context, allocates until it is refused, and prints the MiB that it got.

With `short` four processes do so, one right after another; each ends at once. With `threads` another thread retains
the context and allocates at the same time. With `stay` the program lives until its input ends.
"""

import ctypes
import os
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


def run(threads_count: int) -> None:
    """Fill the line by this many threads at once, and print what they got."""
    cuda.cuInit(0)
    threads = [threading.Thread(target=fill) for _ in range(threads_count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(sum(got), flush=True)  # noqa: T201 - the answer


if "short" in sys.argv:
    for _ in range(4):
        if os.fork() == 0:
            run(1)
            os._exit(0)
        os.wait()
else:
    run(2 if "threads" in sys.argv else 1)
if "stay" in sys.argv:
    sys.stdin.read()
