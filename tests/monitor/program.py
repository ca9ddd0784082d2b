"""An ordinary CUDA program, over the driver API, that obeys commands on its standard input.

`alloc MIB`, `refused MIB` (which must fail), `free`, `spike MIB` (allocate and free at once), `churn MIB SECONDS`
(allocate and free in a loop), `copy MIB` (which keeps the GPU busy), `launch SECONDS` (a kernel of that length),
`leave` and `return` (the context); it answers each line with `ok` when done. At the first `ok` the context is there,
and the commands about memory in its arguments are carried out.
"""

import ctypes
import sys
import time

CONTEXT_GPU = int(sys.argv[1])
MIB = 1024 * 1024
OUT_OF_MEMORY = 2


def check(status: int) -> None:
    """End the program at an error of the driver."""
    if status:
        sys.exit(f"the driver returned {status}")


def main() -> None:
    """Make a context, then obey the commands."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, pointers = ctypes.c_void_p(), list[ctypes.c_uint64]()
    check(cuda.cuInit(0))
    check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, CONTEXT_GPU))
    for line in sys.argv[2:]:
        memory(cuda, pointers, line.split())
    answer()
    for line in sys.stdin:
        match line.split():
            case ["launch", seconds]:
                launch(cuda, float(seconds))
            case ["leave"]:
                check(cuda.cuCtxDestroy_v2(context))
            case ["return"]:
                check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, CONTEXT_GPU))
            case words:
                memory(cuda, pointers, words)
        answer()


def memory(cuda: ctypes.CDLL, pointers: list[ctypes.c_uint64], words: list[str]) -> None:
    """Allocate and free memory."""
    match words:
        case ["alloc", mib]:
            pointers.append(ctypes.c_uint64())
            check(cuda.cuMemAlloc_v2(ctypes.byref(pointers[-1]), ctypes.c_size_t(int(mib) * MIB)))
        case ["refused", mib]:
            status = cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(int(mib) * MIB))
            check(0 if status == OUT_OF_MEMORY else 1)
        case ["free"]:
            check(cuda.cuMemFree_v2(pointers.pop()))
        case ["spike", mib]:
            pointer = ctypes.c_uint64()
            check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(int(mib) * MIB)))
            check(cuda.cuMemFree_v2(pointer))
        case ["churn", mib, seconds]:
            churn(cuda, int(mib) * MIB, float(seconds))
        case ["copy", mib]:
            for _ in range(int(mib)):
                check(cuda.cuMemcpyHtoD_v2(pointers[-1], bytes(MIB), ctypes.c_size_t(MIB)))
        case _:
            sys.exit(f"unknown: {words}")


def churn(cuda: ctypes.CDLL, size_bytes: int, seconds: float) -> None:
    """Allocate and free in a loop, and hold the memory about half of the time."""
    pointer, end_s = ctypes.c_uint64(), time.monotonic() + seconds
    while time.monotonic() < end_s:
        check(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size_bytes)))
        time.sleep(0.001)
        check(cuda.cuMemFree_v2(pointer))
        time.sleep(0.001)


def launch(cuda: ctypes.CDLL, seconds: float) -> None:
    """Launch one kernel, and do not wait for it."""
    module, kernel, length_ns = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(int(seconds * 1e9))
    check(cuda.cuModuleLoadData(ctypes.byref(module), b"any image"))
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"busy"))
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length_ns))
    check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))


def answer() -> None:
    """Report that the command is done."""
    sys.stdout.write("ok\n")
    sys.stdout.flush()


main()
