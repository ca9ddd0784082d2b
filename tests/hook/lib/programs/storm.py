"""Threads that work through random steps, and reckon along what must come of them."""

import ctypes
import random
import threading
from collections.abc import Callable
from ctypes import byref, c_uint64, c_void_p
from pathlib import Path
from typing import Any

from tests.hook.lib.programs.calls import alloc, call, make, must
from tests.hook.lib.programs.cases import busy, here, kept, length
from tests.programs.cuda import CALLBACK, HOST, SIZE, U64

CELLS, CELL = 8, 1024


def kept_waiting_ns(thread: Path) -> int:
    """For how long a thread was ready to run and had no CPU."""
    return int((thread / "schedstat").read_text().split()[1])


def others_kept_waiting_ns() -> int:
    """The same of all threads that live."""
    return sum(map(kept_waiting_ns, Path("/proc/self/task").iterdir()))


class Worker(threading.Thread):
    """Works through random steps on cells of memory of its own, and reckons along what they must hold in the end.

    Steps go to any of four streams; where two follow each other in different ones, an event keeps their order.
    """

    def __init__(self, seed: int, steps: int) -> None:
        super().__init__()
        self.dice, self.steps = random.Random(seed), steps  # noqa: S311 - a dice, not a secret
        self.expected = [0] * CELLS
        self.heard: list[int] = []
        self.told: list[int] = []
        self.problem: str | None = None
        self.found: list[set[int]] | None = None
        self.kept_waiting_ns = 0

    def run(self) -> None:
        """All steps; whatever goes wrong is the problem."""
        try:
            must("cuCtxSetCurrent", here)
            self.prepare()
            for number in range(self.steps):
                self.step(number)
            self.finish()
        except Exception as error:  # noqa: BLE001 - the test shows whatever it was
            self.problem = repr(error)
        self.kept_waiting_ns = kept_waiting_ns(Path("/proc/thread-self"))

    def prepare(self) -> None:
        """Memory, events and streams: two priorities, one that waits for the legacy one, the thread's own."""
        self.streams = [make("cuStreamCreateWithPriority", 1, priority) for priority in (0, -1)]
        self.streams += [make("cuStreamCreate", 0), c_void_p(2)]
        self.last = self.streams[0]
        # Nothing goes to the legacy stream: it would break what another worker captures.
        self.cells = U64(alloc(CELLS * CELL)[1])
        must("cuMemsetD8Async", self.cells, 0, SIZE(CELLS * CELL), self.last)
        self.behind = [make("cuEventCreate", 2) for _ in range(8)]

    def at(self, cell: int) -> c_uint64:
        """Where a cell is."""
        return U64(self.cells.value + cell * CELL)

    def turn_to(self, stream: c_void_p, event: c_void_p) -> None:
        """Goes on in a stream, behind what the last one was given."""
        if stream is not self.last:
            must("cuEventRecord", event, self.last)
            must("cuStreamWaitEvent", stream, event, 0)
        self.last = stream

    def step(self, number: int) -> None:
        """One random step in a random stream."""
        stream = self.dice.choice(self.streams)
        self.turn_to(stream, self.behind[number % 8])
        kind = self.dice.choice("kkkfffccghaswq")
        if kind == "k":
            us = self.dice.choice((20, 200))
            must("cuLaunchKernel", busy, 1, 1, 1, 1, 1, 1, 0, stream, length(us * 1000), None)
        elif kind == "f":
            self.fill(stream)
        elif kind == "c":
            self.copy(stream)
        elif kind == "g":
            self.run_graph(stream)
        elif kind == "h":
            self.tell(number, lambda f: must("cuLaunchHostFunc", stream, f, None), HOST)
        elif kind == "a":
            self.tell(number, lambda f: must("cuStreamAddCallback", stream, f, None, 0), CALLBACK)
        elif kind == "s":
            must("cuStreamSynchronize", stream)
        elif kind == "w":
            must("cuEventSynchronize", self.behind[number % 8])
        else:
            while (code := call("cuStreamQuery", stream)) == 600:
                pass
            assert code == 0, code

    def fill(self, stream: c_void_p) -> None:
        """Fills a cell."""
        cell, value = self.dice.randrange(CELLS), self.dice.randrange(256)
        must("cuMemsetD8Async", self.at(cell), value, SIZE(CELL), stream)
        self.expected[cell] = value

    def copy(self, stream: c_void_p) -> None:
        """Copies a cell to another."""
        target, source = self.dice.sample(range(CELLS), 2)
        function = self.dice.choice(("cuMemcpyAsync", "cuMemcpyDtoDAsync_v2"))
        must(function, self.at(target), self.at(source), SIZE(CELL), stream)
        self.expected[target] = self.expected[source]

    def run_graph(self, stream: c_void_p) -> None:
        """Captures a fill, a kernel and a copy over two streams, and launches the graph."""
        drawn, side = U64(), self.streams[0] if stream is not self.streams[0] else self.streams[1]
        fork, join = (make("cuEventCreate", 2) for _ in range(2))
        must("cuStreamBeginCapture_v2", stream, self.dice.choice((1, 2)))
        must("cuEventRecord", fork, stream)
        must("cuStreamWaitEvent", side, fork, 0)
        self.fill(side)
        must("cuEventRecord", join, side)
        must("cuLaunchKernel", busy, 1, 1, 1, 1, 1, 1, 0, stream, length(50_000), None)
        must("cuStreamWaitEvent", stream, join, 0)
        self.copy(stream)
        must("cuStreamEndCapture", stream, byref(drawn))
        graph = make("cuGraphInstantiateWithFlags", drawn, U64(0))
        must("cuGraphLaunch", graph, stream)
        must("cuGraphDestroy", drawn)
        for event in (fork, join):
            must("cuEventDestroy_v2", event)

    def tell(self, number: int, add: Callable[[Any], None], kind: Callable[[object], Any]) -> None:
        """Has the device call a function that notes the step."""
        function = kind(lambda *_: self.heard.append(number))
        kept.append(function)
        add(function)
        self.told.append(number)

    def finish(self) -> None:
        """The contents of the cells after all work."""
        data = (ctypes.c_ubyte * (CELLS * CELL))()
        must("cuMemcpyDtoHAsync_v2", data, self.cells, SIZE(CELLS * CELL), self.last)
        must("cuStreamSynchronize", self.last)
        self.found = [set(data[cell * CELL : (cell + 1) * CELL]) for cell in range(CELLS)]

    def fault(self) -> str | None:
        """The first wrong result; None if there is none."""
        if self.problem or self.is_alive():
            return self.problem or "has not ended"
        if self.found != [{value} for value in self.expected]:
            return f"memory: {self.found} for {self.expected}"
        return None if self.heard == self.told else f"host functions: {self.heard} for {self.told}"
