"""Processes, streams and GPUs that exist only in memory, in milliseconds of a clock that a test advances.

The hardware gives each process with a kernel to run a slice of 2 ms, round robin, per GPU; a launched kernel is
never taken back. Every step of a simulation comes through here. So loops stand where generators would read better: a
generator takes twice as long.
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
    """One item of a stream.

    Attributes:
        kind: "run" is a kernel, or several in a row; "spin" a kernel that first spins until `holds`; "host" a host
            function; "wait" a wait until `holds`; "write" whatever `holds` does when it is called.
        ms: the part of its length that is left.
        locks: whether this host function takes its process's lock.
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
        """The length that the library sees as left.

        A mark ends each kernel, and the inside of a kernel shows nothing.
        """
        if self.kind == "spin":
            return self.ms
        return math.ceil(self.ms / self.kernel_ms - 1e-6) * self.kernel_ms


class Stream(deque[Item]):
    """Queued items, and the total time in which the stream's kernels have executed."""

    executed = 0.0

    def append_or_extend(self, item: Item) -> None:
        """Append an item. Consecutive kernels of equal length become one item with one end."""
        if self and item.kind == "run" == self[-1].kind:
            self[-1].ms += item.ms
        else:
            self.append(item)


@dataclass(eq=False, slots=True)
class Burst:
    """Work of a process on a GPU without a pause, from the mark at its begin to the mark at its end.

    Attributes:
        began: the time of its first launch.
        executed: the time of its first slice; None before that.
    """

    began: float
    executed: float | None = None


@dataclass(slots=True)
class Words:
    """The words of a process for one GPU, as in `pages.Work`.

    Attributes:
        sums: the sums over ended bursts: unfinished, sure, sliced.
        burst: the burst under way.
        before: sums and burst as they were before the latest end became known to the library.
        known: the time at which the library noticed that end.
        ended: the number of ended bursts.
    """

    sums: tuple[float, float, float] = (0.0, 0.0, 0.0)
    burst: Burst | None = None
    before: tuple[tuple[float, float, float], Burst] | None = None
    known: float = 0.0
    ended: int = 0

    def end(self, now: float, known: float) -> None:
        """End the burst. The words show the end a little later, with its exact time."""
        assert self.burst is not None
        self.before, self.known = (self.sums, self.burst), known
        unfinished, sure, sliced = self.sums
        executed = max(now - self.burst.executed, 0.0) if self.burst.executed is not None else 0.0
        length = now - self.burst.began
        self.sums = (unfinished + length, sure + min(executed, SLICE), sliced + max(executed - SLICE, 0.0))
        self.burst = None
        self.ended += 1

    def shown(self, now: float) -> tuple[int, tuple[float, float, float], Burst | None]:
        """The words that stand on the page, with the number of their changes: three for each burst."""
        sums, burst, ended = self.sums, self.burst, self.ended
        if burst is None and self.before is not None and now < self.known:
            (sums, burst), ended = self.before, ended - 1
        return 3 * ended + (0 if burst is None else 1 + (burst.executed is not None)), sums, burst


@dataclass(eq=False)
class Process:
    """One process of a container.

    Attributes:
        random: the random choices of its programs.
        noise: the random delays of the machine.
        lock: the holder of its lock: a thread or a host function.
        is_idle: it has nothing queued and no burst under way.
        at_gate: the GPUs for which a launch of its threads stands.
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
        """The process's streams on a GPU that have queued items."""
        return [stream for name, stream in self.streams.items() if stream and name[0] == gpu]

    def has_kernel(self, gpu: int) -> bool:
        """Whether the process can be given a slice."""
        for name, stream in self.streams.items():  # noqa: SIM110 - see the module
            if stream and name[0] == gpu and stream[0].kind in KERNELS:
                return True
        return False

    def queued(self, gpu: int) -> float:
        """The length of the process's queued kernels on a GPU."""
        total = 0.0
        for name, stream in self.streams.items():
            if stream and name[0] == gpu:
                for item in stream:
                    if item.kind in KERNELS:
                        total += item.ms
        return total

    def unmarked(self, gpu: int) -> float:
        """The part of that length that the library sees."""
        return sum(item.unmarked_ms for stream in self.on(gpu) for item in stream if item.kind in KERNELS)

    def pass_heads(self, now: float) -> bool:
        """Remove heads that take no GPU time. Returns whether any was removed."""
        has_moved = False
        for stream in self.streams.values():
            while stream:
                head = stream[0]
                if not (head.ms <= 1e-9 if head.kind in KERNELS else self._is_over(head, now)):
                    break
                stream.popleft()
                has_moved = True
        return has_moved

    def _is_over(self, item: Item, now: float) -> bool:
        """Whether a head is done."""
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
        """Begin and end bursts."""
        for gpu in gpus:
            words = self.words.get(gpu)
            if words is None:
                words = self.words[gpu] = Words()
            if self.has_kernel(gpu):
                if words.burst is None:
                    words.burst = Burst(now)
            elif words.burst is not None:
                words.end(now, now + self.noise.uniform(0.02, 0.1))
        self.is_idle = not any(self.streams.values())


@dataclass(eq=False)
class Device:
    """One GPU: the process that has the slice, and the rest of the slice."""

    gpu: int
    current: Process | None = None
    left: float = 0.0

    def choose(self, processes: list[Process], slices: Callable[[Process], float], now: float) -> None:
        """Give the next slice if this one is over or its process, if it lives, has no kernel."""
        current = self.current
        if current is None or self.left <= 1e-9 or current.is_dead or not current.has_kernel(self.gpu):
            start = processes.index(current) + 1 if current is not None and not current.is_dead else 0
            turns = processes[start:] + processes[:start]
            self.current = next((process for process in turns if process.has_kernel(self.gpu)), None)
            self.left = SLICE * slices(self.current) if self.current else 0.0
        if self.current:
            self._note_start(self.current, now)

    def _note_start(self, process: Process, now: float) -> None:
        burst = process.words[self.gpu].burst
        assert burst is not None
        burst.executed = now if burst.executed is None else burst.executed
        for name, stream in process.streams.items():
            if stream and name[0] == self.gpu and stream[0].starts is not None:
                stream[0].starts.add(self.gpu)

    def executing(self) -> Stream | None:
        """The stream that executes in this slice; None while all spin.

        A kernel that has spun enough comes before a plain one.
        """
        if self.current is None:
            return None
        plain = None
        for stream in self.current.on(self.gpu):
            head = stream[0]
            if head.kind == "run":
                plain = plain or stream
            elif head.kind == "spin" and head.holds():
                return stream
        return plain
