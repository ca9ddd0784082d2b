"""Brings `Pressure` into the broker's life: who asked over which connection, what goes onto pages, what is announced.

What always holds: where the node does not overcommit there is no pressure; every page then grants the line, nobody
waits, and who asks all the same (by a page of a broker before this one) is told to go on. Whatever ends a wait,
after `paused` comes one `resumed`, unless the broker itself ends in between.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from hook.broker.core.announcer import Announcer, Told
from hook.broker.core.audit.overheads import BLOCK_BYTES
from hook.broker.core.datagram import Kind
from hook.broker.core.ids import ContainerKey, ProcessKey
from hook.broker.core.memory.arbiter import (
    Grant,
    Look,
    Paused,
    Pressure,
    Refuse,
    SetGranted,
    SetWanted,
    Step,
)
from hook.broker.core.memory.policies.policy import Ticket
from hook.broker.core.turns import Heard, HeldRead, Instruction, ReadHeld, Reply
from plimsoll.broker.wire import ContainerLines, Line
from plimsoll.ids import GpuUuid

WAIT_BUCKETS_S: Final = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0)
"""From "did it notice" over "a job ended" to "a night"."""

_GAVE_UP: Final = "it gave up or ended"


@dataclass(frozen=True, slots=True)
class Overcommit:
    """What a node needs that promises more than it has.

    Attributes:
        granted: what the pages of an earlier broker say, by container.
    """

    pressure: Pressure
    granted: Mapping[ContainerKey, Mapping[GpuUuid, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Asker:
    """Who holds a ticket."""

    connection: int
    container: ContainerKey
    process: ProcessKey
    gpu: GpuUuid
    requested_bytes: int
    asked_s: float


@dataclass(slots=True)
class Waited:
    """How long a container's waits that are over took.

    Attributes:
        counts: by `WAIT_BUCKETS_S`, and one more for what is longer.
    """

    sum_s: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BUCKETS_S) + 1))

    def add(self, waited_s: float) -> None:
        """One more is over."""
        self.sum_s += waited_s
        self.counts[bisect_left(WAIT_BUCKETS_S, waited_s)] += 1


class Waits:
    """Everyone who waits on this node, as the rest of the broker sees it."""

    def __init__(
        self,
        overcommit: Overcommit | None,
        announcer: Announcer,
        set_limits: Callable[[Iterable[ContainerKey]], list[Instruction]],
    ) -> None:
        """Begin.

        Args:
            overcommit: None where nobody ever waits.
            announcer: for `paused` and `resumed`.
            set_limits: how containers' pages are brought up to date with `granted_bytes` and `is_wanted`.
        """
        self._pressure = overcommit.pressure if overcommit else None
        self._granted = overcommit.granted if overcommit else {}
        self._announcer = announcer
        self._set_limits = set_limits
        self._containers: dict[GpuUuid, list[ContainerKey]] = {}
        self._askers: dict[Ticket, _Asker] = {}
        self._paused: set[Ticket] = set()
        self._tickets = 0
        self._waited: dict[ContainerKey, Waited] = {}

    def granted_bytes(self, container: ContainerKey, line: Line) -> int:
        """What a page says; the line for a container that has its GPUs alone."""
        if self._pressure is None or container not in self._containers.get(line.gpu, ()):
            return line.line_bytes
        return self._pressure.granted(container, line.gpu)

    def is_wanted(self, gpu: GpuUuid) -> bool:
        """What a page says."""
        return self._pressure is not None and self._pressure.is_wanted(gpu)

    def enrol(self, container: ContainerKey, lines: ContainerLines) -> list[Step]:
        """A container was registered, or its lines changed; to be carried out after its pages are laid out.

        One that has whole GPUs never waits.
        """
        if self._pressure is None or lines.whole:
            return []
        for line in lines.lines:
            on = self._containers.setdefault(line.gpu, [])
            if container not in on:
                on.append(container)
        declared = {line.gpu: line.line_bytes for line in lines.lines}
        return list(self._pressure.enrol(container, declared, self._granted.get(container)))

    def leave(self, containers: Collection[ContainerKey], now_s: float) -> list[Instruction]:
        """Containers are gone."""
        if self._pressure is None:
            return []
        steps = [step for container in containers for step in self._pressure.leave(container)]
        for on in self._containers.values():
            on[:] = [container for container in on if container not in containers]
        instructions = self.carry(steps, now_s)
        self._askers = {t: asker for t, asker in self._askers.items() if asker.container not in containers}
        for container in containers:
            self._waited.pop(container, None)
        return instructions

    def heard(self, event: Heard, now_s: float) -> list[Instruction]:
        """A living process asks to wait, or gave back what somebody waits for."""
        gpu = event.datagram.gpu
        if event.datagram.kind is Kind.FREED and gpu is not None:
            return self.look([gpu])
        if event.datagram.kind is not Kind.WAIT or gpu is None:
            return []
        if self._pressure is None or event.container not in self._containers.get(gpu, ()):
            return [Reply(event.connection, gpu)]
        instructions = self.hung_up(event.connection, now_s, event.heard_s)
        ticket, self._tickets = Ticket(self._tickets), self._tickets + 1
        self._askers[ticket] = _Asker(
            connection=event.connection,
            container=event.container,
            process=event.process.key,
            gpu=gpu,
            requested_bytes=event.datagram.requested_bytes,
            asked_s=event.heard_s,
        )
        requested_bytes = event.datagram.requested_bytes
        asked = self._pressure.ask(ticket, event.container, gpu, requested_bytes, event.heard_s)
        return instructions + self.carry(asked, now_s)

    def hung_up(self, connection: int, now_s: float, at_s: float) -> list[Instruction]:
        """A connection ended, or asks anew: whatever it waited for, or was promised, it no longer does."""
        tickets = [ticket for ticket, asker in self._askers.items() if asker.connection == connection]
        return [step for ticket in tickets for step in self._withdraw(ticket, now_s, at_s)]

    def died(self, process: ProcessKey, now_s: float, at_s: float) -> list[Instruction]:
        """A process is dead; a child of it may hold its connections open all the same."""
        tickets = [ticket for ticket, asker in self._askers.items() if asker.process == process]
        return [step for ticket in tickets for step in self._withdraw(ticket, now_s, at_s)]

    def measured(self, capacity: Mapping[GpuUuid, int], now_s: float) -> list[Instruction]:
        """So much do GPUs have for containers; their excess may have changed as well."""
        if self._pressure is None:
            return []
        steps = [step for gpu in sorted(capacity) for step in self._pressure.capacity(gpu, capacity[gpu])]
        return self.carry(steps, now_s)

    def read(
        self,
        event: HeldRead,
        words: Mapping[ContainerKey, int],
        excess: Mapping[ContainerKey, int],
        now_s: float,
    ) -> list[Instruction]:
        """The words of a GPU's containers were read.

        Args:
            event: on which GPU, and when.
            words: what each container's come to. More than it was ever allowed counts as that: the rest is a
                reservation in vain, which is withdrawn at once, or a lie.
            excess: what each holds past its words.
            now_s: for the announcements' times.
        """
        if self._pressure is None:
            return []
        used = {
            key: self._believed(key, event.gpu, sum_bytes, excess.get(key, 0))
            for key, sum_bytes in words.items()
        }
        return self.carry(self._pressure.looked(event.gpu, used, event.read_s), now_s)

    def _believed(self, container: ContainerKey, gpu: GpuUuid, words_bytes: int, excess_bytes: int) -> int:
        """What a container uses; after its line was lowered, more than that, and never more than before."""
        assert self._pressure is not None
        allowed_bytes = self._pressure.line(container, gpu) + BLOCK_BYTES + excess_bytes
        return min(words_bytes + excess_bytes, max(allowed_bytes, self._pressure.ceiling(container, gpu)))

    def look(self, gpus: Iterable[GpuUuid]) -> list[Instruction]:
        """Look at the words on these GPUs: memory may have been given back there."""
        if self._pressure is None:
            return []
        return [ReadHeld(gpu, tuple(self._containers.get(gpu, ()))) for gpu in gpus]

    def look_again(self) -> list[Instruction]:
        """Look wherever somebody waits, after the pages there, should one of them not have been written."""
        waits = self._pressure.waits if self._pressure else ()
        gpus = sorted({wait.gpu for wait in waits})
        concerned = {container for gpu in gpus for container in self._containers.get(gpu, ())}
        return self._set_limits(concerned) + self.look(gpus)

    @property
    def is_anybody_waiting(self) -> bool:
        """Whether anybody waits at all."""
        return self._pressure is not None and bool(self._pressure.waits)

    def waiting_count(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """How many threads of a container wait for memory of this GPU."""
        waits = self._pressure.waits if self._pressure else ()
        return sum(wait.container == container and wait.gpu == gpu for wait in waits)

    def waited(self, container: ContainerKey) -> Waited:
        """Of waits that are over, since this broker's start."""
        return self._waited.get(container) or Waited()

    def carry(self, steps: Iterable[Step], now_s: float) -> list[Instruction]:
        """The steps as instructions: pages first, as answers and looks rely on them."""
        steps = tuple(steps)
        stale = {step.container for step in steps if isinstance(step, SetGranted)}
        for step in steps:
            if isinstance(step, SetWanted):
                stale.update(self._containers.get(step.gpu, ()))
        instructions = self._set_limits(stale) if stale else []
        for step in steps:
            instructions += self._carry(step, now_s)
        return instructions

    def _carry(self, step: Step, now_s: float) -> list[Instruction]:
        match step:
            case SetGranted() | SetWanted():
                return []
            case Look(gpu):
                return self.look([gpu])
            case Paused():
                self._paused.add(step.ticket)
                return self._announce("paused", self._askers[step.ticket], step.reason, step.waited_s, now_s)
            case Grant():
                asker = self._askers[step.ticket]
                answer = Reply(asker.connection, asker.gpu)
                return [*self._over(step.ticket, "granted", step.waited_s, now_s), answer]
            case Refuse():
                asker = self._askers[step.ticket]
                told = self._over(step.ticket, f"refused: {step.reason}", step.waited_s, now_s)
                del self._askers[step.ticket]
                return [*told, Reply(asker.connection, asker.gpu, refusal=step.reason)]
            case _:
                assert_never(step)

    def _withdraw(self, ticket: Ticket, now_s: float, at_s: float) -> list[Instruction]:
        assert self._pressure is not None
        told = self._over(ticket, _GAVE_UP, max(0.0, at_s - self._askers[ticket].asked_s), now_s)
        del self._askers[ticket]
        return told + self.carry(self._pressure.withdraw(ticket, at_s), now_s)

    def _over(self, ticket: Ticket, how: str, waited_s: float, now_s: float) -> list[Instruction]:
        """A wait is over. One that was not even paused is not told of."""
        if ticket not in self._paused:
            return []
        self._paused.remove(ticket)
        asker = self._askers[ticket]
        self._waited.setdefault(asker.container, Waited()).add(waited_s)
        return self._announce("resumed", asker, how, waited_s, now_s)

    def _announce(
        self, what: str, asker: _Asker, text: str, waited_s: float, now_s: float
    ) -> list[Instruction]:
        assert self._pressure is not None
        told = Told(
            gpu=asker.gpu,
            requested_bytes=asker.requested_bytes,
            used_bytes=self._pressure.used(asker.container, asker.gpu),
            line_bytes=self._pressure.line(asker.container, asker.gpu),
            text=text,
            waited_s=waited_s,
        )
        return self._announcer.announce_if_room(asker.container, asker.process, what, now_s, told)
