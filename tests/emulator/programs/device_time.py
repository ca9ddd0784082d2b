"""Work that takes its time, in the order that streams and events give it."""

import threading
import time

from tests.programs.cuda import HOST, U64, cuda, show


def synchronise() -> object:
    cuda.context()
    kernel = cuda.kernel()
    start = time.monotonic()
    cuda.busy(kernel, 200)
    launched = time.monotonic() - start
    cuda.cuCtxSynchronize()
    return [launched * 1e3, (time.monotonic() - start) * 1e3]


def short_kernels() -> object:
    cuda.context()
    kernel = cuda.kernel()
    start, end = cuda.make("cuEventCreate", 0), cuda.make("cuEventCreate", 0)
    cuda.busy(kernel, 1000)  # all others are queued behind it, however slow this program gets to launch them
    cuda.cuEventRecord(start, None)
    for _ in range(1000):
        cuda.busy(kernel, 0.02)
    cuda.cuEventRecord(end, None)
    cuda.cuEventSynchronize(end)
    return cuda.elapsed(start, end) - 20


def ordered_work() -> object:
    cuda.context()
    kernel = cuda.kernel()
    one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
    event = cuda.make("cuEventCreate", 2)
    order: list[list[object]] = []
    say = [HOST(lambda _, i=i: order.append([i, cuda.result("cuMemFree_v2", U64(0))])) for i in range(4)]
    cuda.cuLaunchHostFunc(other, say[0], None)
    cuda.busy(kernel, 50, one)
    cuda.cuLaunchHostFunc(one, say[1], None)
    cuda.cuEventRecord(event, one)
    cuda.cuStreamWaitEvent(other, event, 0)
    cuda.cuLaunchHostFunc(other, say[2], None)
    cuda.busy(kernel, 1, other)
    cuda.cuLaunchHostFunc(other, say[3], None)
    early = cuda.result("cuStreamQuery", other), cuda.result("cuEventQuery", event)
    cuda.cuStreamSynchronize(other)
    return [order, early, cuda.result("cuStreamQuery", other), cuda.result("cuEventQuery", event)]


def default_stream() -> object:
    cuda.context()
    stream, free = cuda.make("cuStreamCreate", 0), cuda.make("cuStreamCreate", 1)
    event, other = cuda.make("cuEventCreate", 2), cuda.make("cuEventCreate", 2)
    gate = threading.Event()
    order: list[str] = []

    def wait(_: object) -> None:
        gate.wait()
        order.append("stream")

    slow = HOST(wait)
    legacy, last = HOST(lambda _: order.append("legacy")), HOST(lambda _: order.append("last"))
    cuda.cuLaunchHostFunc(stream, slow, None)
    cuda.cuEventRecord(event, None)
    cuda.cuEventRecord(other, free)
    early = cuda.result("cuEventQuery", event), cuda.result("cuEventQuery", other)
    cuda.cuLaunchHostFunc(None, legacy, None)
    cuda.cuLaunchHostFunc(stream, last, None)
    gate.set()
    cuda.cuCtxSynchronize()
    return [order, early, cuda.result("cuEventQuery", event)]


def hog() -> None:
    cuda.context()
    cuda.busy(cuda.kernel(), 3600e3)
    show(1)
    time.sleep(600)  # The test kills this process.


def two_seconds_when_told() -> object:
    cuda.context()
    kernel = cuda.kernel()
    show(1)
    input()
    start, end = cuda.make("cuEventCreate", 0), cuda.make("cuEventCreate", 0)
    cuda.cuEventRecord(start, None)
    cuda.busy(kernel, 2000)
    cuda.cuEventRecord(end, None)
    cuda.cuEventSynchronize(end)
    return cuda.elapsed(start, end)


def full_queue() -> object:
    cuda.context()
    kernel = cuda.kernel()
    start = time.monotonic()
    for _ in range(3000):
        cuda.busy(kernel, 0.5)
    return (time.monotonic() - start) * 1e3


def four_minutes() -> None:
    cuda.context()
    kernel = cuda.kernel()
    for _ in range(4):
        cuda.busy(kernel, 60000)
    show(1)
    input()
