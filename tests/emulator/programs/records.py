"""Event records beside the work of other streams and processes."""

import os
from itertools import pairwise

from tests.programs.cuda import cuda, show


def next_slice() -> object:
    cuda.context()
    stream = cuda.make("cuStreamCreate", 1)
    events = [cuda.make("cuEventCreate", 0) for _ in range(2)]
    cuda.cuEventRecord(events[0], stream)
    cuda.cuEventSynchronize(events[0])
    cuda.cuEventRecord(events[1], stream)
    early = cuda.result("cuStreamQuery", stream)
    cuda.cuStreamSynchronize(stream)
    return [early, cuda.elapsed(*events)]


def beside_a_stream() -> None:
    cuda.context()
    kernel = cuda.kernel()
    stream, event = cuda.make("cuStreamCreate", 1), cuda.make("cuEventCreate", 0)
    cuda.busy(kernel, 3600e3, stream)
    for _ in range(3):
        cuda.cuEventRecord(event, None)
        cuda.cuEventSynchronize(event)
    show([cuda.result("cuStreamQuery", None), cuda.result("cuStreamQuery", stream)])
    os._exit(0)


def after_a_record() -> object:
    cuda.context()
    kernel = cuda.kernel()
    one, other = cuda.make("cuStreamCreate", 1), cuda.make("cuStreamCreate", 1)
    events = [cuda.make("cuEventCreate", 0) for _ in range(4)]
    for event in events[:2]:
        cuda.cuEventRecord(event, one)
    cuda.cuStreamWaitEvent(other, events[1], 0)
    cuda.busy(kernel, 10, other)
    cuda.cuEventRecord(events[2], other)
    cuda.busy(kernel, 10, one)
    cuda.cuEventRecord(events[3], one)
    cuda.cuCtxSynchronize()
    return [cuda.elapsed(*pair) for pair in pairwise(events)]


def alone() -> object:
    cuda.context()
    event = cuda.make("cuEventCreate", 0)
    cuda.cuEventRecord(event, None)
    return cuda.result("cuEventQuery", event)
