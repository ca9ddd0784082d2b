"""Work that waits on the device, and for what: host functions, callbacks, values, events, kernels that spin.

`blockers` is a table of name → function of a stream. Each puts something into the stream that executes nothing
until `release()`.
"""

import ctypes
import threading
from collections.abc import Callable
from ctypes import byref, c_void_p
from typing import Any

from tests.hook.lib.programs.calls import make, must
from tests.programs.cuda import CALLBACK, HOST, INT, U64, UINT, cuda

GEQ, WAIT_VALUE_32 = 0, 1
BLOCKED, STARTED, SPINNING = 0, 1, 2
"""Indices of `words`."""

words, words_address = cuda.words()
spinning = cuda.kernel(b"spin")
one, other = (make("cuStreamCreate", 1) for _ in range(2))
kept: list[object] = []


class Release:
    """The state for which all blockers wait.

    Attributes:
        number: how often it came; what waits for a value waits for the next number.
        event: set when it comes next.
    """

    def __init__(self) -> None:
        self.number = 0
        self.event = threading.Event()


released = Release()


class Wait(ctypes.Structure):
    """CUstreamBatchMemOpParams of a wait for a value."""

    _fields_ = [
        ("operation", INT),
        ("address", U64),
        ("value", U64),
        ("flags", UINT),
        ("alias", U64),
        ("padding", U64 * 2),
    ]


def address_of(index: int) -> ctypes.c_uint64:
    """Where a word is."""
    return U64(words_address + 4 * index)


def keep(function: Any) -> Any:  # noqa: ANN401 - a function of ctypes
    """Keeps a function alive that the driver calls."""
    kept.append(function)
    return function


def by_function(stream: c_void_p) -> None:
    """A host function."""
    must("cuLaunchHostFunc", stream, keep(HOST(lambda _, event=released.event: event.wait())), None)


def by_callback(stream: c_void_p) -> None:
    """A callback."""
    callback = keep(CALLBACK(lambda *_, event=released.event: event.wait()))
    must("cuStreamAddCallback", stream, callback, None, 0)


def by_value(stream: c_void_p, name: str = "cuStreamWaitValue32_v2") -> None:
    """A wait for a value."""
    must(name, stream, address_of(BLOCKED), UINT(released.number + 1), GEQ)


def by_batch(stream: c_void_p) -> None:
    """A wait for a value in a batch."""
    wait = Wait(WAIT_VALUE_32, address_of(BLOCKED).value, released.number + 1, GEQ)
    must("cuStreamBatchMemOp_v2", stream, 1, byref(wait), 0)


def by_event(stream: c_void_p) -> None:
    """A wait for an event of a stream that is blocked."""
    side, event = make("cuStreamCreate", 1), make("cuEventCreate", 2)
    by_function(side)
    must("cuEventRecord", event, side)
    must("cuStreamWaitEvent", stream, event, 0)


blockers: dict[str, Callable[[c_void_p], None]] = {
    "function": by_function,
    "callback": by_callback,
    "value": by_value,
    "old value": lambda stream: by_value(stream, "cuStreamWaitValue32"),
    "batch": by_batch,
    "event": by_event,
}


def release() -> None:
    """Whatever blocks now goes on; what is put into a stream afterwards waits for the next release."""
    released.number += 1
    words[BLOCKED] = released.number
    released.event.set()
    released.event = threading.Event()


def spin(ns: int, stream: c_void_p) -> None:
    """Executes from the word STARTED until the word SPINNING, and for this long after."""
    words[STARTED], words[SPINNING] = 0, 0
    cuda.spin(spinning, ns / 1e6, address_of(SPINNING).value, 1, stream, address_of(STARTED).value, 1)
