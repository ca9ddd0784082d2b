"""How long calls keep the program."""

import time
from collections.abc import Callable
from ctypes import byref

from tests.programs.cuda import PTR, U64, cuda


def cost_us(call: Callable[[], object], times: int = 20) -> float:
    """The microseconds of a call."""
    begun = time.monotonic_ns()
    for _ in range(times):
        call()
    return (time.monotonic_ns() - begun) / times / 1e3


def calls() -> list[float]:
    """The costs of a launch, a graph, a record, and queries of an event and a stream."""
    cuda.context()
    kernel, event, stream = cuda.kernel(), cuda.make("cuEventCreate", 2), cuda.make("cuStreamCreate", 1)
    graph = PTR()
    cuda.cuStreamBeginCapture_v2(stream, 2)
    cuda.busy(kernel, 0.001, stream)
    cuda.cuStreamEndCapture(stream, byref(graph))
    run = cuda.make("cuGraphInstantiateWithFlags", graph, U64(0))
    return [
        cost_us(lambda: cuda.busy(kernel, 0.001, stream)),
        cost_us(lambda: cuda.cuGraphLaunch(run, stream)),
        cost_us(lambda: cuda.cuEventRecord(event, stream)),
        cost_us(lambda: cuda.raw("cuEventQuery", event)),
        cost_us(lambda: cuda.raw("cuStreamQuery", stream)),
    ]


def start() -> str:
    """How the driver's initialisation ended."""
    return cuda.result("cuInit", 0)
