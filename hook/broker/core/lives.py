"""The lives of hooked processes: hello, contexts, denials, death; each step is announced exactly once.

What always holds: a process's `hello` is announced first and its `exited` once. After that the process is never
announced again. This module clears slots only for dead processes, and has slots vacated whose owner runs elsewhere.
"""

from dataclasses import dataclass, field
from typing import Final

from hook.broker.core.announcer import Announcer, about
from hook.broker.core.datagram import DatagramKind
from hook.broker.core.events import DatagramReceived, Surveyed, Unheld
from hook.broker.core.ids import ContainerKey, Process
from hook.broker.core.instructions import ClearSlots, Instruction, LogWarning, Rewrite, VacateSlots, Watch
from hook.broker.core.journal import Announced, Journal
from plimsoll.broker.announcements import (
    Context,
    Denied,
    Exited,
    Hello,
    ShareUnenforced,
    Unknown,
)
from plimsoll.ids import GpuUuid, ProcessKey

DENIED_PAUSE_S: Final = 1.0
"""A program may retry a refused allocation in a loop. The broker announces one `denied` per GPU in this many seconds.
The slot counts every denial."""

UNKNOWN_NAMES: Final = 64
"""Unknown functions announced per process. A driver has a few hundred functions, a hostile program any number."""

REMEMBERED_DEATHS: Final = 4096
"""Deaths that are remembered, so that a datagram still under way does not announce a dead process again."""

_UNHELD: Final = "the broker was away: until now nobody held this process to its share of compute time"


@dataclass(slots=True)
class Life:
    """A process that was announced and has not exited.

    Attributes:
        owner: its owner word in `counts`; 0 after a restart of the broker, until a survey finds the word.
        watched: the engine reports its death.
        denied_at_s: when a denial was last announced, per GPU, in seconds since 1970.
        unknown: the unknown functions that were announced.
    """

    owner: int
    watched: bool = False
    contexts: set[GpuUuid] = field(default_factory=set)
    denied_at_s: dict[GpuUuid, float] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)


