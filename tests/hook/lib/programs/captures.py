"""Captures over two streams, graphs whose kernel is exchanged, and launches around captures."""

import threading
from collections.abc import Callable
from ctypes import addressof, byref, c_void_p
from typing import Any

from tests.hook.lib.programs.calls import call, make, must, sync
from tests.hook.lib.programs.cases import TWO_MS, busy, here, length, one, other, stream
from tests.programs.cuda import SHAPE, SIZE, U64
from tests.programs.structures import Kernel

NODES = 4

FORK = make("cuEventCreate", 2)
JOIN = make("cuEventCreate", 2)
side = make("cuStreamCreate", 0)
blocking = make("cuStreamCreate", 0)
over = threading.Event()
"""Ends the threads that draw and work."""
seen: list[bool] = []
"""Whether each capture of the thread that draws was good."""
ended: list[int] = []
"""The codes of threads' calls."""


def nodes_of(graph: c_void_p) -> int:
    """The number of nodes."""
    count = SIZE()
    must("cuGraphGetNodes", graph, None, byref(count))
    return count.value


def launch_on(on: c_void_p | None, parameters: Any, form: str = "") -> int:  # noqa: ANN401 - an array of ctypes
    """Launches a kernel: code."""
    return call("cuLaunchKernel" + form, busy, 1, 1, 1, 1, 1, 1, 0, on, parameters, None)


def capture(on: c_void_p | None, mode: int, form: str = "") -> tuple[list[int], c_void_p]:
    """Two kernels, a fill and a copy, over two streams."""
    drawn = c_void_p()
    codes = [
        call("cuStreamBeginCapture_v2" + form, on, mode),
        launch_on(on, TWO_MS, form),
        call("cuEventRecord" + form, FORK, on),
        call("cuStreamWaitEvent", side, FORK, 0),
        call("cuMemsetD8Async", U64(one), 1, SIZE(64), side),
        call("cuMemcpyDtoDAsync_v2", U64(other), U64(one), SIZE(64), side),
        call("cuEventRecord", JOIN, side),
        call("cuStreamWaitEvent" + form, on, JOIN, 0),
        launch_on(on, TWO_MS, form),
        call("cuStreamEndCapture" + form, on, byref(drawn)),
    ]
    return codes, drawn


def is_good(codes: list[int], drawn: c_void_p) -> bool:
    """Whether a capture became what it should."""
    return not any(codes) and nodes_of(drawn) == NODES


def aside(function: Callable[[], object]) -> threading.Thread:
    """Runs a function in a thread of its own, in the context of the cases."""

    def run() -> None:
        must("cuCtxSetCurrent", here)
        function()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def launch_captured() -> threading.Thread:
    """Captures, and launches the graph in a thread of its own."""
    graph = make("cuGraphInstantiateWithFlags", capture(stream, 0)[1], U64(0))
    return aside(lambda: ended.append(call("cuGraphLaunch", graph, stream)))


class Exchange:
    """A graph of one kernel, whose length is another at each launch."""

    def __init__(self) -> None:
        drawn = make("cuGraphCreate", 0)
        self.node = make("cuGraphAddKernelNode_v2", drawn, None, SIZE(0), byref(self._kernel(1)))
        self.graph = make("cuGraphInstantiateWithFlags", drawn, U64(0))

    def launch(self, ms: int) -> None:
        """Launches the graph with a kernel of that length."""
        must("cuGraphExecKernelNodeSetParams_v2", self.graph, self.node, byref(self._kernel(ms)))
        must("cuGraphLaunch", self.graph, stream)

    def _kernel(self, ms: int) -> Kernel:
        return Kernel(busy, SHAPE, 0, addressof(length(ms * 1_000_000)))


def draw() -> None:
    """Captures until it is over."""
    while not over.is_set():
        seen.append(is_good(*capture(stream, 2)))


def work() -> None:
    """Launches short kernels in a stream of its own until it is over."""
    mine = make("cuStreamCreate", 1)
    while not over.is_set():
        assert launch_on(mine, length(100_000)) == 0
        must("cuStreamSynchronize", mine)


def begin(on: c_void_p) -> None:
    """Begins a capture."""
    must("cuStreamBeginCapture_v2", on, 0)


def end(on: c_void_p) -> int:
    """Ends a capture: code."""
    return call("cuStreamEndCapture", on, byref(c_void_p()))


def launch_rows(short_ns: int, long_ns: int) -> None:
    """Many short kernels to their end, and then a few with a long one behind them."""
    mine, short, long = make("cuStreamCreate", 1), length(short_ns), length(long_ns)
    for parameters in [short] * 40:
        assert launch_on(mine, parameters) == 0
    must("cuStreamSynchronize", mine)
    for parameters in [short] * 5 + [long]:
        assert launch_on(mine, parameters) == 0


def capture_while_another_waits(rounds: int) -> list[list[bool]]:
    """Captures behind work of the legacy stream, while another thread waits for an event: waits and captures."""
    done = make("cuEventCreate", 0)
    must("cuEventRecord", done, None)
    sync()
    short, good = length(20_000), []
    for _ in range(rounds):
        for _ in range(40):
            assert launch_on(None, short) == 0
        drawn = c_void_p()
        must("cuStreamBeginCapture_v2", blocking, 1)
        aside(lambda: ended.append(call("cuEventSynchronize", done))).join(60)
        codes = [launch_on(blocking, short), call("cuStreamEndCapture", blocking, byref(drawn))]
        good.append(not any(codes) and nodes_of(drawn) == 1)
        sync()
    return [[code == 0 for code in ended], good]
