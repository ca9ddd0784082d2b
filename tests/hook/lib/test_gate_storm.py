"""A gate that opens and shuts at random changes no result of a program and stops none for ever."""

import random
from collections.abc import Iterator
from time import monotonic, sleep

import pytest

from plimsoll.broker.pages import GATE_METERED, GATE_OPEN, GATE_SHUT
from tests.hook.lib.container import ANSWER_S
from tests.hook.lib.gate import until
from tests.hook.lib.stage import Stage, staged

SEEDS = range(6)
THREADS = 3
STEPS = 1200

STORM = """
import random

CELLS, CELL = 8, 1024
CALLBACK = ctypes.CFUNCTYPE(None, PTR, INT, PTR)
HOST_FUNCTION = ctypes.CFUNCTYPE(None, PTR)


class Worker(threading.Thread):
    # Works through random steps on cells of memory of its own, and reckons along what they must hold in the end.
    # Steps go to any of four streams; where two follow each other in different ones, an event keeps their order.

    def __init__(self, seed, steps):
        super().__init__()
        self.dice, self.steps = random.Random(seed), steps
        self.expected, self.heard, self.told = [0] * CELLS, [], []
        self.problem, self.found = None, None

    def run(self):
        try:
            must("cuCtxSetCurrent", here)
            self.prepare()
            for number in range(self.steps):
                self.step(number)
            self.finish()
        except Exception as error:
            self.problem = repr(error)

    def prepare(self):
        # Of several priorities, one that waits for the legacy stream, and this thread's own default one.
        self.streams = [make("cuStreamCreateWithPriority", 1, priority) for priority in (0, -1)]
        self.streams += [make("cuStreamCreate", 0), U64(2)]
        self.last = self.streams[0]
        # Nothing goes to the legacy stream: it would break what another worker captures.
        self.cells = U64(alloc(CELLS * CELL)[1])
        must("cuMemsetD8Async", self.cells, 0, SIZE(CELLS * CELL), self.last)
        self.behind = [make("cuEventCreate", 2) for _ in range(8)]

    def at(self, cell):
        return U64(self.cells.value + cell * CELL)

    def turn_to(self, stream, event):
        if stream is not self.last:
            must("cuEventRecord", event, self.last)
            must("cuStreamWaitEvent", stream, event, 0)
        self.last = stream

    def step(self, number):
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
            self.tell(number, lambda f: must("cuLaunchHostFunc", stream, f, None), HOST_FUNCTION)
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

    def fill(self, stream):
        cell, value = self.dice.randrange(CELLS), self.dice.randrange(256)
        must("cuMemsetD8Async", self.at(cell), value, SIZE(CELL), stream)
        self.expected[cell] = value

    def copy(self, stream):
        target, source = self.dice.sample(range(CELLS), 2)
        function = self.dice.choice(("cuMemcpyAsync", "cuMemcpyDtoDAsync_v2"))
        must(function, self.at(target), self.at(source), SIZE(CELL), stream)
        self.expected[target] = self.expected[source]

    def run_graph(self, stream):
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

    def tell(self, number, add, kind):
        function = kind(lambda *_: self.heard.append(number))
        kept.append(function)
        add(function)
        self.told.append(number)

    def finish(self):
        data = (ctypes.c_ubyte * (CELLS * CELL))()
        must("cuMemcpyDtoHAsync_v2", data, self.cells, SIZE(CELLS * CELL), self.last)
        must("cuStreamSynchronize", self.last)
        self.found = [set(data[cell * CELL : (cell + 1) * CELL]) for cell in range(CELLS)]

    def fault(self):
        if self.problem or self.is_alive():
            return self.problem or "has not ended"
        if self.found != [{value} for value in self.expected]:
            return f"memory: {self.found} for {self.expected}"
        return None if self.heard == self.told else f"host functions: {self.heard} for {self.told}"
"""


@pytest.fixture(name="stage", scope="module")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("storm"), GATE_OPEN) as stage:
        stage.script.do(STORM)
        yield stage


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_come_out_the_same_under_any_gate(stage: Stage, seed: int) -> None:
    """Programs of threads, ordered streams, graphs, host functions and callbacks end with the right results."""
    dice = random.Random(seed)  # noqa: S311 - a dice, not a secret
    states = [GATE_OPEN, GATE_METERED, GATE_SHUT]
    stage.script.do(f"""
        workers = [Worker({seed} * 100 + n, {STEPS}) for n in range({THREADS})]
        for worker in workers: worker.start()
    """)
    end = monotonic() + ANSWER_S
    while stage.script.get("any(worker.is_alive() for worker in workers)") and monotonic() < end:
        stage.gate.set(dice.choice(states))
        sleep(dice.choice((0.0005, 0.002, 0.008)))
    stage.gate.set(dice.choice((GATE_OPEN, GATE_METERED)))
    stage.script.do("for worker in workers: worker.join(60)")
    assert stage.script.get("[worker.fault() for worker in workers]") == [None] * THREADS
    stage.gate.set(GATE_METERED)
    stage.script.do("sync()")
    until(lambda: (stage.work.launched_ns, stage.work.standing, stage.work.queued_ns) == (0, 0, 0))
    assert 0 < stage.told_ns < 1.1 * stage.executed_ns, "what was told was never executed"
