"""A simulation of shares by gates. Programs, library and hardware are models; the broker's core is the real one.

Times are milliseconds; `ns` converts them for the core. A program is a generator of its thread's steps; it gets
the simulation and its process. Several programs in a list are threads of one process.
"""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from hook.broker.core.ids import ContainerKey
from hook.broker.core.shares.events import (
    Appeared,
    GateState,
    Gone,
    Joined,
    SetGate,
    ShareInstruction,
    ShareTerms,
    ShareUse,
    Ticked,
    Utilised,
    Words,
)
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import ShareSettings
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from tests.hook.broker.core.shares.hardware import Device, Item, Name, Process
from tests.hook.broker.core.shares.library import Library, Stand

MS: Final = 1_000_000
LOOK: Final = 1000.0
"""The time between two readings of NVML."""


class Launch(NamedTuple):
    """Put an item into a stream. The launch may stand at the gate."""

    stream: Name
    item: Item


class Sync(NamedTuple):
    """Wait until a stream is empty; None for all."""

    stream: Name | None = None


class Sleep(NamedTuple):
    """Do nothing for this long."""

    ms: float


FOR_EVER: Final = Sleep(math.inf)


@dataclass(frozen=True)
class Lock:
    """Take the process's lock."""


@dataclass(frozen=True)
class Unlock:
    """Release the process's lock."""


Step = Launch | Sync | Sleep | Lock | Unlock
Program = Callable[["Actor"], Iterator[Step]]


def ns(ms: float) -> int:
    """A time of the core; it is never 0, as 0 means absent there."""
    return round((ms + 1000) * MS)


@dataclass(eq=False)
class Container:
    """One container: its terms, its programs, and their measured results.

    Attributes:
        slices: the length of its hardware slices ÷ the others'.
        seconds: the time in which its kernels ran, for each second.
        latencies: the latencies of its requests, if it serves any.
        work: the total time in which its kernels ran.
        steps: the number of finished rounds of its program.
    """

    name: str
    request: float
    limit: float
    programs: Sequence[Program | list[Program]]
    start: float = 0.0
    slices: float = 1.0
    gate: GateState = GateState.OPEN
    sharers: int = 1
    processes: list[Process] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=lambda: [0.0])
    work: float = 0.0
    steps: int = 0

    @property
    def key(self) -> ContainerKey:
        """The core's name for the container."""
        return ContainerKey(PodUid(self.name), ContainerName("main"))


@dataclass(frozen=True)
class Actor:
    """The part of the simulation that a program sees."""

    process: Process
    container: Container
    clock: Callable[[], float]

    @property
    def now(self) -> float:
        """The current time."""
        return self.clock()


@dataclass(eq=False, slots=True)
class Thread:
    """One thread of a program.

    Attributes:
        step: its next step.
        wake: the time at which it goes on by itself.
    """

    container: Container
    process: Process
    code: Iterator[Step]
    step: Step | None = None
    wake: float = math.inf
    stand: Stand | None = None


