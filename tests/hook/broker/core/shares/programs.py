"""Programs for `model`: typical ones, and ones that try to pass their shares."""

import math
import random
from collections.abc import Callable, Iterator
from typing import Final

from tests.hook.broker.core.shares.hardware import Item, Kind
from tests.hook.broker.core.shares.model import (
    Actor,
    Container,
    Launch,
    Lock,
    Program,
    Simulation,
    Sleep,
    Step,
    Sync,
    Unlock,
)

MAIN: Final = (0, 0)
"""The first stream on the first GPU."""

Pause = Callable[[random.Random], float]


class Word:
    """A word in GPU memory for which streams wait."""

    def __init__(self) -> None:
        self.value = 0

    def reaches(self, value: int) -> Callable[[], bool]:
        """Whether the word has reached this value."""
        return lambda: self.value >= value

    def writes(self, value: int) -> Callable[[], None]:
        """Write this value."""

        def write() -> None:
            self.value = value

        return write


def kernel(ms: float) -> Launch:
    """A kernel on the main stream."""
    return Launch(MAIN, Item("run", ms))


def greedy(ms: float, most: float = 40.0, start: float = 0.0, stop: float = math.inf) -> Program:
    """Kernels of this length. The program keeps as many queued as it can."""

    def code(me: Actor) -> Iterator[Step]:
        yield Sleep(max(start - me.now, 0.0))
        while me.now < stop:
            yield Sleep(min(1.0, ms)) if me.process.queued(0) >= most else kernel(ms)
        me.process.is_dead = True
        yield Sleep(0.0)

    return code


def sync(ms: float, pause: Pause = lambda _: 0.0) -> Program:
    """One kernel after another; the program waits for each."""

    def code(me: Actor) -> Iterator[Step]:
        while True:
            yield kernel(ms)
            yield Sync()
            yield Sleep(0.01 + pause(me.process.random))

    return code


def light(work: float, period: float, *, at_random: bool = False) -> Program:
    """A fixed amount of work in every period. Random requests arrive at any time and queue up."""

    def code(me: Actor) -> Iterator[Step]:
        def gap() -> float:
            r = me.process.random
            return r.expovariate(1 / period) if at_random else period * r.uniform(0.9, 1.1)

        due = me.process.random.random() * period
        while True:
            yield Sleep(max(due - me.now, 0.0))
            yield kernel(work)
            yield Sync()
            me.container.latencies.append(me.now - due)
            due = due + gap() if at_random else max(due + gap(), me.now)

    return code


def pausing(work: float, pause: float, ms: float = 0.1) -> Program:
    """Short kernels. The host pauses (garbage collection) each time this much work is done."""

    def code(me: Actor) -> Iterator[Step]:
        while True:
            for _ in range(round(work / ms)):
                while me.process.queued(0) >= 40:
                    yield Sleep(1.0)
                yield kernel(ms)
            yield Sleep(pause)

    return code


def locked(threads: int) -> list[Program]:
    """A lock held during launches, which a host function in the stream takes too (like Python's GIL)."""

    def code(me: Actor) -> Iterator[Step]:
        stream = (0, me.process.random.random())
        while True:
            yield Lock()
            for _ in range(5):
                yield Launch(stream, Item("run", 0.2))
            yield Launch(stream, Item("host", 0.1, locks=True))
            yield Unlock()
            yield Sleep(0.02)
            while len(me.process.streams[stream]) > 20:
                yield Sleep(0.5)
            me.container.steps += 1

    return [code] * threads


def two_streams(me: Actor) -> Iterator[Step]:
    """One stream waits for a value that the other writes eight launches later."""
    word, n = Word(), 0
    while True:
        n += 1
        yield Launch((0, 1), Item("wait", holds=word.reaches(n)))
        yield Launch((0, 1), Item("run", 1.0))
        for _ in range(8):
            yield kernel(1.0)
        yield Launch(MAIN, Item("write", holds=word.writes(n)))
        while len(me.process.streams[MAIN]) > 8:
            yield Sleep(0.5)
        me.container.steps += 1


def collective(me: Actor) -> Iterator[Step]:
    """A kernel on each of two GPUs that spins until both have started."""
    while True:
        started: set[int] = set()

        def have_started(started: set[int] = started) -> bool:
            return len(started) == 2

        for gpu in (0, 1):
            yield Launch((gpu, 0), Item("run", 2.0))
            yield Launch((gpu, 0), Item("spin", 1.0, have_started, starts=started))
        me.container.steps += 1
        while len(me.process.streams[MAIN]) > 20:
            yield Sleep(0.5)


def persistent(later: int, *, is_synced: bool = True) -> Program:
    """A kernel that ends after the last of this many later launches.

    Unless `is_synced`, the next such kernel starts before that.
    """

    def code(me: Actor) -> Iterator[Step]:
        word, n = Word(), 0
        while True:
            n += 1
            yield Launch((0, 1 + n % 2), Item("spin", 0.1, word.reaches(n)))
            for _ in range(later):
                yield kernel(1.0)
                yield Sleep(0.2)
            yield Launch(MAIN, Item("write", holds=word.writes(n if is_synced else n - 1)))
            if is_synced:
                yield Sync()
            while len(me.process.streams[MAIN]) > 16:
                yield Sleep(0.5)
            me.container.steps += 1

    return code


def endless(kind: Kind, ms: float) -> Program:
    """Kernels beside a stream that spins or waits for ever."""

    def code(me: Actor) -> Iterator[Step]:
        yield Launch((0, 1), Item(kind, 0.1, lambda: False))
        while not me.process.is_dead:
            yield kernel(ms)
            yield Sync(MAIN)
            yield Sleep(0.02)

    return code


def hoarding(me: Actor) -> Iterator[Step]:
    """Half a second of work behind a host function, launched while nothing executes."""
    while not me.process.is_dead:
        yield Launch(MAIN, Item("host", 50.0))
        for _ in range(500):
            yield kernel(1.0)
        yield Sync()


def share(simulation: Simulation, container: Container) -> float:
    """The percentage of the GPUs' time that a container had since it came."""
    return 100 * container.work / (simulation.span - container.start) / len(simulation.gpus)
