"""The CUDA driver over ctypes, for the test programs written in Python.

`cuda` calls `libcuda.so.1`, which each function looks up by dlsym as any program does, and raises `CudaError` on
every result but success. The library is loaded when this module is: only a program of its own imports it, never a
test.
"""

import ctypes
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

U64, SIZE, PTR, INT, UINT = c_uint64, c_size_t, c_void_p, c_int, c_uint
HOST: Final = ctypes.CFUNCTYPE(None, PTR)
"""A host function in a stream."""
CALLBACK: Final = ctypes.CFUNCTYPE(None, PTR, INT, PTR)
"""A callback of a stream."""
MIB: Final = 1 << 20
GIB: Final = 1 << 30
SHAPE: Final = (UINT * 6)(1, 1, 1, 1, 1, 1)
"""Grid and block of the smallest launch."""

library = ctypes.CDLL("libcuda.so.1")


class CudaError(Exception):
    """A function of the driver did not succeed."""


class Cuda:
    """The driver: each attribute that is not defined here is the driver's function of that name."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        def call(*args: object) -> None:
            code = self.raw(name, *args)
            if code:
                message = f"{name}: {self.name(code)}"
                raise CudaError(message)

        return call

    def raw(self, name: str, *args: object) -> int:
        """The code that a function returns."""
        return int(getattr(library, name)(*args))

    def name(self, code: int) -> str:
        """The name of a code."""
        text = c_char_p()
        library.cuGetErrorName(code, byref(text))
        assert text.value is not None
        return text.value.decode()

    def result(self, name: str, *args: object) -> str:
        """The name of the code that a function returns."""
        return self.name(self.raw(name, *args))

    def context(self, device: int = 0) -> c_void_p:
        """Retains a GPU's primary context and makes it current."""
        self.cuInit(0)
        context = PTR()
        self.cuDevicePrimaryCtxRetain(byref(context), device)
        self.cuCtxSetCurrent(context)
        return context

    def alloc(self, size: int) -> c_uint64:
        """Allocates device memory."""
        address = U64()
        self.cuMemAlloc_v2(byref(address), SIZE(size))
        return address

    def info(self) -> tuple[int, int]:
        """Free and total bytes of the current context's GPU."""
        free, total = SIZE(), SIZE()
        self.cuMemGetInfo_v2(byref(free), byref(total))
        return free.value, total.value

    def make(self, function: str, *args: object) -> c_void_p:
        """The handle that a function writes to its first parameter."""
        handle = PTR()
        getattr(self, function)(byref(handle), *args)
        return handle

    def kernels(self, *names: bytes) -> list[c_void_p]:
        """The kernels of these names from one module."""
        module = self.make("cuModuleLoadData", c_char_p(b"any image"))
        return [self.make("cuModuleGetFunction", module, name) for name in names]

    def kernel(self, name: bytes = b"busy") -> c_void_p:
        """A kernel from a module of its own."""
        return self.kernels(name)[0]

    def busy(self, kernel: c_void_p, ms: float, stream: c_void_p | None = None) -> None:
        """Launches a kernel of that length."""
        self.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters(int(ms * 1e6)), None)

    def spin(
        self,
        kernel: c_void_p,
        ms: float,
        address: int,
        value: int,
        stream: c_void_p | None = None,
        start_address: int = 0,
        start_value: int = 0,
    ) -> None:
        """Launches a kernel that writes a word at its start, and spins until another word holds a value."""
        values = U64(int(ms * 1e6)), U64(address), UINT(value), U64(start_address), UINT(start_value)
        pointers = (PTR * 5)(*(ctypes.addressof(one) for one in values))
        self.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    def words(self, path: str | None = None) -> tuple[Any, int]:
        """A page of page-locked words, in a file where one is named, and its address."""
        page = mmap.mmap(os.open(path, os.O_RDWR) if path else -1, 4096)
        words = (UINT * 1024).from_buffer(page)
        self.cuMemHostRegister_v2(PTR(ctypes.addressof(words)), SIZE(4096), 0)
        return words, ctypes.addressof(words)

    def elapsed(self, start: c_void_p, end: c_void_p) -> float:
        """The milliseconds between two events."""
        elapsed = c_float()
        self.cuEventElapsedTime(byref(elapsed), start, end)
        return elapsed.value

    def wait(self, condition: Callable[[], object]) -> None:
        """Waits for what another thread or the device does."""
        while not condition():
            time.sleep(0.001)


cuda = Cuda()


def parameters(length_ns: int) -> Any:  # noqa: ANN401 - an array that ctypes makes a type for
    """The parameters of a kernel that is busy for this long."""
    length = U64(length_ns)
    pointers = (PTR * 1)(ctypes.addressof(length))
    pointers.length = length  # type: ignore[attr-defined] # lives as long as what points to it
    return pointers


def aside(function: Callable[[], object]) -> None:
    """Runs a function in a thread of its own to its end."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def book(tool: str, *arguments: str) -> str:
    """The output of the emulator's book tool."""
    return subprocess.run([tool, *arguments], stdout=subprocess.PIPE, check=True, text=True).stdout


def show(value: object) -> None:
    """Prints a line of JSON."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()
