"""A CUDA program in Python that does what a test tells it, piece by piece, under the real preload.

For what needs structures or threads: the driver's functions are called by ctypes, which looks each up by dlsym as
any program does. Names that a piece defines stay for the next.
"""

import json
import select
import subprocess
import sys
import textwrap
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.hook.lib.program import ANSWER_S, Node

PRELUDE: Final = """
import ctypes, json, os, sys, threading
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

U64, SIZE, PTR, INT, UINT = c_uint64, c_size_t, c_void_p, c_int, c_uint
MIB = 1 << 20
library = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    return getattr(library, name)(*args)


def must(name, *args):
    code = call(name, *args)
    assert code == 0, f"{name}: {code}"


def make(name, *args):
    made = U64()
    must(name, byref(made), *args)
    return made


def context(device):
    made = make("cuDevicePrimaryCtxRetain", device)
    must("cuCtxSetCurrent", made)


class Location(ctypes.Structure):
    _fields_ = [("type", INT), ("id", INT)]


class PoolProps(ctypes.Structure):
    _fields_ = [("alloc_type", INT), ("handle_types", INT), ("location", Location), ("attributes", PTR),
                ("max_size", SIZE), ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54)]


class HandleProps(ctypes.Structure):
    _fields_ = [("type", INT), ("handle_types", INT), ("location", Location), ("meta", PTR),
                ("flags", ctypes.c_ubyte * 8)]


class NodeProps(ctypes.Structure):
    _fields_ = [("pool", PoolProps), ("access", PTR), ("access_count", SIZE), ("size", SIZE), ("address", U64)]


def pool_on(device, location_type=1):
    return make("cuMemPoolCreate", byref(PoolProps(1, 0, Location(location_type, device))))


def hold_all(pool):
    must("cuMemPoolSetAttribute", pool, 4, byref(U64(2**64 - 1)))


def default_pool(device=0):
    return make("cuDeviceGetDefaultMemPool", device)


def take(size, stream=None):
    address = U64()
    return call("cuMemAllocAsync", byref(address), SIZE(size), stream), address.value


def take_from(pool, size, stream=None):
    address = U64()
    return call("cuMemAllocFromPoolAsync", byref(address), SIZE(size), pool, stream), address.value


def alloc(size):
    address = U64()
    return call("cuMemAlloc_v2", byref(address), SIZE(size)), address.value


def free(address, stream=None):
    must("cuMemFreeAsync", U64(address), stream)


def sync():
    must("cuCtxSynchronize")


must("cuInit", 0)
context(0)
print("ready", flush=True)
for line in sys.stdin:
    answer = None
    exec(json.loads(line), globals())
    print(json.dumps(answer), flush=True)
"""


class Script:
    """One such program; a context manager that ends it."""

    def __init__(self, node: Node, container: dict[str, str], root: Path) -> None:
        self._errors = root / "script-errors"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", PRELUDE],
                env=node.environment(container),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                bufsize=1,
            )
        assert self._line() == "ready\n"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:  # a thread of it never comes back; it shall not outlive the test
            self._process.kill()
            self._process.wait()
            raise

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """End it by SIGKILL and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def do(self, source: str) -> Any:  # noqa: ANN401 - whatever JSON holds
        """Run one piece; returns what it left in `answer`.

        Raises:
            AssertionError: it failed, or has not ended within `ANSWER_S`.
        """
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(textwrap.dedent(source)) + "\n")
        return json.loads(self._line())

    def get(self, expression: str) -> Any:  # noqa: ANN401 - likewise
        """The value of an expression."""
        return self.do(f"answer = {expression}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_S)
        line = self._process.stdout.readline() if ready else ""
        assert line, f"no answer; standard error: {self._errors.read_text()}"
        return line
