"""Work in steps: for as long as a test wants, under a lock, across streams, in children, over contexts and GPUs."""

import ctypes
import os
import time
from ctypes import c_void_p

from tests.hook.lib.programs import launching
from tests.hook.lib.programs.calls import call, context, make, must, sync
from tests.hook.lib.programs.launching import greedy, launch, load, over, primary
from tests.programs.cuda import HOST, parameters

MS = 1_000_000
done: list[int] = []
"""An entry for each step under the lock whose host function ran."""
step_done = HOST(lambda _: done.append(1))
held = ctypes.PyDLL("libcuda.so.1")
"""The driver by calls that keep Python's lock."""


def step_under_lock(stream: c_void_p) -> int:
    """Launches with Python's lock until it is over; each step's host function needs that lock, too."""
    steps = 0
    while not over.is_set():
        arguments = (1, 1, 1, 1, 1, 1, 0, stream, parameters(MS), None)
        assert held.cuLaunchKernel(launching.kernel, *arguments) == 0
        must("cuLaunchHostFunc", stream, step_done, None)
        steps += 1
        while steps - len(done) > 4:
            time.sleep(0.0005)  # the host's share of a step; it also looks for the end of earlier steps
    return steps


def step_across(one: c_void_p, other: c_void_p, word: ctypes.c_uint64) -> int:
    """Each step's work in the one stream waits for a word that the other writes 8 launches later."""
    step = 0
    while not over.is_set():
        step += 1
        must("cuStreamWaitValue32_v2", one, word, step, 0)
        launch(3 * MS, one)
        for _ in range(8):
            launch(300_000, other)
        must("cuStreamWriteValue32_v2", other, word, step, 0)
        must("cuStreamSynchronize", one)
    return step


def launch_until_over(ns: int, stream: c_void_p) -> None:
    """One kernel after the other."""
    while not over.is_set():
        launch(ns, stream)


def launch_and_write(stream: c_void_p, word: ctypes.c_uint64) -> list[int]:
    """Eight launches and a word behind them: codes."""
    codes = [launch(1000, stream) for _ in range(8)]
    must("cuStreamWriteValue32_v2", stream, word, 1, 0)
    return codes


def launch_there() -> int:
    """A launch in the thread's own context: code."""
    return call("cuLaunchKernel", load(), 1, 1, 1, 1, 1, 1, 0, None, parameters(1000), None)


def work_beside_children(count: int) -> list[int]:
    """Forks children that launch on, and launches meanwhile: the children's statuses."""
    launch(1000)
    sync()
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            for _ in range(100):
                launch(1000)
                time.sleep(0.001)  # The children come between the parent's bursts.
            os._exit(0)
        children.append(child)
    greedy(MS, 1.0)
    return [os.waitpid(child, 0)[1] for child in children]


class Pair:
    """Two GPUs at work at once."""

    def __init__(self) -> None:
        self.second = context(1)
        self.kernel = load()

    def work(self, rounds: int) -> None:
        """Twenty milliseconds of the second GPU and ten of the first, this often."""
        for _ in range(rounds):
            must("cuCtxSetCurrent", self.second)
            twenty = parameters(20 * MS)
            must("cuLaunchKernel", self.kernel, 1, 1, 1, 1, 1, 1, 0, None, twenty, None)
            must("cuCtxSetCurrent", primary)
            assert launch(10 * MS) == 0
            sync()
            must("cuCtxSetCurrent", self.second)
            sync()
        must("cuCtxSetCurrent", primary)


class Crowd:
    """Many contexts on one GPU."""

    def __init__(self, count: int) -> None:
        self.contexts = [(make("cuCtxCreate_v2", 0, 0), load()) for _ in range(count)]

    def work(self, ns: int, *, by_turns: bool) -> None:
        """Launches in each context, and waits each time where they take turns."""
        for each, kernel in self.contexts:
            must("cuCtxSetCurrent", each)
            must("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, parameters(ns), None)
            if by_turns:
                sync()
