"""Kernels that spin until memory holds a value."""

import ctypes
import threading
import time
from ctypes import byref

from tests.programs.cuda import PTR, SIZE, U64, UINT, cuda, show


def until_the_host() -> object:
    cuda.context()
    kernel = cuda.kernel(b"spin")
    words, address = cuda.words()
    stream = cuda.make("cuStreamCreate", 1)
    cuda.spin(kernel, 50, address, 1, stream, address + 4, 7)
    cuda.wait(lambda: words[1] == 7)
    early = cuda.result("cuStreamQuery", stream)
    time.sleep(0.1)  # The kernel spins for longer than the 50 ms of its work.
    begun = time.monotonic()
    words[0] = 1
    cuda.cuStreamSynchronize(stream)
    return [early, time.monotonic() - begun]


def signed_counter(value: int, word: int) -> object:
    cuda.context()
    kernel = cuda.kernel(b"spin")
    words, address = cuda.words()
    words[0] = word
    cuda.spin(kernel, 1, address, value, None, address + 4, 1)
    cuda.wait(lambda: words[1])
    time.sleep(0.02)  # A kernel that did not spin would have ended by now.
    early = cuda.result("cuStreamQuery", None)
    words[0] = (value + 1) % 2**32
    cuda.cuCtxSynchronize()
    return early


def beside_other_streams() -> object:
    cuda.context()
    spin, busy = cuda.kernels(b"spin", b"busy")
    _words, address = cuda.words()
    one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
    events = [cuda.make("cuEventCreate", 0) for _ in range(3)]
    cuda.spin(spin, 10, address, 3, one)
    cuda.cuEventRecord(events[0], one)
    cuda.busy(busy, 5, one)
    cuda.cuEventRecord(events[1], one)
    cuda.busy(busy, 200, other)
    cuda.cuEventRecord(events[2], other)
    cuda.cuEventSynchronize(events[2])
    early = cuda.result("cuEventQuery", events[0])
    cuda.cuStreamWriteValue32_v2(other, U64(address), 3, 0)
    cuda.cuCtxSynchronize()
    return [early, cuda.elapsed(events[2], events[0]), cuda.elapsed(events[0], events[1])]


def before_plain_ones() -> None:
    cuda.context()
    spin, busy = cuda.kernels(b"spin", b"busy")
    words, address = cuda.words()
    one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
    cuda.busy(busy, 3600e3, other)
    cuda.spin(spin, 20, address, 1, one)
    words[0] = 1
    cuda.cuStreamSynchronize(one)
    show(cuda.result("cuStreamQuery", other))
    input()


def default_stream() -> object:
    cuda.context()
    spin, busy = cuda.kernels(b"spin", b"busy")
    words, address = cuda.words()
    stream = cuda.make("cuStreamCreate", 0)
    begun = time.monotonic()
    cuda.busy(busy, 100, stream)
    cuda.spin(spin, 1, address, 1, None, address + 4, 1)
    cuda.wait(lambda: words[1])
    started = time.monotonic() - begun
    words[0] = 1
    cuda.busy(busy, 1, stream)
    cuda.cuCtxSynchronize()
    return started


def until_told() -> None:
    cuda.context()
    kernel = cuda.kernel(b"spin")
    words, address = cuda.words()
    cuda.spin(kernel, 1, address, 1)
    show(1)
    input()
    words[0] = 1
    cuda.cuCtxSynchronize()
    show(2)
    input()


def rank(page: str) -> None:
    """Spins in each step until the other of two ranks has started it."""
    cuda.context()
    kernel = cuda.kernel(b"spin")
    words, address = cuda.words(page)
    stream = cuda.make("cuStreamCreate", 1)
    show(1)
    me = int(input())
    for step in range(1, 51):
        cuda.spin(kernel, 2, address + 4 * (1 - me), step, stream, address + 4 * me, step)
    cuda.cuStreamSynchronize(stream)
    show(words[me])
    input()


def graphs_and_packed() -> object:
    cuda.context()
    kernel = cuda.kernel(b"spin")
    words, address = cuda.words()
    stream, graph, run = cuda.make("cuStreamCreate", 1), PTR(), PTR()
    cuda.cuStreamBeginCapture_v2(stream, 2)
    cuda.spin(kernel, 5, address, 1, stream, address + 4, 9)
    cuda.cuStreamEndCapture(stream, byref(graph))
    cuda.cuGraphInstantiateWithFlags(byref(run), graph, U64(0))
    cuda.cuGraphLaunch(run, stream)
    cuda.wait(lambda: words[1] == 9)
    words[0] = 1
    cuda.cuStreamSynchronize(stream)

    class Packed(ctypes.Structure):
        _fields_ = [("length", U64), ("address", U64), ("value", UINT), ("start", U64), ("word", UINT)]

    packed = Packed(5_000_000, address, 1, address + 8, 6)
    size = SIZE(ctypes.sizeof(packed))
    extra = (PTR * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 0)
    cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, extra)
    cuda.cuStreamSynchronize(stream)
    packed.address = 4096
    bad = cuda.result("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, stream, None, extra)
    sizes: list[list[int]] = []
    offset, size = SIZE(), SIZE()
    while cuda.raw("cuFuncGetParamInfo", kernel, SIZE(len(sizes)), byref(offset), byref(size)) == 0:
        sizes.append([offset.value, size.value])
    return [words[2], bad, sizes]


def full_queue() -> object:
    cuda.context()
    kernel = cuda.kernel(b"spin")
    words, address = cuda.words()
    count = 0

    def launch() -> None:
        nonlocal count
        cuda.cuCtxSetCurrent(context)
        for _ in range(1200):
            cuda.spin(kernel, 0.01, address, 1)
            count += 1

    context = PTR()
    cuda.cuCtxGetCurrent(byref(context))
    thread = threading.Thread(target=launch)
    thread.start()
    cuda.wait(lambda: count >= 1024)
    time.sleep(0.1)  # A launch that was not blocked would have been counted by now.
    blocked = count
    words[0] = 1
    thread.join()
    cuda.cuCtxSynchronize()
    return [blocked, count]
