"""The file work of a turn: everything that instructions read and write, in the one thread for files.

What always holds: it is done in the core's order; what failed keeps nobody else from their turn; nothing is read that
would be older than a page that could not be written.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from hook.broker.bounded_log import BoundedLog
from hook.broker.core.ids import ContainerKey, ProcessKey, SlotUse
from hook.broker.core.node import Node
from hook.broker.core.turns import (
    Append,
    ClearSlots,
    HeldRead,
    Instruction,
    LayOut,
    ReadHeld,
    ReadWords,
    RemovePod,
    Reply,
    Report,
    Rewrite,
    SaveContexts,
    SaveRecord,
    SetLimits,
    Survey,
    Surveyed,
    VacateSlots,
    Watch,
    WordsRead,
)
from hook.broker.files.contexts import ContextsFile
from hook.broker.files.journal import JournalFile
from hook.broker.files.shared import SharedFiles, write_whole
from hook.broker.processes import find_known, find_owners, has_let_go
from hook.broker.shares.gates import Gate, Pace, open_gate
from hook.broker.shares.work_pages import open_counts
from plimsoll.ids import GpuUuid
from plimsoll.part.processes import open_process

RECORD_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class Disk:
    """Everything that the broker keeps below its root directory."""

    shared: SharedFiles
    journal: JournalFile
    contexts: ContextsFile


@dataclass(slots=True)
class Outcome:
    """What a turn's file work brought: deaths to watch for, answers to take in, and what failed.

    Attributes:
        gates: of the containers that were laid out, with their open `counts`, to be taken over.
        looks: by GPU; each is read when its turn comes, after what the ones before it decided was written.
    """

    watches: list[tuple[ProcessKey, int | None]] = field(default_factory=list)
    answers: list[Surveyed | WordsRead] = field(default_factory=list)
    looks: dict[GpuUuid, ReadHeld] = field(default_factory=dict)
    gates: dict[ContainerKey, tuple[Gate, int | None]] = field(default_factory=dict)
    failures: list[OSError] = field(default_factory=list)


class FileWork:
    """Carries out what touches files. Everything here blocks."""

    def __init__(self, node: Node, disk: Disk, pace: Pace, log: BoundedLog) -> None:
        self._log = log
        self._node = node
        self._files = disk.shared
        self._journal_file = disk.journal
        self._contexts_file = disk.contexts
        self._pace = pace
        # Containers whose lines could not be brought up to date; what is read of them proves nothing until they are.
        self._stale: set[ContainerKey] = set()

    def carry_out(self, instructions: Sequence[Instruction]) -> Outcome:
        """Carry out what is for files; the rest is passed over."""
        outcome = Outcome()
        for instruction in instructions:
            try:
                self._work_on_file(instruction, outcome)
            except OSError as error:  # the others still have their turn
                outcome.failures.append(error)
                if isinstance(instruction, LayOut | SetLimits):
                    self._stale.add(instruction.container)
        return outcome

    def _work_on_file(self, instruction: Instruction, outcome: Outcome) -> None:  # noqa: C901 - one sort a case
        match instruction:
            case LayOut(container):
                self._write(instruction)
                gate = open_gate(self._files.limits_dir(container), self._pace)
                outcome.gates[container] = gate, open_counts(self._files.counts_path(container))
            case SetLimits() | SaveRecord() | ClearSlots() | VacateSlots() | RemovePod():
                self._write(instruction)
            case Survey():
                outcome.answers += self._surveyed(instruction)
            case ReadWords(measured, containers):
                outcome.answers.append(WordsRead(measured, self._slots_of(containers)))
            case ReadHeld(gpu):
                outcome.looks[gpu] = instruction
            case SaveContexts(context_bytes):
                self._contexts_file.write(context_bytes)
            case Append(line):
                self._journal_file.append([line])
            case Rewrite(lines):
                self._journal_file.replace(lines)
            case Watch(key):
                outcome.watches.append((key, open_process(key.pid, key.start_ticks)))
            case Reply() | Report():
                pass
            case _:
                assert_never(instruction)

    def _write(
        self, instruction: LayOut | SetLimits | SaveRecord | ClearSlots | VacateSlots | RemovePod
    ) -> None:
        """What changes the directories of pods and containers."""
        match instruction:
            case LayOut(container, lines, numbers):
                self._files.lay_out(container, lines, numbers, clear_counts=instruction.clear_counts)
                self._stale.discard(container)
            case SetLimits(container, lines, numbers):
                self._files.set_limits(container, lines, numbers)
                self._stale.discard(container)
            case SaveRecord(record):
                content = msgspec.json.encode(record)
                write_whole(self._files.record_path(record.pod.pod), content, RECORD_MODE)
            case ClearSlots(container, owner):
                given_back_bytes = self._files.clear_slots(container, owner)
                self._log.info("slots_cleared", container, owner=owner, given_back_bytes=given_back_bytes)
            case VacateSlots():
                self._vacate(instruction)
            case RemovePod():
                self._stale.difference_update(instruction.containers)
                self._files.remove(instruction.pod, instruction.containers)
            case _:
                assert_never(instruction)

    def _vacate(self, instruction: VacateSlots) -> None:
        """Clear what a process left behind by an exec.

        It may become a program under the library at any moment, which takes its process's slot over. That program
        maps `counts` first and then looks for the mark, here the mark comes first and then the look at its maps: so
        either it is seen, or it sees the mark and takes another slot. At worst (it came in between, or the broker
        died there) what it left stays counted until the process ends.
        """
        container, process = instruction.container, instruction.process
        path = self._files.counts_path(container)
        if not has_let_go(process.key, path):
            return
        self._files.mark_vacating(container, process.owner, is_vacating=True)
        if has_let_go(process.key, path):
            self._write(ClearSlots(container, process.owner))
        else:
            self._files.mark_vacating(container, process.owner, is_vacating=False)

    def _surveyed(self, survey: Survey) -> list[Surveyed]:
        """Slots first: whoever claims one after this reading is not among them, and so not taken for dead."""
        if survey.container in self._stale:
            return []
        slots = self._files.slots(survey.container)
        known = find_known(survey.known)
        strangers = frozenset(slot.owner for slot in slots) - {process.owner for process in known}
        found = find_owners(strangers, self._files.counts_path(survey.container))
        living = {process.owner: process for process in known} | found
        dead = survey.known - {process.key for process in known}
        return [Surveyed(survey.container, slots, living, frozenset(dead))]

    def held(self, look: ReadHeld) -> HeldRead | None:
        """What a GPU's containers hold; None where a lower grant could not be written: it would prove nothing."""
        if not self._stale.isdisjoint(look.containers):
            return None
        return HeldRead(look.gpu, self._slots_of(look.containers), time.monotonic())

    def all_slots(self) -> dict[ContainerKey, tuple[SlotUse, ...]]:
        """The claimed slots of every container."""
        return self._slots_of(self._node.containers())

    def _slots_of(self, containers: Iterable[ContainerKey]) -> dict[ContainerKey, tuple[SlotUse, ...]]:
        return {key: self._files.slots(key, len(self._node.gpus(key))) for key in containers}
