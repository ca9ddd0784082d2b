"""One simulated process with the library under it: what it lets pass at the gate, and what it tells the broker.

It tells what the real one tells, at the same occasions: that it wants, once per gate word; that its work is done
after the gate shut; that it is idle while others wait.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from hook.broker.core.facts import ContainerKey, ProcessKey
from hook.broker.core.shares.settings import MS, US, ShareSettings
from hook.broker.core.shares.turns import Reported, Use
from plimsoll.layout import GATE_CONTENDED, GATE_METERED, GATE_OPEN, GATE_SHUT, GATE_STATES
from tests.hook.broker.shares.programs import Launch, Program, Sleep, Step, Sync

LAUNCH_NS: Final = 5 * US
"""What a launch costs its thread."""

DRIVER_NS: Final = 20 * MS
"""How much work the driver itself lets a program queue where nobody meters it; one launch at least."""

LOOK_NS: Final = 700 * US
"""How often the library looks whether work that nobody waits for has ended."""

DRAIN_LOOK_NS: Final = 100 * US
"""Likewise while its gate is shut."""

WAKE_NS: Final = 20 * US
"""Until a thread runs that waited for the GPU."""


class Machine(Protocol):
    """What a process runs on."""

    now_ns: int
    settings: ShareSettings

    def jitter(self, ns: int) -> int:
        """About so long."""

    def after(self, ns: int, call: Callable[[], None]) -> None:
        """Do this later."""

    def send(self, report: Reported) -> None:
        """To the broker; it arrives a little later."""

    def set_busy(self, process: "Process", *, is_busy: bool) -> None:
        """Keep the book."""


class Process:
    """One thread that launches into one stream, and the library's helper thread."""

    def __init__(self, machine: Machine, container: ContainerKey, pid: int, program: Program) -> None:
        self.machine, self.container, self.program = machine, container, program
        self.key = ProcessKey(pid, 1)
        self.word = 0
        self.use = Use(0)
        self.is_dead = False
        self.wants_ns = 0
        self.longest_ns = 0
        self.late_ns = 0  # how much later its helper thread gets the machine
        self._step: Step | None = None
        self._queue: deque[int] = deque()
        self._done_ns = 0
        self._ended_ns = 0
        self._passed_ns = 0
        self._look_ns = 0
        self._told = {"wants": -1, "done": -1}
        self._told_idle = (-1, -1)
        self._is_unmetered = False
        self._waits_for_gpu = False
        self._postponed: list[Callable[[], None]] | None = None

    # What happens to it.

    def run(self) -> None:
        """Go on with the program until it has to wait."""
        if self.is_dead or self._is_postponed(self.run):
            return
        while self._advance():
            pass

    def see(self, word: int) -> None:
        """The gate says this now."""
        if self.is_dead or self._is_postponed(lambda: self.see(word)) or word == self.word:
            return
        before, self.word = self.word & GATE_STATES, word
        if before == GATE_SHUT:
            self._passed_ns = self.machine.now_ns
        self._is_unmetered = before == GATE_OPEN
        self._tell()
        if isinstance(self._step, Launch) and not self._waits_for_gpu:
            self.run()

    def stop(self) -> None:
        """SIGSTOP: it does nothing; its GPU goes on."""
        self._postponed = []

    def resume(self) -> None:
        """SIGCONT."""
        postponed, self._postponed = self._postponed or [], None
        for call in postponed:
            call()

    @property
    def is_stopped(self) -> bool:
        """Whether it is, by SIGSTOP."""
        return self._postponed is not None

    def die(self) -> None:
        """SIGKILL: its work ends with it."""
        self.is_dead = True
        if self._queue:
            self.machine.set_busy(self, is_busy=False)

    # Its program.

    def _advance(self) -> bool:
        if self._step is None:
            self._step = next(self.program, None)
        step = self._step
        if isinstance(step, Launch):
            if self._may_launch():
                self._launch(step.ns)
        elif isinstance(step, Sleep):
            self._step = None
            self.machine.after(step.ns, self.run)
        elif isinstance(step, Sync):
            return self._sync()
        return False

    def _sync(self) -> bool:
        if self._queue:
            self._waits_for_gpu = True
            return False
        self._close()
        self._step = None
        return True

    def _may_launch(self) -> bool:
        if self.word & GATE_STATES == GATE_SHUT:
            self.wants_ns = self.wants_ns or self.machine.now_ns
            self._tell_once("wants")
            return False
        self.wants_ns = 0
        if self._queue and self._ahead_ns() >= self._bound_ns():
            self._waits_for_gpu = True
            return False
        return True

    def _launch(self, ns: int) -> None:
        now_ns = self.machine.now_ns
        if not self._queue:
            self._close()
            self._done_ns = now_ns
            self.machine.set_busy(self, is_busy=True)
        if self.word & GATE_STATES != GATE_OPEN and not self.use.busy_since_ns:
            self.use = Use(self.use.busy_ns, now_ns)
        self._queue.append(ns)
        self.longest_ns = max(self.longest_ns, ns)
        self._done_ns += ns
        self.machine.after(self._done_ns - now_ns, self._finished)
        self._step = None
        self.machine.after(LAUNCH_NS, self.run)

    def _bound_ns(self) -> int:
        is_metered = self.word & GATE_STATES == GATE_METERED
        return self.machine.settings.run_ahead_us * US if is_metered else DRIVER_NS

    def _ahead_ns(self) -> int:
        return self._done_ns - self.machine.now_ns

    # Its GPU and its helper.

    def _finished(self) -> None:
        """The oldest kernel is done: on the GPU, which no signal stops."""
        if self.is_dead:
            return
        self._queue.popleft()
        if not self._queue:
            self._ended_ns = self.machine.now_ns
            self.machine.set_busy(self, is_busy=False)
            is_shut = self.word & GATE_STATES == GATE_SHUT
            self._look_after(self.machine.jitter(DRAIN_LOOK_NS if is_shut else LOOK_NS))
        may_wake = isinstance(self._step, Launch) and self._ahead_ns() <= self._bound_ns() // 2
        if self._waits_for_gpu and (may_wake or not self._queue):
            self._waits_for_gpu = False
            self.machine.after(self.machine.jitter(WAKE_NS), self.run)

    def _look_after(self, ns: int) -> None:
        """Unless it looks sooner anyway."""
        look_ns = self.machine.now_ns + ns
        if not self.machine.now_ns < self._look_ns <= look_ns:
            self._look_ns = look_ns
            self.machine.after(ns, self._look)

    def _look(self) -> None:
        if self.is_dead or self._is_postponed(self._look) or self._queue:
            return
        self._close()
        self._tell()

    def _close(self) -> None:
        """The burst under way ended; how long it was is known exactly."""
        if self.use.busy_since_ns:
            self.use = Use(self.use.busy_ns + self._ended_ns - self.use.busy_since_ns)

    def _tell(self) -> None:
        if self.word & GATE_STATES == GATE_SHUT:
            self._tell_done()
        elif self.word & GATE_CONTENDED and not self._queue:
            self._tell_idle()

    def _tell_done(self) -> None:
        if not self._queue:
            self._close()
            self._tell_once("done")
        elif self._is_unmetered and not self.use.busy_since_ns:
            self.use = Use(self.use.busy_ns, self.machine.now_ns)
            self._send()

    def _tell_idle(self) -> None:
        idle_ns = self.machine.settings.idle_us * US + self.late_ns
        left_ns = max(self._ended_ns, self._passed_ns) + idle_ns - self.machine.now_ns
        if left_ns > 0:
            self._look_after(left_ns)
        elif self._told_idle != (self.word, self._ended_ns):
            # Once after each burst.
            self._close()
            self._told_idle = (self.word, self._ended_ns)
            self._send()

    def _tell_once(self, what: str) -> None:
        """Once per gate word."""
        if self._told[what] != self.word:
            self._told[what] = self.word
            self._send()

    def _send(self) -> None:
        wants = isinstance(self._step, Launch) and self.word & GATE_STATES == GATE_SHUT
        self.machine.send(
            Reported(
                self.container,
                self.key,
                self.machine.now_ns,
                wants=wants,
                unfinished=bool(self._queue),
                use=self.use,
                gate_word=self.word,
                idle_since_ns=self._ended_ns,
            )
        )

    def _is_postponed(self, call: Callable[[], None]) -> bool:
        if self._postponed is not None:
            self._postponed.append(call)
        return self._postponed is not None
