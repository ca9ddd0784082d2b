"""Carries the core's instructions out, one turn at a time.

What always holds: a turn (an event into the core, its instructions out) is over before the next begins; what
touches files runs in the one thread for files, in the core's order, before what touches the loop; an
announcement is shown to subscribers only after the turn that wrote it. A turn may be cut short by the broker's
death: the next start decides the rest of it again.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar, assert_never

import msgspec
import structlog

from hook.broker.contexts_file import ContextsFile
from hook.broker.core.facts import ContainerKey, ProcessKey, SlotUse
from hook.broker.core.node import Node
from hook.broker.core.turns import (
    Append,
    ClearSlots,
    Died,
    Event,
    Heard,
    HeldRead,
    HungUp,
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
from hook.broker.hook_sockets import HookSockets, bind_hook_socket
from hook.broker.journal_file import JournalFile
from hook.broker.processes import find_known, find_owners, has_let_go
from hook.broker.shared_files import SharedFiles, write_whole
from plimsoll.brokerwire import Announcement, Description
from plimsoll.errors import PlimsollError
from plimsoll.names import GpuUuid
from plimsoll.processes import DeathWatch, open_process

RECORD_MODE: Final = 0o600

LOOK_AGAIN_S: Final = 1.0
"""Between two looks at the words while anybody waits, for what no message told; nobody looks while nobody waits."""

_log: Final = structlog.get_logger()
T = TypeVar("T")


class NotCarriedOutError(PlimsollError):
    """The machine would not have it (disk full, no descriptors left); the same request may be repeated."""


@dataclass(frozen=True, slots=True)
class Disk:
    """Everything that the broker keeps below its root directory."""

    shared: SharedFiles
    journal: JournalFile
    contexts: ContextsFile


@dataclass(slots=True)
class _Outcome:
    """What a turn's file work brought: deaths to watch for, answers to take in, and what failed.

    Attributes:
        looks: by GPU; each is read when its turn comes, after what the ones before it decided was written.
    """

    watches: list[tuple[ProcessKey, int | None]] = field(default_factory=list)
    answers: list[Surveyed | WordsRead] = field(default_factory=list)
    looks: dict[GpuUuid, ReadHeld] = field(default_factory=dict)
    failures: list[OSError] = field(default_factory=list)


class Engine:
    """The broker at work. Everything but the file work runs on the loop's thread."""

    def __init__(
        self,
        node: Node,
        disk: Disk,
        files_thread: Executor,
        start_task: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        connections_max: int,
    ) -> None:
        self._node = node
        self._files = disk.shared
        self._journal_file = disk.journal
        self._contexts_file = disk.contexts
        self._files_thread = files_thread
        self._start_task = start_task
        self._turn = asyncio.Lock()
        self._visible_seq = 0
        self._grown = asyncio.Event()
        self._watcher = DeathWatch[ProcessKey](self._on_death)
        self._looking: asyncio.Task[None] | None = None
        # Containers whose lines could not be brought up to date; what is read of them proves nothing until they are.
        self._stale: set[ContainerKey] = set()
        self._hooks = HookSockets(start_task, self._in_files_thread, node.gpus, self._hear, connections_max)

    @property
    def node(self) -> Node:
        """What the broker knows; to be read only."""
        return self._node

    @property
    def files(self) -> SharedFiles:
        """Where things lie."""
        return self._files

    async def start(self) -> None:
        """Adopt what the last broker left.

        Raises:
            NotCarriedOutError: a directory could not be laid out.
        """
        async with self._turn:
            await self._carry_out(self._node.start(time.time()))

    async def take(self, event: Event) -> None:
        """Bring one event through the core and carry out what it decides.

        Raises:
            InputError: a request that cannot be fulfilled; nothing has changed.
            NotCarriedOutError: part of it could not be carried out; repeat it.
        """
        async with self._turn:
            await self._carry_out(self._node.handle(event, time.time()))

    async def survey(self) -> None:
        """Look after every container once.

        Raises:
            NotCarriedOutError: something could not be read or mended; the next survey tries again.
        """
        async with self._turn:
            await self._carry_out(self._node.survey())

    async def describe(self) -> Description:
        """What is registered and held at this moment."""
        return self._node.describe(await self._in_files_thread(self._all_slots))

    def announcements_after(self, seq: int) -> list[Announcement]:
        """Journaled and not yet acknowledged, past `seq`."""
        return [entry for entry in self._node.after(seq) if entry.seq <= self._visible_seq]

    def growth(self) -> asyncio.Event:
        """Is set when the journal has grown after this call."""
        return self._grown

    def close(self) -> None:
        """Watch nobody any more; tasks and threads are their owner's to end."""
        self._watcher.close()
        self._journal_file.close()

    async def _in_files_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files_thread, work)

    async def _hear(self, event: Heard | HungUp) -> None:
        try:
            await self.take(event)
        except NotCarriedOutError as error:
            _log.error("not_carried_out", problem=str(error))

    def _on_death(self, key: ProcessKey) -> None:
        self._start_task(self._bury(key), f"death of {key.pid}")

    async def _bury(self, key: ProcessKey) -> None:
        await self._hooks.last_words(key.pid, self._node.places(key))
        try:
            await self.take(Died(key, time.monotonic()))
        except NotCarriedOutError as error:
            _log.error("not_carried_out", problem=str(error), remedy="the next audit tries again")

    async def _look_again(self) -> None:
        """Look after those who wait, for as long as there are any."""
        while self._node.waits.is_anybody_waiting:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                async with self._turn:
                    await self._carry_out(self._node.waits.look_again())
            except NotCarriedOutError as error:
                _log.error("not_carried_out", problem=str(error), remedy="the next look tries again")

    async def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        failures = await self._settle(instructions)
        if self._node.waits.is_anybody_waiting and (self._looking is None or self._looking.done()):
            self._looking = self._start_task(self._look_again(), "look again")
        if failures:
            problems = "; ".join(map(str, failures))
            raise NotCarriedOutError(f"{problems}; mend that and ask again")

    async def _settle(self, instructions: Sequence[Instruction]) -> list[OSError]:
        """Carry instructions out, and all that follows from what they read; returns what failed."""
        if self._journal_file.is_behind:
            instructions = [self._node.rewrite(), *instructions]
        outcome = await self._in_files_thread(partial(self._work_on_files, instructions))
        self._show(instructions)
        for key, file in outcome.watches:
            self._watcher.watch(key, file)
        for instruction in instructions:
            await self._work_on_sockets(instruction, outcome)
        for answer in outcome.answers:
            outcome.failures += await self._settle(self._node.handle(answer, time.time()))
        for look in outcome.looks.values():
            outcome.failures += await self._look(look)
        return outcome.failures

    async def _look(self, look: ReadHeld) -> list[OSError]:
        try:
            held = await self._in_files_thread(partial(self._held, look))
        except OSError as error:
            return [error]
        return await self._settle(self._node.handle(held, time.time())) if held else []

    def _show(self, instructions: Sequence[Instruction]) -> None:
        if any(isinstance(instruction, Append | Rewrite) for instruction in instructions):
            self._visible_seq = self._node.newest_seq
            self._grown.set()
            self._grown = asyncio.Event()

    async def _work_on_sockets(self, instruction: Instruction, outcome: _Outcome) -> None:
        match instruction:
            case LayOut(container) if not self._hooks.listens_for(container):
                directory = self._files.limits_dir(container)
                try:
                    listener = await self._in_files_thread(partial(bind_hook_socket, directory))
                except OSError as error:
                    outcome.failures.append(error)
                else:
                    self._hooks.listen(container, listener)
            case RemovePod():
                for container in instruction.containers:
                    self._hooks.close(container)
                _log.info("pod_removed", pod=instruction.pod)
            case Reply():
                self._hooks.reply(instruction)
            case Report():
                _log.warning(instruction.event, **instruction.details)
            case Append(Announcement() as line):
                _log.info(line.what, pod=line.pod, container=line.container, pid=line.pid, seq=line.seq)

    def _work_on_files(self, instructions: Sequence[Instruction]) -> _Outcome:
        outcome = _Outcome()
        for instruction in instructions:
            try:
                self._work_on_file(instruction, outcome)
            except OSError as error:  # the others still have their turn
                outcome.failures.append(error)
                if isinstance(instruction, LayOut | SetLimits):
                    self._stale.add(instruction.container)
        return outcome

    def _work_on_file(self, instruction: Instruction, outcome: _Outcome) -> None:
        match instruction:
            case LayOut() | SetLimits() | SaveRecord() | ClearSlots() | VacateSlots() | RemovePod():
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
                _log.info(
                    "slots_cleared", **_named(container), owner=owner, given_back_bytes=given_back_bytes
                )
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

    def _held(self, look: ReadHeld) -> HeldRead | None:
        """What a GPU's containers hold; None where a lower grant could not be written: it would prove nothing."""
        if not self._stale.isdisjoint(look.containers):
            return None
        return HeldRead(look.gpu, self._slots_of(look.containers), time.monotonic())

    def _all_slots(self) -> dict[ContainerKey, tuple[SlotUse, ...]]:
        return self._slots_of(self._node.containers())

    def _slots_of(self, containers: Iterable[ContainerKey]) -> dict[ContainerKey, tuple[SlotUse, ...]]:
        return {key: self._files.slots(key, len(self._node.gpus(key))) for key in containers}


def _named(container: ContainerKey) -> dict[str, str]:
    return {"pod": container.pod, "container": container.container}
