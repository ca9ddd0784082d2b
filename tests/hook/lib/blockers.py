"""Work that waits on the device, and for what: host functions, callbacks, values, events, kernels that spin.

`BLOCKERS` is a script's side, beside `launcher.HELPERS`: a table `blockers` of name → function of a stream. Each puts
something into the stream that executes nothing until `release()`.
"""

from typing import Final

BLOCKERS: Final = """
import mmap

HOST_FUNCTION, CALLBACK = ctypes.CFUNCTYPE(None, PTR), ctypes.CFUNCTYPE(None, PTR, INT, PTR)
GEQ, WAIT_VALUE_32 = 0, 1
kept, released = [], threading.Event()
words = (UINT * 1024).from_buffer(mmap.mmap(-1, 4096))
must("cuMemHostRegister_v2", PTR(ctypes.addressof(words)), SIZE(4096), 0)
BLOCKED, STARTED, SPINNING = 0, 1, 2  # indices of words
number = 0  # of the release that all blockers wait for


class Wait(ctypes.Structure):
    _fields_ = [("operation", INT), ("address", U64), ("value", U64), ("flags", UINT), ("alias", U64),
                ("padding", U64 * 2)]


def address_of(index):
    return U64(ctypes.addressof(words) + 4 * index)


def keep(function):
    kept.append(function)
    return function


def by_function(stream, name="cuLaunchHostFunc"):
    must(name, stream, keep(HOST_FUNCTION(lambda _, event=released: event.wait())), None)


def by_callback(stream):
    must("cuStreamAddCallback", stream, keep(CALLBACK(lambda *_, event=released: event.wait())), None, 0)


def by_value(stream, name="cuStreamWaitValue32_v2", kind=UINT):
    must(name, stream, address_of(BLOCKED), kind(number + 1), GEQ)


def by_batch(stream):
    wait = Wait(WAIT_VALUE_32, address_of(BLOCKED).value, number + 1, GEQ)
    must("cuStreamBatchMemOp_v2", stream, 1, byref(wait), 0)


def by_event(stream):
    side, event = make("cuStreamCreate", 1), make("cuEventCreate", 2)
    by_function(side)
    must("cuEventRecord", event, side)
    must("cuStreamWaitEvent", stream, event, 0)


blockers = {
    "function": by_function,
    "callback": by_callback,
    "value": by_value,
    "old value": lambda stream: by_value(stream, "cuStreamWaitValue32"),
    "batch": by_batch,
    "event": by_event,
}


def release():
    # Whatever blocks now goes on; what is put into a stream afterwards waits for the next release.
    global number, released
    number += 1
    words[BLOCKED] = number
    released.set()
    released = threading.Event()


def spin(ns, stream):
    # Executes from the word STARTED until the word SPINNING, and for so long after.
    words[STARTED], words[SPINNING] = 0, 0
    values = U64(ns), address_of(SPINNING), UINT(1), address_of(STARTED), UINT(1)
    pointers = (PTR * 5)(*(ctypes.addressof(value) for value in values))
    must("cuLaunchKernel", spinning, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)


spinning = make("cuModuleGetFunction", make("cuModuleLoadData", b"any image"), b"spin")
one, other = [make("cuStreamCreate", 1) for _ in range(2)]
"""
