"""The file work of a turn: everything that instructions read and write, in the only thread for files.

What always holds: instructions run in the core's order. A failed instruction does not stop the others. Where a page
could not be written, readings that must be newer than that page are left out.
"""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import assert_never

import msgspec

from hook.broker.bounded_log import BoundedLog
from hook.broker.core.events import HeldRead, Surveyed, WordsRead
from hook.broker.core.ids import ContainerKey, SlotUse
from hook.broker.core.instructions import (
    Append,
    ClearSlots,
    Instruction,
    LayOut,
    LogWarning,
    ReadHeld,
    ReadWords,
    RemovePod,
    Reply,
    Rewrite,
    SaveContexts,
    SaveRecord,
    SetLimits,
    Survey,
    VacateSlots,
    Watch,
)
from hook.broker.core.registration import RegisteredPods
from hook.broker.files.contexts import ContextsFile
from hook.broker.files.journal import JournalFile
from hook.broker.files.shared import SharedFiles
from hook.broker.processes import PodsOfProcesses, find_known, find_owners, has_let_go
from hook.broker.shares.gate_files import GateConstants, GateFile, open_gate
from hook.broker.shares.work_pages import open_counts
from plimsoll.ids import GpuUuid, ProcessKey
from plimsoll.part.processes import open_process


@dataclass(frozen=True, slots=True)
class BrokerFiles:
    """The files that the broker keeps below its root directory."""

    shared: SharedFiles
    journal: JournalFile
    contexts: ContextsFile


@dataclass(slots=True)
class FileResults:
    """The results of a turn's file work.

    Attributes:
        watches: processes whose death is to be watched, with their pidfd; None for a process that is gone already.
        answers: readings for the core.
        readings: the readings still to be made, by GPU. Each is made after the decisions of the reading before are
            written.
        gates: the gates of the containers that were laid out, with their open `counts`. The caller owns both.
        failures: the errors of instructions that failed.
    """

    watches: list[tuple[ProcessKey, int | None]] = field(default_factory=list)
    answers: list[Surveyed | WordsRead] = field(default_factory=list)
    readings: dict[GpuUuid, ReadHeld] = field(default_factory=dict)
    gates: dict[ContainerKey, tuple[GateFile, int | None]] = field(default_factory=dict)
    failures: list[OSError] = field(default_factory=list)


