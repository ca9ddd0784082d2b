"""A model of a launch that stands, as in `hook/lib`, over the queues of `hardware`.

A launch stands until time opens the gate if nothing of its container executes, else for a bounded time.
"""

import random
from dataclasses import dataclass, field
from typing import Final

from hook.broker.core.shares.events import GateState
from tests.hook.broker.core.shares.hardware import SLICE, Item, Process, Stream

AHEAD: Final = 10.0
PATIENCE: Final = 3.0
"""A stand ends this long after the queued work should have ended."""

DOUBLINGS: Final = 6
SLOWER_MOST: Final = 64.0


@dataclass(eq=False, slots=True)
class Stand:
    """A thread that stands.

    Attributes:
        since: the time at which the stand began.
        expected: how long the work queued at that time should take.
        queue: the part of that work that is left, by the marks.
        until: the time at which the launch passes in any gate state.
    """

    since: float
    expected: float
    queue: float
    until: float


@dataclass(eq=False)
class Library:
    """The library's state that the processes of one container share.

    Attributes:
        estimate: its first guess of a queue's length, as a part of the truth.
        slower: how much longer than expected its queues take to drain.
        in_vain: consecutive stands that ended before the work for which they waited.
        reprieve: that work: heads of streams, and the executed time at which each ends.
    """

    processes: list[Process]
    gpus: range
    random: random.Random
    estimate: float = 1.0
    slower: float = 1.0
    in_vain: int = 0
    given_up: int = 0
    reprieve: list[tuple[Stream, Item, float]] = field(default_factory=list)

    def may_launch(
        self, process: Process, gpu: int, stand: Stand | None, gate: tuple[GateState, int], now: float
    ) -> tuple[bool, Stand | None]:
        """Whether a thread may launch now. If not, the thread's stand comes with the answer."""
        state, sharers = gate
        if state is GateState.OPEN:
            return True, None
        if not self._executes():
            if stand is not None and state is GateState.SHUT:
                self.slower = min(max(1.0, 1.5 * (now - stand.since) / (stand.expected + SLICE)), SLOWER_MOST)
            self.in_vain = 0
            return state is not GateState.SHUT, None
        is_full = process.has_kernel(gpu) and process.queued(gpu) >= AHEAD
        if not is_full and (state is not GateState.SHUT or self._has_reprieve()):
            return True, None if state is not GateState.SHUT else stand
        stand = self._stand(stand, sharers, now)
        if now < stand.until - 1e-9:
            return False, stand
        heads = [stream for other in self.processes for stream in other.streams.values() if stream]
        self.reprieve = [(stream, stream[0], stream.executed + stream[0].ms) for stream in heads]
        self.in_vain, self.given_up = self.in_vain + 1, self.given_up + 1
        return True, None

    def _executes(self) -> bool:
        """Whether a process of the container has a kernel to run, on any GPU."""
        for process in self.processes:
            for gpu in self.gpus:
                if process.has_kernel(gpu):
                    return True
        return False

    def _has_reprieve(self) -> bool:
        self.reprieve = [
            (stream, head, end)
            for stream, head, end in self.reprieve
            if stream and stream[0] is head and stream.executed < end - 1e-9
        ]
        return bool(self.reprieve)

    def _stand(self, stand: Stand | None, sharers: int, now: float) -> Stand:
        """Begin a stand. After a mark, begin the wait anew for the rest of the queue."""
        queue = max(sum(process.unmarked(gpu) for process in self.processes) for gpu in self.gpus)
        if stand is not None and queue >= stand.queue - 1e-9:
            return stand
        expected = self.estimate * (sharers * queue + (sharers - 1) * SLICE) * self.random.uniform(1, 1.5)
        until = now + (PATIENCE + self.slower * expected) * 2 ** min(self.in_vain, DOUBLINGS)
        if stand is None:
            return Stand(now, expected, queue, until)
        return Stand(stand.since, stand.expected, queue, until)