class Simulation:
    """A simulated machine on which containers run for a span."""

    def __init__(
        self,
        containers: Sequence[Container],
        gpus: int = 1,
        *,
        gated: bool = True,
        span: float = 10_000.0,
        tick: float = 5.0,
        estimate: float = 1.0,
        seed: int = 1,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run the whole simulation.

        Args:
            containers: the containers of the machine.
            gpus: the number of GPUs; each container is on all of them.
            gated: whether a broker holds the containers.
            span: the length of the run.
            tick: the length of the broker's tick.
            estimate: the library's first guess of a queue's length ÷ its true length.
            seed: the seed of all random choices.
            is_over: called once a tick; True ends the run early.
        """
        self.containers, self.gpus, self.span, self.now = containers, range(gpus), span, 0.0
        self.random = random.Random(seed)  # noqa: S311 - repeatable
        self._tick, self._gated, self._is_over = tick, gated, is_over
        self.instructions: list[ShareInstruction] = []
        self._uuids = tuple(GpuUuid(f"GPU-{gpu}") for gpu in self.gpus)
        self._devices = [Device(gpu) for gpu in self.gpus]
        self._by_number: dict[int, Container] = {}
        self._processes: list[Process] = []
        self._threads: list[Thread] = []
        self._ran: dict[tuple[int, int], float] = {}
        self._todo = [(container, program) for container in containers for program in container.programs]
        self._libraries = {c: Library(c.processes, self.gpus, self.random, estimate) for c in containers}
        self.scheduler = Scheduler(ShareSettings(tick_ms=tick))
        self._by_key = {container.key: container for container in containers}
        for c in containers if gated else ():
            terms = ShareTerms(self._uuids, round(100 * c.request), round(100 * c.limit))
            self._carry_out(self.scheduler.handle(Joined(c.key, terms, ns(0))))
        self._ask_nvml()
        self._run()

    @property
    def given_up(self) -> int:
        """The number of stands that ended before the work they waited for."""
        return sum(library.given_up for library in self._libraries.values())

    def uses(self, container: Container) -> ShareUse:
        """The broker's account of a container at the end."""
        use = self.scheduler.uses(container.key, ns(self.now))
        assert use is not None
        return use

    # Programs.

    def _start(self) -> None:
        due = [(c, program) for c, program in self._todo if c.start <= self.now + 1e-9]
        self._todo = [(c, program) for c, program in self._todo if c.start > self.now + 1e-9]
        for container, program in due:
            number = len(self._by_number) + 1
            seed = len(container.processes) + sum(map(ord, container.name))
            chance = random.Random(seed)  # noqa: S311 - repeatable
            process = Process(number, chance, self.random)
            self._by_number[number] = container
            container.processes.append(process)
            self._processes.append(process)
            actor = Actor(process, container, lambda: self.now)
            for part in program if isinstance(program, list) else [program]:
                self._threads.append(Thread(container, process, part(actor), wake=self.now))
            if self._gated:
                self._carry_out(self.scheduler.handle(Appeared(container.key, number, number, ns(self.now))))

    def _go_on(self, thread: Thread) -> bool:
        """Let a thread take its possible steps. Returns whether it took any."""
        has_moved = False
        while not thread.process.is_dead:
            step = thread.step
            if step is None:
                step = thread.step = next(thread.code, FOR_EVER)
                thread.wake = self.now + step.ms if isinstance(step, Sleep) else math.inf
            if not self._can_do(thread, step):
                break
            thread.step, thread.wake, has_moved = None, math.inf, True
        return has_moved

    def _can_do(self, thread: Thread, step: Step) -> bool:
        if isinstance(step, Launch):
            return self._can_launch(thread, step.stream, step.item)
        if isinstance(step, Sleep):
            return self.now >= thread.wake - 1e-9
        process = thread.process
        match step:
            case Sync(stream):
                return not any(q for name, q in process.streams.items() if stream in (None, name))
            case Lock():
                process.lock = thread if process.lock is None else process.lock
                return process.lock is thread
            case Unlock():
                process.lock = None
                return True

    def _can_launch(self, thread: Thread, stream: Name, item: Item) -> bool:
        container, process, gpu = thread.container, thread.process, stream[0]
        if self._gated:
            gate = (container.gate, container.sharers)
            library = self._libraries[container]
            may, thread.stand = library.may_launch(process, gpu, thread.stand, gate, self.now)
            if not may:
                process.at_gate.add(gpu)
                thread.wake = thread.stand.until if thread.stand else math.inf
                return False
        process.at_gate.discard(gpu)
        process.launch(stream, item)
        return True

    # Time.

    def _run(self) -> None:
        next_tick, next_look, second = self._tick, LOOK, 1000.0
        while self.now < self.span:
            self._settle()
            times = [next_tick, second, *self._wakes()]
            self._execute(max(min(times) - self.now, 1e-6))
            if self.now >= next_tick - 1e-9:
                if self._is_over():
                    break
                self._account()
                if self.now >= next_look:
                    next_look += LOOK
                    self._ask_nvml()
                late = (
                    self.random.expovariate(1) if self.random.random() < 0.05 else 0.2 * self.random.random()
                )
                next_tick = self.now + self._tick + late
            if self.now >= second - 1e-9:
                second += 1000
                for container in self.containers:
                    container.seconds.append(0.0)

    def _settle(self) -> None:
        """Do all steps that take no time."""
        has_moved = True
        while has_moved:
            if self._todo:
                self._start()
            has_moved, now = False, self.now
            for thread in self._threads:
                if not (isinstance(thread.step, Sleep) and now < thread.wake - 1e-9):
                    has_moved |= self._go_on(thread)
            for process in self._processes:
                if not process.is_idle:
                    has_moved |= process.pass_heads(self.now)
                    process.mark(self.gpus, self.now)
            self._bury()
        for device in self._devices:
            device.choose(self._processes, self._slices, self.now)

    def _slices(self, process: Process) -> float:
        return self._by_number[process.number].slices

    def _bury(self) -> None:
        for process in [process for process in self._processes if process.is_dead]:
            self._processes.remove(process)
            self._by_number[process.number].processes.remove(process)
            self._threads = [thread for thread in self._threads if thread.process is not process]
            if self._gated:
                self._carry_out(
                    self.scheduler.handle(Gone(process.number, ns(self.now), self._page(process)))
                )

    def _wakes(self) -> list[float]:
        later = self.now + 1e-9
        times = [thread.wake for thread in self._threads if thread.wake > later]
        times += [container.start for container, _ in self._todo]
        for process in self._processes:
            for stream in process.streams.values():
                if stream and (ends := stream[0].ends) is not None:
                    times.append(ends)
        return times

    def _execute(self, most: float) -> None:
        """Let time pass until the next possible event."""
        on = [(device, device.executing()) for device in self._devices if device.current]
        part = most
        for device, stream in on:
            part = min(part, device.left, stream[0].ms if stream else part)
        part = max(part, 1e-6)
        for device, stream in on:
            assert device.current is not None
            container, place = self._by_number[device.current.number], (device.current.number, device.gpu)
            device.left -= part
            self._ran[place] = (
                self._ran.get(place, 0.0) + part
            )  # A spinning kernel occupies the GPU without doing work.
            if stream:
                stream[0].ms -= part
                stream.executed += part
                container.work += part
                container.seconds[-1] += part
        self.now += part

    # The broker.

    def _account(self) -> None:
        """Run one tick: read the pages, and carry out the core's instructions."""
        if not self._gated:
            return
        pages = {process.number: self._page(process) for process in self._processes}
        self._carry_out(self.scheduler.handle(Ticked(ns(self.now), pages)))

    def _page(self, process: Process) -> Words:
        page: list[int] = []
        for gpu in self.gpus:
            nothing = 0, (0.0, 0.0, 0.0), None
            changes, sums, burst = process.words[gpu].shown(self.now) if gpu in process.words else nothing
            began = ns(burst.began) if burst else 0
            executed = ns(burst.executed) if burst and burst.executed is not None else 0
            page += [
                changes,
                began,
                executed,
                *(round(part * MS) for part in sums),
                changes,
                0,
                gpu in process.at_gate,
                ns(self.now),
            ]
        return tuple(page)

    def _ask_nvml(self) -> None:
        """Supply NVML's process utilisation in whole points, from figures with an error of 2 %."""
        if not self._gated:
            return
        for gpu, uuid in enumerate(self._uuids):
            ran = {n: ms for (n, g), ms in self._ran.items() if g == gpu}
            used = {n: round(ms / LOOK * 100 * self.random.uniform(0.98, 1.02)) for n, ms in ran.items()}
            self._carry_out(self.scheduler.handle(Utilised(uuid, ns(self.now), used)))
        self._ran.clear()

    def _carry_out(self, instructions: list[ShareInstruction]) -> None:
        self.instructions += instructions
        for step in instructions:
            if isinstance(step, SetGate):
                container = self._by_key[step.container]
                container.gate, container.sharers = GateState(step.word & 3), step.sharers
