"""Events of whole contexts, beside two streams and a host function that waits for its gate."""

import threading
import time
from ctypes import byref, c_void_p

from tests.programs.cuda import HOST, INT, PTR, aside, cuda, parameters
from tests.programs.structures import Resource

context = cuda.context()
kernel = cuda.kernel()
one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
event, mark = cuda.make("cuEventCreate", 0), cuda.make("cuEventCreate", 0)
gate = threading.Event()
order: list[int] = []
hold = HOST(lambda _: gate.wait())
says = [HOST(lambda _, i=i: order.append(i)) for i in range(4)]


def all_streams() -> object:
    cuda.cuLaunchHostFunc(one, hold, None)
    cuda.busy(kernel, 30, one)
    cuda.busy(kernel, 20, other)

    seen: list[str] = []
    aside(lambda: seen.append(cuda.result("cuCtxRecordEvent", context, event)))
    cuda.busy(kernel, 1, other)
    cuda.cuStreamSynchronize(other)
    later = threading.Event()
    wait = HOST(lambda _: later.wait())
    cuda.cuLaunchHostFunc(one, wait, None)
    seen.append(cuda.result("cuEventQuery", event))
    gate.set()
    cuda.cuEventSynchronize(event)
    seen += [cuda.result("cuStreamQuery", other), cuda.result("cuStreamQuery", one)]
    later.set()
    cuda.cuStreamSynchronize(one)
    return seen


def waiting_context() -> object:
    cuda.cuLaunchHostFunc(one, hold, None)
    cuda.cuEventRecord(event, one)
    waits = cuda.result("cuCtxWaitEvent", context, event)
    third = cuda.make("cuStreamCreate", 1)
    for stream, say in zip((None, other, third), says, strict=False):
        cuda.cuLaunchHostFunc(stream, say, None)
    time.sleep(0.05)  # A function that did not wait for the gate would have run by now.
    before = list(order)
    gate.set()
    cuda.cuCtxSynchronize()
    return [waits, before, sorted(order)]


def green_context() -> object:
    whole = Resource()
    cuda.cuDeviceGetDevResource(0, byref(whole), 1)
    green = cuda.make("cuGreenCtxCreate", cuda.make("cuDevResourceGenerateDesc", byref(whole), 1), 0, 1)
    inner = cuda.make("cuGreenCtxStreamCreate", green, 1, 0)

    def of(stream: c_void_p) -> int | None:
        handle = PTR()
        cuda.cuStreamGetGreenCtx(stream, byref(handle))
        return handle.value

    cuda.cuLaunchHostFunc(one, hold, None)
    first = cuda.result("cuGreenCtxRecordEvent", green, event), cuda.result("cuEventQuery", event)
    second = threading.Event()
    wait = HOST(lambda _: second.wait())
    gate.set()
    cuda.cuStreamSynchronize(one)
    cuda.cuLaunchHostFunc(inner, wait, None)
    cuda.cuCtxRecordEvent(context, mark)
    after = cuda.result("cuEventQuery", mark)
    cuda.make("cuCtxCreate_v2", 0, 0)
    foreign = cuda.make("cuEventCreate", 0)
    refused = (
        cuda.result("cuGreenCtxRecordEvent", green, foreign),
        cuda.result("cuCtxRecordEvent", None, event),
    )
    cuda.cuGreenCtxWaitEvent(green, event)
    second.set()
    cuda.cuEventSynchronize(mark)
    return [first, after, refused, of(one), of(inner) == green.value]


def during_a_capture() -> object:
    def attempt(name: str, event: c_void_p) -> tuple[str, str]:
        graph = PTR()
        cuda.cuStreamBeginCapture_v2(one, 2)
        return cuda.result(name, context, event), cuda.result("cuStreamEndCapture", one, byref(graph))

    seen = [attempt("cuCtxRecordEvent", event), attempt("cuCtxWaitEvent", mark)]
    spared = cuda.make("cuCtxCreate_v2", 0, 0)
    graph = PTR()
    cuda.cuStreamBeginCapture_v2(one, 0)
    own = cuda.make("cuEventCreate", 0)
    seen.append(
        (cuda.result("cuCtxRecordEvent", spared, own), cuda.result("cuStreamEndCapture", one, byref(graph)))
    )
    return seen


def asking_during_a_capture() -> object:
    cuda.cuEventRecord(event, other)

    def ask(name: str, mode: int, seen: list[str]) -> None:
        wish = INT(mode)
        cuda.cuCtxSetCurrent(context)
        cuda.cuThreadExchangeStreamCaptureMode(byref(wish))
        seen.append(cuda.result(name, event))

    def attempt(name: str, mode: int, capture_mode: int) -> list[str]:
        graph = PTR()
        seen: list[str] = []
        cuda.cuStreamBeginCapture_v2(one, capture_mode)
        aside(lambda: ask(name, mode, seen))
        return [*seen, cuda.result("cuStreamEndCapture", one, byref(graph))]

    return [
        [attempt(name, mode, capture) for mode in range(3) for capture in range(3)]
        for name in ("cuEventQuery", "cuEventSynchronize")
    ]


def time_short_kernels() -> object:
    params = parameters(20000)

    def attempt() -> float:
        cuda.raw("cuEventRecord", event, one)
        cuda.raw("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, one, params, None)
        cuda.raw("cuEventRecord", mark, one)
        time.sleep(0.001)  # The kernel of 20 µs has ended by then.
        return cuda.elapsed(event, mark) * 1e3

    return [attempt() for _ in range(200)]


def late_dates() -> object:
    last = cuda.make("cuEventCreate", 0)
    cuda.cuEventRecord(event, one)
    cuda.busy(kernel, 20, one)
    cuda.cuEventRecord(mark, one)
    for _ in range(3000):
        cuda.busy(kernel, 0.02, one)
        cuda.cuStreamSynchronize(one)
    cuda.cuEventRecord(last, one)
    whole = cuda.elapsed(event, last)
    return [cuda.elapsed(event, mark), whole - cuda.elapsed(mark, last), whole]


def hundred_dates() -> object:
    marks = [cuda.make("cuEventCreate", 0) for _ in range(101)]
    cuda.busy(kernel, 1, one)
    cuda.cuEventRecord(marks[0], one)
    for mark in marks[1:]:
        cuda.busy(kernel, 1, one)
        cuda.cuEventRecord(mark, one)
    cuda.cuStreamSynchronize(one)
    return [cuda.elapsed(marks[i], marks[i + 1]) for i in range(100)]
