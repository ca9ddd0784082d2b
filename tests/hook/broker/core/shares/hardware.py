"""Processes, streams and GPUs that exist in a computer's memory alone, in milliseconds of a clock that a test moves.

The hardware gives each process with a kernel to run a slice of 2 ms, round robin, per GPU; what is launched is never
taken back.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final, Literal

SLICE: Final = 2.0
KERNELS: Final = ("run", "spin")

Kind = Literal["run", "spin", "host", "wait", "write"]
Name = tuple[int, float]
"""A stream: its GPU, and a number."""


@dataclass(eq=False, slots=True)
class Item:
    """One thing in a stream.

    Attributes:
        kind: "run" is a kernel, or several in a row; "spin" a kernel that first spins until `holds`; "host" a host
            function; "wait" a wait until `holds`; "write" whatever `holds` does when it is called.
        ms: what is left of it.
        locks: a host function that takes its process's lock.
        starts: the GPUs on which a collective has started, this one to be added.
    """

    kind: Kind
    ms: float = 0.0
    holds: Callable[[], object] = lambda: True
    locks: bool = False
    starts: set[int] | None = None
    kernel_ms: float = 0.0
    ends: float | None = None

    def __post_init__(self) -> None:
        self.kernel_ms = self.ms

    @property
    def unmarked_ms(self) -> float:
        """As the library sees it: each kernel ends with a mark, and inside one nothing is seen."""
        if self.kind == "spin":
            return self.ms
        return math.ceil(self.ms / self.kernel_ms - 1e-6) * self.kernel_ms


class Stream(deque[Item]):
    """Queued items, and for how long its kernels have executed in all."""

    executed = 0.0

    def append_or_extend(self, item: Item) -> None:
        """Kernels in a row are one item with one end, as long as they are equally long."""
        if self and item.kind == "run" == self[-1].kind:
            self[-1].ms += item.ms
        else:
            self.append(item)


@dataclass(eq=False, slots=True)
class Burst:
    """Work of a process on a GPU without a pause, by the marks at its begin and at its end.

    Attributes:
        began: when its first launch was.
        executed: when its first slice was; None for not yet.
    """

    began: float
    executed: float | None = None


@dataclass(slots=True)
class Words:
    """What a process writes on its page for one GPU, as in `pages.Work`.

    Attributes:
        sums: of ended bursts: unfinished, sure, sliced.
        burst: the one under way.
        before: sums and burst as they were before the latest end became known to the library.
        known: when that became known.
    """

    sums: tuple[float, float, float] = (0.0, 0.0, 0.0)
    burst: Burst | None = None
    before: tuple[tuple[float, float, float], Burst] | None = None
    known: float = 0.0

    def end(self, now: float, known: float) -> None:
        """The burst is over, which is seen a little late, and exact from then on."""
        assert self.burst is not None
        self.before, self.known = (self.sums, self.burst), known
        unfinished, sure, sliced = self.sums
        executed = max(now - self.burst.executed, 0.0) if self.burst.executed is not None else 0.0
        length = now - self.burst.began
        self.sums = (unfinished + length, sure + min(executed, SLICE), sliced + max(executed - SLICE, 0.0))
        self.burst = None

    def shown(self, now: float) -> tuple[tuple[float, float, float], Burst | None]:
        """What stands on the page."""
        if self.burst is None and self.before is not None and now < self.known:
            return self.before
        return self.sums, self.burst


@dataclass(eq=False)
class Process:
    """One process of a container.

    Attributes:
        random: what its programs leave to chance.
        noise: what the machine does.
        lock: who holds its lock: a thread or a host function.
        is_idle: it has nothing queued, and none of its bursts is under way.
        at_gate: on which GPUs a thread of it wants to launch, and stands.
    """

    number: int
    random: Random
    noise: Random
    streams: dict[Name, Stream] = field(default_factory=dict)
    words: dict[int, Words] = field(default_factory=dict)
    lock: object = None
    is_dead: bool = False
    is_idle: bool = True
    at_gate: set[int] = field(default_factory=set)

    def launch(self, name: Name, item: Item) -> None:
        """Put an item into a stream."""
        self.is_idle = False
        self.streams.setdefault(name, Stream()).append_or_extend(item)

    def on(self, gpu: int) -> list[Stream]:
        """Its streams there that have anything queued."""
        return [stream for (g, _), stream in self.streams.items() if g == gpu and stream]

    def has_kernel(self, gpu: int) -> bool:
        """Whether it can be given a slice."""
        return any(stream[0].kind in KERNELS for stream in self.on(gpu))

    def queued(self, gpu: int) -> float:
        """What its kernels there will take."""
        return sum(item.ms for stream in self.on(gpu) for item in stream if item.kind in KERNELS)

    def unmarked(self, gpu: int) -> float:
        """As much as the library knows of that."""
        return sum(item.unmarked_ms for stream in self.on(gpu) for item in stream if item.kind in KERNELS)

    def pass_heads(self, now: float) -> bool:
        """Go on past what takes no time of a GPU; whether anything moved."""
        return sum(self._pass_heads(stream, now) for stream in self.streams.values()) > 0

    def _pass_heads(self, stream: Stream, now: float) -> bool:
        has_moved = False
        while stream and self._is_over(stream[0], now):
            stream.popleft()
            has_moved = True
        return has_moved

    def _is_over(self, item: Item, now: float) -> bool:
        match item.kind:
            case "run" | "spin":
                return item.ms <= 1e-9
            case "wait":
                return bool(item.holds())
            case "write":
                item.holds()
                return True
            case "host":
                return self._has_returned(item, now)

    def _has_returned(self, item: Item, now: float) -> bool:
        if item.locks and self.lock not in (None, item):
            return False
        if item.ends is None:
            item.ends = now + item.ms
            self.lock = item if item.locks else self.lock
        if now < item.ends - 1e-9:
            return False
        self.lock = None if self.lock is item else self.lock
        return True

    def mark(self, gpus: range, now: float) -> None:
        """Bursts begin and end."""
        for gpu in gpus:
            words = self.words.setdefault(gpu, Words())
            if self.has_kernel(gpu):
                words.burst = words.burst or Burst(now)
            elif words.burst is not None:
                words.end(now, now + self.noise.uniform(0.02, 0.1))
        self.is_idle = not any(self.streams.values())


@dataclass(eq=False)
class Device:
    """One GPU: who has the slice, and how much of it is left."""

    gpu: int
    current: Process | None = None
    left: float = 0.0

    def choose(self, processes: list[Process], slices: Callable[[Process], float], now: float) -> None:
        """Give the next slice, where this one is over or cannot be used."""
        able = [process for process in processes if process.has_kernel(self.gpu)]
        if self.current not in able or self.left <= 1e-9:
            start = processes.index(self.current) + 1 if self.current in processes else 0
            turns = processes[start:] + processes[:start]
            self.current = next((process for process in turns if process in able), None)
            self.left = SLICE * slices(self.current) if self.current else 0.0
        if self.current:
            self._note_start(self.current, now)

    def _note_start(self, process: Process, now: float) -> None:
        burst = process.words[self.gpu].burst
        assert burst is not None
        burst.executed = now if burst.executed is None else burst.executed
        for stream in process.on(self.gpu):
            if stream[0].kind == "spin" and stream[0].starts is not None:
                stream[0].starts.add(self.gpu)

    def executing(self) -> Stream | None:
        """What goes on in this slice: a kernel that has spun enough, or the first plain one; none while all spin."""
        if self.current is None:
            return None
        streams = self.current.on(self.gpu)
        spun = [stream for stream in streams if stream[0].kind == "spin" and stream[0].holds()]
        return next(iter([*spun, *(stream for stream in streams if stream[0].kind == "run")]), None)
