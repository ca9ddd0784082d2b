"""A CUDA program, over the driver API, that obeys commands on its standard input.

`context GPU`, `alloc MIB`, `free` (the newest memory), `work SECONDS` (one kernel), `sleep SECONDS`, `crash`, and
`fork GPU MIB SECONDS`: a child makes a context of its own, holds memory for this long at least, and ends after its
parent. A fork comes before the context, because CUDA's contexts do not survive one. The program ends at its input's
end.

After each command it prints a JSON line: process, command, and CLOCK_MONOTONIC in nanoseconds just before the command
began. Delays that count from that moment are never measured too short.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

MIB = 1024 * 1024
LOOK_S = 0.05
START_TICKS = 19  # field 22 of /proc/self/stat, counted after the command's name


def check(status: int) -> None:
    """End the program at an error of the driver."""
    if status:
        sys.exit(f"the driver returned {status}")


def report(what: str, at_ns: int) -> None:
    """Print that a command was carried out."""
    start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[START_TICKS])
    line = {"pid": os.getpid(), "start_ticks": start_ticks, "what": what, "at_ns": at_ns}
    os.write(1, json.dumps(line).encode() + b"\n")  # one write: parent and child share the pipe


class Cuda:
    """The driver, and the memory that this process holds."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._context = ctypes.c_void_p()
        self._pointers: list[ctypes.c_uint64] = []

    def context(self, gpu: int) -> None:
        """Make a context."""
        check(self._driver.cuInit(0))
        check(self._driver.cuCtxCreate_v2(ctypes.byref(self._context), 0, gpu))

    def alloc(self, mib: int) -> None:
        """Hold more memory."""
        self._pointers.append(ctypes.c_uint64())
        check(self._driver.cuMemAlloc_v2(ctypes.byref(self._pointers[-1]), ctypes.c_size_t(mib * MIB)))

    def free(self) -> None:
        """Give the newest memory back."""
        check(self._driver.cuMemFree_v2(self._pointers.pop()))

    def work(self, seconds: float) -> None:
        """Launch a kernel of this length, and do not wait for it."""
        module, kernel, length_ns = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64(int(seconds * 1e9))
        check(self._driver.cuModuleLoadData(ctypes.byref(module), b"any image"))
        check(self._driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"busy"))
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(length_ns))
        check(self._driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters, None))


def fork(cuda: Cuda, *commands: list[str]) -> None:
    """Have a child carry out these commands, and end after this process."""
    parent = os.getpid()
    if os.fork() == 0:
        for command in commands:
            step(cuda, command)
        while os.getppid() == parent:
            time.sleep(LOOK_S)
        os._exit(0)


def obey(cuda: Cuda, words: list[str]) -> None:
    """Carry out one command."""
    match words:
        case ["context", gpu]:
            cuda.context(int(gpu))
        case ["alloc", mib]:
            cuda.alloc(int(mib))
        case ["free"]:
            cuda.free()
        case ["work", seconds]:
            cuda.work(float(seconds))
        case ["sleep", seconds]:
            time.sleep(float(seconds))
        case ["crash"]:
            os.kill(os.getpid(), signal.SIGSEGV)
        case ["fork", gpu, mib, seconds]:
            fork(cuda, ["context", gpu], ["alloc", mib], ["sleep", seconds])
        case _:
            sys.exit(f"unknown: {words}")


def step(cuda: Cuda, words: list[str]) -> None:
    """Carry out one command, and report it."""
    at_ns = time.monotonic_ns()
    obey(cuda, words)
    report(words[0], at_ns)


def main() -> None:
    """Obey commands until the input ends."""
    cuda = Cuda()
    for line in sys.stdin:
        step(cuda, line.split())


main()