class FileWork:
    """Carries out the instructions for files. Everything here blocks."""

    def __init__(
        self, pods: RegisteredPods, disk: BrokerFiles, constants: GateConstants, log: BoundedLog
    ) -> None:
        self._log = log
        self._pods = pods
        self._files = disk.shared
        self._journal_file = disk.journal
        self._contexts_file = disk.contexts
        self._constants = constants
        self._pods_of_processes = PodsOfProcesses()
        # Containers whose `limits` could not be written. Until they are, a reading of their words proves nothing.
        self._stale: set[ContainerKey] = set()

    def carry_out(self, instructions: Sequence[Instruction]) -> FileResults:
        """Carry out the instructions for files, and skip the others."""
        results = FileResults()
        for instruction in instructions:
            try:
                self._work_on_file(instruction, results)
            except OSError as error:  # The other instructions still run.
                results.failures.append(error)
                if isinstance(instruction, LayOut | SetLimits):
                    self._stale.add(instruction.container)
        return results

    def _work_on_file(self, instruction: Instruction, results: FileResults) -> None:  # noqa: C901, PLR0912 - one case each
        match instruction:
            case LayOut():
                self._lay_out(instruction, results)
            case SetLimits(container, lines, numbers, measured):
                self._files.set_limits(container, lines, numbers, measured)
                self._stale.discard(container)
            case SaveRecord(record):
                self._files.save_record(record.pod.pod, msgspec.json.encode(record))
            case ClearSlots(container, owner):
                self._clear(container, owner)
            case VacateSlots():
                self._vacate(instruction)
            case RemovePod():
                self._stale.difference_update(instruction.containers)
                self._files.remove(instruction.pod, instruction.containers)
            case Survey():
                results.answers += self._surveyed(instruction)
            case ReadWords():
                results.answers.append(self._words_of(instruction))
            case ReadHeld(gpu):
                results.readings[gpu] = instruction
            case SaveContexts(context_bytes):
                self._contexts_file.write(context_bytes)
            case Append(line):
                self._journal_file.append([line])
            case Rewrite(lines):
                self._journal_file.replace(lines)
            case Watch(key):
                results.watches.append((key, open_process(key.pid, key.start_ticks)))
            case Reply() | LogWarning():
                pass
            case _:
                assert_never(instruction)

    def _lay_out(self, instruction: LayOut, results: FileResults) -> None:
        container = instruction.container
        problem = self._files.lay_out(
            container, instruction.lines, instruction.numbers, clear_counts=instruction.clear_counts
        )
        if problem is not None:
            remedy = "a program of the container filled its counts directory: delete the pod"
            self._log.error("counts_not_laid_out", container, problem=str(problem), remedy=remedy)
        self._stale.discard(container)
        gate = open_gate(self._files.limits_dir(container), self._constants)
        results.gates[container] = gate, open_counts(self._files.counts_path(container))

    def _clear(self, container: ContainerKey, owner: int) -> None:
        given_back_bytes = self._files.clear_slots(container, owner)
        self._log.info("slots_cleared", container, owner=owner, given_back_bytes=given_back_bytes)

    def _vacate(self, instruction: VacateSlots) -> None:
        """Clear the slots that a process left behind by an exec.

        At any moment the process may become a program under the library, which takes over the slot. That program maps
        `counts` first, and then reads the mark. The broker sets the mark first, and then reads the program's maps. So
        either the broker sees the mapping, or the program sees the mark and takes another slot. At worst the program
        starts in between, or the broker dies there: then the slot stays counted until the process ends.
        """
        container, process = instruction.container, instruction.process
        path = self._files.counts_path(container)
        if not has_let_go(process.key, path):
            return
        self._files.mark_vacating(container, process.owner, is_vacating=True)
        if has_let_go(process.key, path):
            self._clear(container, process.owner)
        else:
            self._files.mark_vacating(container, process.owner, is_vacating=False)

    def _surveyed(self, survey: Survey) -> list[Surveyed]:
        """Read the slots first: a process that claims a slot after this reading is not taken for dead."""
        if survey.container in self._stale:
            return []
        slots = self._files.slots(survey.container)
        owners = frozenset(slot.owner for slot in slots)
        known = find_known(survey.known, owners)
        strangers = owners - {process.owner for process in known}
        path = self._files.counts_path(survey.container)
        found = find_owners(strangers, path)
        elsewhere = {owner: process for owner, process in found.items() if has_let_go(process.key, path)}
        here = {owner: process for owner, process in found.items() if owner not in elsewhere}
        living = {process.owner: process for process in known} | here
        dead = survey.known - {process.key for process in known}
        return [Surveyed(survey.container, slots, living, frozenset(dead), elsewhere)]

    def _words_of(self, reading: ReadWords) -> WordsRead:
        measured, pods = reading.measured, [record.pod.pod for record in self._pods]
        if found := self._pods_of_processes.pods_of(reading.strays, reading.runners, pods):
            processes = (
                msgspec.structs.replace(one, pod=found.get(one.process, one.pod))
                for one in measured.processes
            )
            measured = msgspec.structs.replace(measured, processes=tuple(processes))
        return WordsRead(measured, self._slots_of(reading.containers))

    def held(self, reading: ReadHeld) -> HeldRead | None:
        """The slots of a GPU's containers; None if a lower grant could not be written: they would prove nothing."""
        if not self._stale.isdisjoint(reading.containers):
            return None
        return HeldRead(reading.gpu, self._slots_of(reading.containers), time.monotonic())

    def all_slots(self) -> dict[ContainerKey, tuple[SlotUse, ...]]:
        """The claimed slots of every container."""
        return self._slots_of(self._pods.containers)

    def _slots_of(self, containers: Iterable[ContainerKey]) -> dict[ContainerKey, tuple[SlotUse, ...]]:
        return {key: self._files.slots(key, len(self._pods.gpus(key))) for key in containers}
