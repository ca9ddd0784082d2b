"""A program that closes every descriptor, the driver's among them, with some work under way."""

import os
from collections.abc import Callable
from ctypes import byref

from tests.programs.cuda import INT, MIB, SIZE, U64, cuda, show

cuda.context()
busy, spin = cuda.kernels(b"busy", b"spin")
words, address = cuda.words()
event = cuda.make("cuEventCreate", 0)
stream = cuda.make("cuStreamCreate", 1)

WORK: dict[str, Callable[[], object]] = {
    "memory": lambda: cuda.alloc(64 * MIB),
    "busy": lambda: cuda.busy(busy, 3600e3, stream),
    "waiting": lambda: cuda.cuStreamWaitValue32_v2(stream, U64(address), 1, 0),
    "spinning": lambda: cuda.spin(spin, 1, address, 1, stream),
}
CALLS: dict[str, tuple[str, object]] = {
    "stream": ("cuStreamSynchronize", stream),
    "event": ("cuEventSynchronize", event),
    "context": ("cuCtxSynchronize", None),
    "device": ("cuCtxGetDevice", byref(INT())),
}


def close(work: str, call: str) -> None:
    """Closes all descriptors at the first line of input, then calls."""
    WORK[work]()
    if work != "memory":
        cuda.cuEventRecord(event, stream)
    show(1)
    input()
    os.closerange(3, 1024)
    show(2)
    name, argument = CALLS[call]
    seen = [cuda.result(name, *([] if argument is None else [argument]))]
    seen += [cuda.result("cuMemAlloc_v2", byref(U64()), SIZE(1)), cuda.result("cuCtxSynchronize")]
    show(seen)
    input()


def inherit() -> None:
    """Some memory and some work."""
    cuda.alloc(MIB)
    cuda.busy(busy, 50)
    cuda.cuCtxSynchronize()
    show(1)
    input()