class Lives:
    """Every process that runs under a hook on this node, by container.

    Attributes:
        announcer: makes the announcements of the whole core.
    """

    def __init__(self, journal: Journal, boot_id: str) -> None:
        self._journal = journal
        self._boot_id = boot_id
        self._lives: dict[ContainerKey, dict[ProcessKey, Life]] = {}
        self._buried: dict[tuple[ContainerKey, ProcessKey], None] = {}  # oldest first
        self.announcer = Announcer(journal, self.rewrite)
        for known in journal.processes.values():
            container = ContainerKey(known.pod, known.container)
            life = Life(owner=0, contexts=set(known.contexts))
            self._lives.setdefault(container, {})[ProcessKey(known.pid, known.start_ticks)] = life

    @property
    def containers(self) -> frozenset[ContainerKey]:
        """The containers with a living process."""
        return frozenset(self._lives)

    def of(self, container: ContainerKey) -> dict[ProcessKey, int]:
        """A container's living processes with their owner words."""
        return {key: life.owner for key, life in self._lives.get(container, {}).items()}

    def containers_of(self, key: ProcessKey) -> list[ContainerKey]:
        """The containers in which a living process was announced."""
        return [container for container, lives in self._lives.items() if key in lives]

    def find(self, container: ContainerKey, pid: int, owner: int) -> Process | None:
        """The living process of a container with this pid and owner word; None if it was not announced."""
        for key, life in self._lives.get(container, {}).items():
            if key.pid == pid and life.owner == owner:
                return Process(key, owner)
        return None

    def has_died(self, process: ProcessKey) -> bool:
        """Whether a process was announced, and its death too, among the last `REMEMBERED_DEATHS`."""
        return any(process == buried for _, buried in self._buried)

    def contexts(self, container: ContainerKey, process: ProcessKey) -> frozenset[GpuUuid]:
        """The GPUs on which a process reported a context."""
        life = self._lives.get(container, {}).get(process)
        return frozenset(life.contexts) if life else frozenset()

    def received(self, event: DatagramReceived, now_s: float) -> list[Instruction]:
        """Take in a datagram; a `hello` that was missed is announced first."""
        container, process, datagram = event.container, event.process, event.datagram
        if (container, process.key) in self._buried:
            return self._received_after_death(event, now_s)
        instructions, life = self._meet(container, process, now_s)
        if life is None:
            return instructions
        match datagram.kind:
            case DatagramKind.CONTEXT if datagram.gpu is not None:
                instructions += self._context(container, process.key, datagram.gpu, now_s)
            case DatagramKind.DENIED if datagram.gpu is not None:
                if _has_passed(life.denied_at_s.get(datagram.gpu), now_s):
                    life.denied_at_s[datagram.gpu] = now_s
                    instructions += self.announcer.announce(_denied(event, datagram.gpu), now_s)
            case DatagramKind.UNKNOWN if (
                datagram.text not in life.unknown and len(life.unknown) < UNKNOWN_NAMES
            ):
                life.unknown.add(datagram.text)
                unknown = Unknown(**about(container, process.key), text=datagram.text)
                instructions += self.announcer.announce(unknown, now_s)
        return instructions

    def died(self, key: ProcessKey, now_s: float) -> list[Instruction]:
        """A process died: announce that for every container in which it was announced."""
        return [step for container in self.containers_of(key) for step in self._bury(container, key, now_s)]

    def all_died(self, now_s: float) -> list[Instruction]:
        """The machine was booted: all known processes are dead."""
        gone = [(container, key) for container, lives in self._lives.items() for key in lives]
        return [step for container, key in gone for step in self._bury(container, key, now_s)]

    def surveyed(self, event: Surveyed, gpus: tuple[GpuUuid, ...], now_s: float) -> list[Instruction]:
        """Announce what a container's slots show and no datagram reported: deaths, processes, contexts."""
        instructions: list[Instruction] = []
        for key in sorted(event.dead & self.of(event.container).keys()):
            instructions += self._bury(event.container, key, now_s)
        # A dead process that its parent has not reaped is still in /proc, though its death was announced.
        living = {
            owner: process
            for owner, process in event.living.items()
            if (event.container, process.key) not in self._buried
        }
        for process in living.values():
            instructions += self._meet(event.container, process, now_s)[0]
        for slot in event.slots:
            if slot.owner in living:
                used = [gpu for gpu, used in zip(gpus, slot.used_bytes, strict=False) if used]
                key = living[slot.owner].key
                instructions += [s for gpu in used for s in self._context(event.container, key, gpu, now_s)]
            elif slot.owner in event.elsewhere:
                instructions.append(VacateSlots(event.container, event.elsewhere[slot.owner]))
            else:
                instructions.append(ClearSlots(event.container, slot.owner))
        return instructions

    def unheld(self, event: Unheld, now_s: float) -> list[Instruction]:
        """A process ran without its share being enforced until now; its hello may still be under way."""
        unenforced = ShareUnenforced(**about(event.container, event.process), text=_UNHELD)
        return self.announcer.announce(unenforced, now_s)

    def announced(self) -> tuple[Announced, ...]:
        """The living processes, for the journal's snapshot."""
        return tuple(
            Announced(
                pod=container.pod,
                container=container.container,
                pid=key.pid,
                start_ticks=key.start_ticks,
                contexts=tuple(sorted(life.contexts)),
            )
            for container, lives in self._lives.items()
            for key, life in lives.items()
        )

    def rewrite(self) -> Rewrite:
        """Write the journal file anew, as short as possible."""
        return Rewrite(self._journal.rewritten(self._boot_id, self.announced()))

    def _meet(
        self, container: ContainerKey, process: Process, now_s: float
    ) -> tuple[list[Instruction], Life | None]:
        """Announce and watch a process if it is new; None for a process with the owner word of another."""
        lives = self._lives.setdefault(container, {})
        instructions: list[Instruction] = []
        life = lives.get(process.key)
        if life is None:
            if any(other.owner == process.owner != 0 for other in lives.values()):
                return [_impostor(container, process)], None
            life = lives[process.key] = Life(owner=process.owner)
            instructions += self.announcer.announce(Hello(**about(container, process.key)), now_s)
        life.owner = life.owner or process.owner
        if not life.watched:
            life.watched = True
            instructions.append(Watch(process.key))
        return instructions, life

    def _context(
        self, container: ContainerKey, key: ProcessKey, gpu: GpuUuid, now_s: float
    ) -> list[Instruction]:
        life = self._lives.get(container, {}).get(key)
        if life is None or gpu in life.contexts:
            return []
        life.contexts.add(gpu)
        return self.announcer.announce(Context(**about(container, key), gpu=gpu), now_s)

    def _bury(self, container: ContainerKey, key: ProcessKey, now_s: float) -> list[Instruction]:
        life = self._lives[container].pop(key)
        if not self._lives[container]:
            del self._lives[container]
        if len(self._buried) >= REMEMBERED_DEATHS:
            del self._buried[next(iter(self._buried))]
        self._buried[container, key] = None
        instructions = self.announcer.announce(Exited(**about(container, key)), now_s)
        if life.owner:
            instructions.append(ClearSlots(container, life.owner))
        return instructions

    def _received_after_death(self, event: DatagramReceived, now_s: float) -> list[Instruction]:
        """Announce a denial that arrived after the death of its process: the denial is often the cause."""
        if event.datagram.kind is not DatagramKind.DENIED or event.datagram.gpu is None:
            return []
        return self.announcer.announce(_denied(event, event.datagram.gpu), now_s)


def _denied(event: DatagramReceived, gpu: GpuUuid) -> Denied:
    return Denied(
        **about(event.container, event.process.key),
        gpu=gpu,
        requested_bytes=event.datagram.requested_bytes,
        used_bytes=event.datagram.used_bytes,
        line_bytes=event.datagram.line_bytes,
        text=event.datagram.text,
    )


def _has_passed(before_s: float | None, now_s: float) -> bool:
    # A clock that was set back must not silence denials until it has caught up, so either direction counts.
    return before_s is None or abs(now_s - before_s) >= DENIED_PAUSE_S


def _impostor(container: ContainerKey, process: Process) -> LogWarning:
    details = {"pid": process.key.pid, "owner": process.owner}
    return LogWarning("owner_belongs_to_another_process", details, container)
