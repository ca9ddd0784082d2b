"""GPUs, programs and their broker as a simulation in discrete events, to drive the share scheduler by.

Words from processes to the broker, gate words back, and ticks are late by some tens of microseconds that vary.
Kernels of different processes do not slow each other down, so work beside the holder of the token shows as time used
twice. The book says for how long each container really had unfinished work.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from random import Random
from typing import Final

from hook.broker.core.facts import ContainerKey
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import MS, US, S, ShareSettings
from hook.broker.core.shares.turns import (
    GateState,
    Gone,
    Joined,
    Left,
    Reported,
    SetGate,
    ShareEvent,
    ShareInstruction,
    Terms,
    Ticked,
    Unmet,
)
from plimsoll.layout import GATE_STATES
from plimsoll.names import ContainerName, GpuUuid, PodUid
from tests.hook.broker.shares.library import Process
from tests.hook.broker.shares.programs import Program

WIRE_NS: Final = 40 * US
"""From one side to the other."""

DEATH_NS: Final = 200 * US
"""Until the broker hears of one."""


@dataclass(eq=False, slots=True)
class Container:
    """One container, with its page of the book.

    Attributes:
        everyone: its processes, dead ones too.
        busy: processes with unfinished work now.
    """

    key: ContainerKey
    terms: Terms
    joined_ns: int
    word: int = 0
    processes: list[Process] = field(default_factory=list)
    everyone: list[Process] = field(default_factory=list)
    used_ns: int = 0
    busy: int = 0
    busy_since_ns: int = 0

    @property
    def state(self) -> GateState:
        """What its gate says."""
        return GateState(self.word & GATE_STATES)


class World:
    """The clock, the wire, the book, and the broker with its scheduler."""

    def __init__(self, settings: ShareSettings | None = None, seed: int = 0) -> None:
        self.settings = settings or ShareSettings()
        self.scheduler = Scheduler(self.settings)
        self.random = Random(seed)  # noqa: S311 - repeatable
        self.now_ns = 1000 * MS
        self.containers: dict[ContainerKey, Container] = {}
        self.departed: list[Container] = []
        self.handled: list[tuple[ShareEvent, list[ShareInstruction]]] = []
        self.checks: list[Callable[[], None]] = []
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0
        self._pids = 0
        self._tick_ns: int | None = None
        self._wire_free_ns = 0
        self._awake_ns = 0

    # What tests do.

    def join(
        self,
        name: str,
        request_pct: int,
        limit_pct: int = 100,
        *,
        gpus: tuple[str, ...] = ("GPU-a",),
        whole: bool = False,
    ) -> Container:
        """Register a container, or change its terms."""
        key = ContainerKey(PodUid(name), ContainerName("main"))
        terms = Terms(tuple(map(GpuUuid, gpus)), request_pct, limit_pct, whole)
        container = self.containers.setdefault(key, Container(key, terms, self.now_ns))
        container.terms = terms
        self.handle(Joined(key, terms, self.now_ns))
        return container

    def leave(self, container: Container) -> None:
        """Remove a container with its processes."""
        for process in container.processes:
            process.die()
        self.departed.append(self.containers.pop(container.key))
        self.handle(Left(container.key, self.now_ns))

    def start(self, container: Container, program: Program) -> Process:
        """Start a process of it."""
        self._pids += 1
        process = Process(self, container.key, self._pids, program)
        process.word = container.word
        container.processes.append(process)
        container.everyone.append(process)
        self.after(0, process.run)
        return process

    def kill(self, process: Process) -> None:
        """SIGKILL; the broker hears of it."""
        process.die()
        self.containers[process.container].processes.remove(process)
        self.after(self.jitter(DEATH_NS), lambda: self._bury(process))

    def restart_broker(self) -> None:
        """A new scheduler takes the containers over as it finds them."""
        self.scheduler, self._tick_ns = Scheduler(self.settings), None
        for container in self.containers.values():
            self.handle(Joined(container.key, container.terms, self.now_ns, container.word))

    def stall_broker(self, seconds: float) -> None:
        """The broker is not run for so long; then it first hears what was said, and then looks at the clock."""
        self._awake_ns = self.now_ns + round(seconds * S)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end_ns = self.now_ns + round(seconds * S)
        while self._heap and self._heap[0][0] <= end_ns:
            self.now_ns, _, call = heappop(self._heap)
            call()
        self.now_ns = end_ns

    # What tests look at.

    def used_ns(self, container: Container) -> int:
        """For how long it had unfinished work."""
        return container.used_ns + (self.now_ns - container.busy_since_ns if container.busy else 0)

    def used_on_ns(self, gpu: GpuUuid) -> int:
        """For how long all together had, on a GPU."""
        everybody = [*self.containers.values(), *self.departed]
        return sum(self.used_ns(container) for container in everybody if gpu in container.terms.gpus)

    def shares(self, seconds: float, *containers: Container) -> list[float]:
        """Let time pass; in percent of it, how long each had unfinished work."""
        before = [self.used_ns(container) for container in containers]
        self.run(seconds)
        after = [self.used_ns(container) for container in containers]
        return [100 * (now_ns - was_ns) / seconds / S for now_ns, was_ns in zip(after, before, strict=True)]

    @property
    def unmet(self) -> list[Unmet]:
        """Who was told of."""
        return [told for _, steps in self.handled for told in steps if isinstance(told, Unmet)]

    # What processes run on.

    def jitter(self, ns: int) -> int:
        """About so long."""
        return round(ns * self.random.uniform(0.3, 1.3))

    def after(self, ns: int, call: Callable[[], None]) -> None:
        """Do this later."""
        self._planned += 1
        heappush(self._heap, (self.now_ns + ns, self._planned, call))

    def send(self, report: Reported) -> None:
        """To the broker; what is sent later arrives later."""
        self._wire_free_ns = max(self._wire_free_ns + 1, self.now_ns + self.jitter(WIRE_NS))
        self.after(self._wire_free_ns - self.now_ns, lambda: self._deliver(report))

    def set_busy(self, process: Process, *, is_busy: bool) -> None:
        """Keep the book: the time in which any of a container's processes has work."""
        container = self._container(process.container)
        if is_busy and not container.busy:
            container.busy_since_ns = self.now_ns
        container.busy += 1 if is_busy else -1
        if not container.busy:
            container.used_ns += self.now_ns - container.busy_since_ns

    # The broker.

    def handle(self, event: ShareEvent) -> None:
        """Let the scheduler handle an event, and do what it says."""
        steps = self.scheduler.handle(event)
        self.handled.append((event, steps))
        for step in steps:
            if isinstance(step, SetGate):
                self._set(step)
        self._plan_tick()
        for check in self.checks:
            check()

    def _set(self, step: SetGate) -> None:
        container = self.containers[step.container]
        container.word = step.word
        for process in container.processes:
            self.after(self.jitter(WIRE_NS), self._show(process, container))

    def _show(self, process: Process, container: Container) -> Callable[[], None]:
        """Who looks at a gate sees what it says then."""
        return lambda: process.see(container.word)

    def _deliver(self, report: Reported) -> None:
        if self._sleeps(lambda: self._deliver(report), 0):
            return
        self.handle(replace(report, now_ns=self.now_ns))

    def _bury(self, process: Process) -> None:
        if self._sleeps(lambda: self._bury(process), 0):
            return
        self.handle(Gone(process.container, process.key, self.now_ns))

    def _sleeps(self, call: Callable[[], None], later_ns: int) -> bool:
        """Whether the broker does not run now; it does this when it does."""
        if self.now_ns >= self._awake_ns:
            return False
        self.after(self._awake_ns + later_ns - self.now_ns, call)
        return True

    def _container(self, key: ContainerKey) -> Container:
        return self.containers.get(key) or next(gone for gone in self.departed if gone.key == key)

    def _plan_tick(self) -> None:
        due_ns = self.scheduler.due_ns
        if due_ns is not None and due_ns != self._tick_ns:
            self._tick_ns = due_ns
            self.after(max(due_ns - self.now_ns, 0) + self.jitter(WIRE_NS), lambda: self._tick(due_ns))

    def _tick(self, due_ns: int) -> None:
        if self._tick_ns != due_ns or self._sleeps(lambda: self._tick(due_ns), 1):
            return
        self._tick_ns = None
        slots = {(p.container, p.key): p.use for c in self.containers.values() for p in c.processes}
        uses = {who: slots[who] for who in self.scheduler.watched if who in slots}
        self.handle(Ticked(self.now_ns, uses))
