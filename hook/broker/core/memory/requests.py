"""Memory requests: between the broker's events and the `MemoryArbiter`.

This module knows which process asked over which connection, which containers have a line on a GPU, and what was
announced. The arbiter decides who waits. Without overcommit, every line is granted in full, and no process waits. A
process still asks where its page was written by an earlier broker that did overcommit. Such a request is granted at
once.

What always holds: after a `paused` announcement comes exactly one `resumed`, whatever ends the wait, unless the
broker itself ends in between.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from hook.broker.core.announcer import Announcer, about
from hook.broker.core.audit.audit import BLOCK_BYTES
from hook.broker.core.datagram import DatagramKind
from hook.broker.core.events import DatagramReceived, HeldRead
from hook.broker.core.ids import ContainerKey
from hook.broker.core.instructions import Instruction, ReadHeld, Reply
from hook.broker.core.memory.arbiter import (
    Allow,
    AnnouncePaused,
    MemoryArbiter,
    ReadUsed,
    Refuse,
    SetGranted,
    SetWanted,
    Step,
)
from hook.broker.core.memory.policies.fifo import Fifo
from hook.broker.core.memory.policies.policy import WaitTicket
from plimsoll.broker import announcements
from plimsoll.broker.wire import ContainerLines, Line
from plimsoll.ids import GpuUuid, ProcessKey

WAIT_BUCKETS_S: Final = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0)
"""Upper bounds in seconds: from "a user noticed the wait" over "a job ended" to "a night"."""


@dataclass(slots=True)
class WaitTimes:
    """The durations of one container's finished waits.

    Attributes:
        sum_s: all durations together, in seconds.
        counts: finished waits per bucket of `WAIT_BUCKETS_S`. The last entry counts the longer ones.
    """

    sum_s: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS_S) + 1))

    def add(self, waited_s: float) -> None:
        """Count one more finished wait of `waited_s` seconds."""
        self.sum_s += waited_s
        self.counts[bisect_left(WAIT_BUCKETS_S, waited_s)] += 1


WriteLimits = Callable[[Iterable[ContainerKey]], list[Instruction]]
"""Gives the instructions that write the current numbers onto the pages of these containers."""

_GAVE_UP: Final = "it gave up or ended"


@dataclass(frozen=True, slots=True)
class Overcommit:
    """The settings of a node whose lines promise more than its GPUs have.

    Attributes:
        arbiter: decides who waits; fresh.
        granted: the granted bytes on the pages that an earlier broker wrote, by container and GPU.
    """

    arbiter: MemoryArbiter
    granted: Mapping[ContainerKey, Mapping[GpuUuid, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Asker:
    """The holder of a ticket."""

    connection: int
    container: ContainerKey
    process: ProcessKey
    gpu: GpuUuid
    requested_bytes: int
    asked_s: float


class MemoryRequests:
    """Every request for memory on this node."""

    def __init__(self, overcommit: Overcommit | None, announcer: Announcer, set_limits: WriteLimits) -> None:
        """Begin, for a broker that just started.

        Args:
            overcommit: None where no process waits.
            announcer: for `paused` and `resumed`.
            set_limits: brings pages up to date with `granted_bytes` and `is_wanted`.
        """
        self._has_waits = overcommit is not None
        self._arbiter = overcommit.arbiter if overcommit else MemoryArbiter(Fifo())
        self._granted = overcommit.granted if overcommit else {}
        self._announcer = announcer
        self._set_limits = set_limits
        self._containers: dict[GpuUuid, list[ContainerKey]] = {}
        self._askers: dict[WaitTicket, _Asker] = {}
        self._paused: set[WaitTicket] = set()
        self._tickets = 0
        self._waited: dict[ContainerKey, WaitTimes] = {}

    def granted_bytes(self, container: ContainerKey, line: Line) -> int:
        """The `granted_bytes` for a container's page; the whole line for a container that owns its GPUs."""
        if container not in self._containers.get(line.gpu, ()):
            return line.line_bytes
        return self._arbiter.granted(container, line.gpu)

    def is_wanted(self, gpu: GpuUuid) -> bool:
        """The `is_wanted` for every page of this GPU."""
        return self._arbiter.is_wanted(gpu)

    def enrol(self, container: ContainerKey, lines: ContainerLines) -> list[Step]:
        """Take in a container that was registered or whose lines changed.

        A container that owns its GPUs never waits, so it takes no part. Without overcommit, none does.

        Returns:
            Steps for `carry`, once the container's pages are laid out.
        """
        if lines.whole or not self._has_waits:
            return []
        for line in lines.lines:
            on = self._containers.setdefault(line.gpu, [])
            if container not in on:
                on.append(container)
        declared = {line.gpu: line.line_bytes for line in lines.lines}
        return list(self._arbiter.enrol(container, declared, self._granted.get(container)))

    def leave(self, containers: Collection[ContainerKey], now_s: float) -> list[Instruction]:
        """Forget containers that were removed, and refuse their requests."""
        steps = [step for container in containers for step in self._arbiter.leave(container)]
        for on in self._containers.values():
            on[:] = [container for container in on if container not in containers]
        instructions = self.carry(steps, now_s)
        self._askers = {t: asker for t, asker in self._askers.items() if asker.container not in containers}
        for container in containers:
            self._waited.pop(container, None)
        return instructions

    def received(self, event: DatagramReceived, now_s: float) -> list[Instruction]:
        """Take in a datagram of a living process: a request for memory, or memory given back on a wanted GPU."""
        gpu = event.datagram.gpu
        if event.datagram.kind is DatagramKind.FREED and gpu is not None:
            return self.read_held([gpu])
        if event.datagram.kind is not DatagramKind.WAIT or gpu is None:
            return []
        if event.container not in self._containers.get(gpu, ()):
            return [Reply(event.connection, gpu)]
        return self._ask(event, gpu, now_s)

    def _ask(self, event: DatagramReceived, gpu: GpuUuid, now_s: float) -> list[Instruction]:
        instructions = self.connection_closed(event.connection, now_s, event.received_s)
        ticket, self._tickets = WaitTicket(self._tickets), self._tickets + 1
        requested_bytes = event.datagram.requested_bytes
        self._askers[ticket] = _Asker(
            connection=event.connection,
            container=event.container,
            process=event.process.key,
            gpu=gpu,
            requested_bytes=requested_bytes,
            asked_s=event.received_s,
        )
        asked = self._arbiter.ask(ticket, event.container, gpu, requested_bytes, event.received_s)
        return instructions + self.carry(asked, now_s)

    def connection_closed(self, connection: int, now_s: float, at_s: float) -> list[Instruction]:
        """Withdraw every request and promise of a connection that closed, or that carries a new request."""
        tickets = [ticket for ticket, asker in self._askers.items() if asker.connection == connection]
        return [step for ticket in tickets for step in self._withdraw(ticket, now_s, at_s)]

    def process_died(self, process: ProcessKey, now_s: float, at_s: float) -> list[Instruction]:
        """Withdraw every request of a dead process. A child process may still hold its connections open."""
        tickets = [ticket for ticket, asker in self._askers.items() if asker.process == process]
        return [step for ticket in tickets for step in self._withdraw(ticket, now_s, at_s)]

    def measured(self, capacity: Mapping[GpuUuid, int], now_s: float) -> list[Instruction]:
        """Take in a measurement; the excess of containers may have changed too.

        Args:
            capacity: bytes that each GPU has for containers.
            now_s: for the announcements' times.
        """
        steps = [step for gpu in sorted(capacity) for step in self._arbiter.capacity(gpu, capacity[gpu])]
        return self.carry(steps, now_s)

    def held_read(
        self,
        event: HeldRead,
        words: Mapping[ContainerKey, int],
        excess: Mapping[ContainerKey, int],
        now_s: float,
    ) -> list[Instruction]:
        """Let the arbiter decide by the words of a GPU's containers.

        Args:
            event: the reading: its GPU and its time.
            words: the sum of each container's words, in bytes. A sum above what the container was ever allowed
                counts as that: the rest is a reservation that its process withdraws at once, or a lie.
            excess: bytes that each container holds past its words.
            now_s: for the announcements' times.
        """
        used = {
            key: self._believed(key, event.gpu, sum_bytes, excess.get(key, 0))
            for key, sum_bytes in words.items()
        }
        return self.carry(self._arbiter.take_used(event.gpu, used, event.read_s), now_s)

    def _believed(self, container: ContainerKey, gpu: GpuUuid, words_bytes: int, excess_bytes: int) -> int:
        """The bytes that a container uses: at most its line or, after the line was lowered, its earlier ceiling."""
        allowed_bytes = self._arbiter.line(container, gpu) + BLOCK_BYTES + excess_bytes
        return min(words_bytes + excess_bytes, max(allowed_bytes, self._arbiter.ceiling(container, gpu)))

    def read_held(self, gpus: Iterable[GpuUuid]) -> list[Instruction]:
        """Read the words on these GPUs, because memory may have been given back there."""
        return [ReadHeld(gpu, tuple(on)) for gpu in gpus if (on := self._containers.get(gpu))]

    def read_contended(self) -> list[Instruction]:
        """Read the words on every GPU with a waiting process; write the pages there first, in case a write failed."""
        gpus = sorted({wait.gpu for wait in self._arbiter.waits})
        concerned = {container for gpu in gpus for container in self._containers.get(gpu, ())}
        return self._set_limits(concerned) + self.read_held(gpus)

    @property
    def is_anybody_waiting(self) -> bool:
        """Whether any process waits."""
        return bool(self._arbiter.waits)

    def waiting_count(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """How many threads of a container wait for memory of this GPU."""
        return sum(wait.container == container and wait.gpu == gpu for wait in self._arbiter.waits)

    def waited(self, container: ContainerKey) -> WaitTimes:
        """The finished waits of a container since this broker's start."""
        return self._waited.get(container) or WaitTimes()

    def carry(self, steps: Iterable[Step], now_s: float) -> list[Instruction]:
        """Turn the arbiter's steps into instructions: pages first, because answers and readings rely on them."""
        steps = tuple(steps)
        stale: set[ContainerKey] = set()
        instructions: list[Instruction] = []
        for step in steps:
            match step:
                case SetGranted():
                    stale.add(step.container)
                case SetWanted():
                    stale.update(self._containers.get(step.gpu, ()))
                case ReadUsed():
                    instructions += self.read_held([step.gpu])
                case AnnouncePaused():
                    self._paused.add(step.ticket)
                    asker = self._askers[step.ticket]
                    instructions += self._announce(
                        announcements.Paused, asker, step.reason, step.waited_s, now_s
                    )
                case Allow():
                    asker = self._askers[step.ticket]
                    instructions += self._over(step.ticket, "granted", step.waited_s, now_s)
                    instructions.append(Reply(asker.connection, asker.gpu))
                case Refuse():
                    instructions += self._refuse(step, now_s)
                case _:
                    assert_never(step)
        return [*self._set_limits(stale), *instructions]

    def _refuse(self, step: Refuse, now_s: float) -> list[Instruction]:
        resumed = self._over(step.ticket, f"refused: {step.reason}", step.waited_s, now_s)
        asker = self._askers.pop(step.ticket)
        return [*resumed, Reply(asker.connection, asker.gpu, refusal=step.reason)]

    def _withdraw(self, ticket: WaitTicket, now_s: float, at_s: float) -> list[Instruction]:
        resumed = self._over(ticket, _GAVE_UP, max(0.0, at_s - self._askers[ticket].asked_s), now_s)
        del self._askers[ticket]
        return resumed + self.carry(self._arbiter.withdraw(ticket, at_s), now_s)

    def _over(self, ticket: WaitTicket, how: str, waited_s: float, now_s: float) -> list[Instruction]:
        """Announce the end of a wait, unless the wait was never announced as `paused`."""
        if ticket not in self._paused:
            return []
        self._paused.remove(ticket)
        asker = self._askers[ticket]
        self._waited.setdefault(asker.container, WaitTimes()).add(waited_s)
        return self._announce(announcements.Resumed, asker, how, waited_s, now_s)

    def _announce(
        self,
        sort: type[announcements.Paused | announcements.Resumed],
        asker: _Asker,
        text: str,
        waited_s: float,
        now_s: float,
    ) -> list[Instruction]:
        announcement = sort(
            **about(asker.container, asker.process),
            gpu=asker.gpu,
            requested_bytes=asker.requested_bytes,
            used_bytes=self._arbiter.used(asker.container, asker.gpu),
            line_bytes=self._arbiter.line(asker.container, asker.gpu),
            text=text,
            waited_s=waited_s,
        )
        return self._announcer.announce(announcement, now_s)
