"""Captures of two streams, and what they forbid."""

import time
from ctypes import byref, c_void_p

from tests.programs.cuda import INT, PTR, SIZE, U64, UINT, aside, cuda, parameters

cuda.context()
kernel = cuda.kernel()
one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
fork, joined = cuda.make("cuEventCreate", 2), cuda.make("cuEventCreate", 2)


def end(stream: c_void_p) -> tuple[str, c_void_p]:
    graph = PTR()
    return cuda.result("cuStreamEndCapture", stream, byref(graph)), graph


def count(graph: c_void_p, function: str = "cuGraphGetNodes") -> int:
    number = SIZE()
    getattr(cuda, function)(graph, None, byref(number))
    return number.value


def launch_often() -> object:
    address, value = cuda.alloc(64), UINT()
    cuda.cuStreamBeginCapture_v2(one, 0)
    cuda.cuMemsetD32Async(address, 9, SIZE(16), one)
    cuda.busy(kernel, 20, one)
    cuda.cuEventRecord(fork, one)
    cuda.cuStreamWaitEvent(other, fork, 0)
    cuda.busy(kernel, 30, other)
    cuda.cuEventRecord(joined, other)
    cuda.cuStreamWaitEvent(one, joined, 0)
    result, graph = end(one)
    nodes, roots = count(graph), count(graph, "cuGraphGetRootNodes")
    cuda.cuMemcpyDtoH_v2(byref(value), address, SIZE(4))
    before = value.value
    executable = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
    start = time.monotonic()
    for _ in range(5):
        cuda.cuGraphLaunch(executable, one)
    cuda.cuStreamSynchronize(one)
    elapsed = time.monotonic() - start
    cuda.cuMemcpyDtoH_v2(byref(value), address, SIZE(4))
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
    return [result, nodes, roots, before, value.value, elapsed >= 0.25]


def unsafe_calls() -> object:
    address, mode = U64(), INT(2)
    results: list[str] = []
    seen = []
    calls: dict[str, tuple[object, ...]] = {
        "cuMemAlloc_v2": (byref(address), SIZE(4096)),
        "cuCtxSynchronize": (),
        "cuStreamSynchronize": (one,),
    }
    for name, args in calls.items():
        cuda.cuStreamBeginCapture_v2(one, 0)
        seen.append([cuda.result(name, *args), end(one)[0]])
    cuda.cuStreamBeginCapture_v2(one, 0)
    cuda.cuThreadExchangeStreamCaptureMode(byref(mode))
    seen.append([cuda.result("cuMemAlloc_v2", byref(address), SIZE(4096)), end(one)[0]])
    cuda.cuThreadExchangeStreamCaptureMode(byref(mode))
    cuda.cuStreamBeginCapture_v2(one, 1)

    def allocate() -> None:
        cuda.context()
        results.append(cuda.result("cuMemAlloc_v2", byref(address), SIZE(4096)))

    aside(allocate)
    seen.append([*results, end(one)[0]])
    return seen


def wrong_ends() -> object:
    seen = [cuda.result("cuStreamBeginCapture_v2", None, 0), end(one)[0]]
    cuda.cuStreamBeginCapture_v2(one, 0)
    cuda.cuEventRecord(fork, one)
    cuda.cuStreamWaitEvent(other, fork, 0)
    seen.append(cuda.result("cuEventQuery", fork))
    seen.append(end(other)[0])
    cuda.busy(kernel, 1, other)
    seen.append(end(one)[0])
    blocking = cuda.make("cuStreamCreate", 0)
    cuda.cuStreamBeginCapture_v2(blocking, 0)
    params = parameters(1000)
    seen.append(cuda.result("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, params, None))
    seen.append(end(blocking)[0])
    status = INT()
    cuda.cuStreamIsCapturing(one, byref(status))
    return [*seen, status.value]
