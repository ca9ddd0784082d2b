"""CUDA programs on an emulated node: `busy`, and small ones written in Python over ctypes.

What always holds: each is a process of its own, since the driver's state belongs to a process. A Python program
gets `cuda`, which calls `libcuda.so.1` and raises `CudaError` on every result but success, and prints one JSON
value.
"""

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

ROOT: Final = Path(__file__).parents[2]
LIBRARIES: Final = ROOT / "build" / "emulator"
BUSY: Final = ROOT / "build" / "bin" / "busy"
MIB: Final = 1 << 20
GIB: Final = 1 << 30
CONTEXT_BYTES: Final = 300 * MIB
PATIENCE_S: Final = 60.0

NODE: Final = """
driver = 570.124.06
cuda = 12.8
[gpu 0]
uuid = GPU-5a1c0d2e-0000-0000-0000-000000000001
model = Test GPU
memory = 8Gi
context = 300Mi
[gpu 1]
uuid = GPU-6b1c0d2e-0000-0000-0000-000000000002
memory = 4Gi
reserved = 1Gi
context = 300Mi
"""

PRELUDE: Final = """
import ctypes, json, mmap, os, threading, time
from ctypes import byref, c_char, c_char_p, c_double, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
U64, SIZE, PTR, INT, UINT = c_uint64, c_size_t, c_void_p, c_int, c_uint
MIB, GIB = 1 << 20, 1 << 30
library = ctypes.CDLL("libcuda.so.1")
class CudaError(Exception):
    pass
class Cuda:
    def raw(self, name, *args):
        return getattr(library, name)(*args)
    def name(self, code):
        text = c_char_p()
        library.cuGetErrorName(code, byref(text))
        return text.value.decode()
    def result(self, name, *args):
        return self.name(self.raw(name, *args))
    def __getattr__(self, name):
        def call(*args):
            code = self.raw(name, *args)
            if code:
                raise CudaError(f"{name}: {self.name(code)}")
        return call
    def context(self, device=0):
        self.cuInit(0)
        context = PTR()
        self.cuDevicePrimaryCtxRetain(byref(context), device)
        self.cuCtxSetCurrent(context)
        return context
    def alloc(self, size):
        address = U64()
        self.cuMemAlloc_v2(byref(address), SIZE(size))
        return address
    def info(self):
        free, total = SIZE(), SIZE()
        self.cuMemGetInfo_v2(byref(free), byref(total))
        return free.value, total.value
    def make(self, function, *args):
        handle = PTR()
        getattr(self, function)(byref(handle), *args)
        return handle
    def kernel(self, name=b"busy"):
        return self.make("cuModuleGetFunction", self.make("cuModuleLoadData", c_char_p(b"any image")), name)
    def busy(self, kernel, ms, stream=None):
        length = U64(int(ms * 1e6))
        parameters = (PTR * 1)(ctypes.addressof(length))
        self.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)
    def spin(self, kernel, ms, address, value, stream=None, start_address=0, start_value=0):
        values = U64(int(ms * 1e6)), U64(address), UINT(value), U64(start_address), UINT(start_value)
        parameters = (PTR * 5)(*(ctypes.addressof(one) for one in values))
        self.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None)
    def words(self, path=None):
        words = (UINT * 1024).from_buffer(mmap.mmap(os.open(path, os.O_RDWR) if path else -1, 4096))
        self.cuMemHostRegister_v2(PTR(ctypes.addressof(words)), SIZE(4096), 0)
        return words, ctypes.addressof(words)
    def elapsed(self, start, end):
        elapsed = c_float()
        self.cuEventElapsedTime(byref(elapsed), start, end)
        return elapsed.value
    def wait(self, condition):
        while not condition(): time.sleep(0.001)
cuda = Cuda()
def show(value):
    print(json.dumps(value), flush=True)
"""


def wait_for(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds; fails after a minute."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the state waited for never came"
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Node:
    """One emulated node in a folder of its own."""

    config: Path

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a program on this node."""
        return {
            **{name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"},
            "PLIMSOLL_EMULATOR": str(self.config),
            "LD_LIBRARY_PATH": str(LIBRARIES),
            **more,
        }

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Starts `busy`."""
        return subprocess.Popen(
            [BUSY, *options],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def busy(self, *options: str) -> tuple[int, list[dict[str, Any]]]:
        """Runs `busy` to its end: exit code and phases."""
        done = subprocess.run(
            [BUSY, *options],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def python(self, program: str, **more: str) -> Any:  # noqa: ANN401 - JSON of any shape
        """Runs a program over ctypes: the JSON value it printed last."""
        done = subprocess.run(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
            env=self.environment(**more),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def background(self, program: str) -> subprocess.Popen[str]:
        """Starts a program over ctypes, and waits for its first line."""
        process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(program)],
            env=self.environment(),
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline(), "the program ended before its first line"
        return process

    @property
    def tool(self) -> Path:
        """The program that prints the book."""
        return LIBRARIES / "book"

    def book(self) -> list[dict[str, Any]]:
        """The emulator's own book, per GPU."""
        done = subprocess.run([self.tool], env=self.environment(), capture_output=True, text=True, check=True)
        return cast("list[dict[str, Any]]", json.loads(done.stdout)["gpus"])

    def book_from(self, path: Path) -> list[dict[str, Any]]:
        """A book that a program on this node wrote to a file while it ran."""
        return cast("list[dict[str, Any]]", json.loads(path.read_text())["gpus"])

    def used_bytes(self, gpu: int = 0) -> int:
        """What living processes hold on a GPU."""
        return cast("int", self.book()[gpu]["used_bytes"])
