"""Carries the core's instructions out, one turn at a time.

What always holds:

* A turn (an event into the core, its instructions out) is over before the next turn begins.
* Instructions for files run in the one thread for files, in the core's order, before those for the event loop.
* Subscribers see an announcement only after the turn that wrote it.
* The broker's death may cut a turn short. The next broker then decides the rest of the turn again at its start.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

import msgspec

from hook.broker.bounded_log import BoundedLog
from hook.broker.core.datagram import DatagramKind
from hook.broker.core.events import ConnectionClosed, DatagramReceived, Died, Event, Unheld
from hook.broker.core.ids import ContainerKey
from hook.broker.core.instructions import (
    Append,
    Instruction,
    LayOut,
    LogWarning,
    ReadHeld,
    RemovePod,
    Reply,
    Rewrite,
)
from hook.broker.core.node import Node
from hook.broker.core.shares.events import ShareOveruse, UnmetSpan
from hook.broker.core.shares.scheduler import Scheduler
from hook.broker.core.shares.settings import ShareSettings
from hook.broker.driver_lines import DriverLines
from hook.broker.files.work import BrokerFiles, FileResults, FileWork
from hook.broker.gpu_health import GpusHealth
from hook.broker.shares.gate_files import GateConstants
from hook.broker.shares.ticks import Shares
from hook.broker.sockets.hook import HookSockets, StartTask, bind_hook_socket
from plimsoll.broker.announcements import Announcement
from plimsoll.broker.wire import Description, Register, Unregister
from plimsoll.gpu_health import DriverView
from plimsoll.ids import PodUid, ProcessKey
from plimsoll.part.causes import disk_remedy
from plimsoll.part.errors import PlimsollError
from plimsoll.part.log import get_logger
from plimsoll.part.processes import DeathWatch

ShareFinding = UnmetSpan | Unheld | ShareOveruse
"""A finding of the share scheduler, to be announced."""

LOOK_AGAIN_S: Final = 1.0
"""Seconds between two readings of the words while a process waits for memory. The readings find memory that was given
back without a message. While no process waits, the broker reads no words."""

HELLO_S: Final = 0.02
"""Seconds that a hello waits for the process's first context, which most programs make at once. The context announces
the process too, so one turn serves for both. Nothing waits for a hello: the process's share is held without it, and
the monitor takes no hello for news."""

_log: Final = get_logger()
T = TypeVar("T")


class NotCarriedOutError(PlimsollError):
    """The machine failed (disk full, no descriptors left, for example). The same request may be repeated."""


class Engine:
    """The broker at work. Everything except the file work runs on the event loop's thread.

    Attributes:
        node: the broker's knowledge; to be read only.
        files: the shared files.
        shares: the sharing of compute time; for the loop's thread only.
        driver_lines: the lines in the driver.
        bounded_log: the log for lines that programs and other parts can cause.
        health: the health of the GPUs.
    """

    def __init__(
        self,
        node: Node,
        disk: BrokerFiles,
        files_thread: Executor,
        start_task: StartTask,
        shares: ShareSettings,
        driver_lines: DriverLines,
    ) -> None:
        self.health = GpusHealth(disk.contexts.root)
        self.disk_failures = 0
        """The instructions for files that the disk has refused since the start."""
        self.node = node
        self.driver_lines = driver_lines
        self.files = disk.shared
        self._journal_file = disk.journal
        self._files_thread = files_thread
        self._start_task = start_task
        self._turn = asyncio.Lock()
        self._visible_seq = 0
        self._grown = asyncio.Event()
        self._watcher = DeathWatch[ProcessKey](self._on_death)
        self._looking: asyncio.Task[None] | None = None
        times_ms = (shares.ahead_ms, shares.alone_ms, shares.slice_ms)
        self.bounded_log = BoundedLog()
        self._file_work = FileWork(
            node.pods, disk, GateConstants(*(round(1000 * ms) for ms in times_ms)), self.bounded_log
        )
        self.shares = Shares(
            partial(Scheduler, shares),
            shares.tick_ms / 1000,
            node.processes,
            self._survey_soon,
            self._announce_finding,
        )
        self._hooks = HookSockets(
            start_task,
            node.process,
            node.pods.gpus,
            self._take_or_log,
            self.bounded_log,
        )

    async def start(self) -> None:
        """Adopt the containers and processes of an earlier broker.

        Raises:
            NotCarriedOutError: a directory could not be laid out.
        """
        self._start_task(self.shares.beat(), "beat of the gates")
        async with self._turn:
            await self._carry_out(self.node.start(time.time()))

    async def take(self, event: Event) -> None:
        """Give an event to the core, and carry out the instructions.

        Raises:
            InputError: a request that cannot be fulfilled; nothing has changed.
            NotCarriedOutError: part of it could not be carried out; repeat it.
        """
        if isinstance(event, Unregister):
            await self._hooks.drain(key for key in self.node.pods.containers if key.pod == event.pod)
        lines = self.driver_lines.changing(event) if isinstance(event, Register) else contextlib.nullcontext()
        async with lines, self._turn:
            await self._carry_out(self.node.handle(event, time.time()))

    async def survey(self) -> None:
        """Survey every container once.

        Raises:
            NotCarriedOutError: something could not be read or mended; the next survey tries again.
        """
        async with self._turn:
            await self._carry_out(self.node.survey())

    async def describe(self) -> Description:
        """The registered containers, and the memory that they hold at this moment."""
        slots = await self.in_files_thread(self._file_work.all_slots)
        described = self.node.describe(slots, self.shares.uses)
        unhealthy = {one.gpu: f"{one.health.value}: {one.reason}" for one in self.health.unhealthy}
        return msgspec.structs.replace(described, enforcement=self.driver_lines.state(), unhealthy=unhealthy)

    async def judge(self, seen: DriverView) -> None:
        """Judge the GPUs' health by what the driver shows."""
        if self.health.take(seen):
            try:
                await self.in_files_thread(self.health.write)
            except OSError as error:
                remedy = disk_remedy(error, "mend that", "the broker's")
                effect = "the next broker does not know of these conditions"
                _log.warning("gpu_health_not_kept", problem=str(error), effect=effect, remedy=remedy)

    async def lay_out_again(self, pod: PodUid, prepare: Callable[[], None]) -> bool:
        """Lay a registered pod out again; returns False for a pod that is not registered, or is leaving.

        Args:
            pod: any pod.
            prepare: runs before the layout in the thread for files, in the same turn.

        Raises:
            NotCarriedOutError: a directory could not be laid out.
            OSError: raised by `prepare`; nothing else was done.
        """
        async with self._turn:
            instructions = self.node.lay_out_again(pod)
            if instructions:
                await self.in_files_thread(prepare)
                await self._carry_out(instructions)
            return bool(instructions)

    async def in_files_thread(self, work: Callable[[], T]) -> T:
        """Run blocking work in the only thread for files, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._files_thread, work)

    def announcements_after(self, seq: int) -> list[Announcement]:
        """Announcements past `seq` that are in the journal and not acknowledged."""
        return [entry for entry in self.node.after(seq) if entry.seq <= self._visible_seq]

    def growth(self) -> asyncio.Event:
        """An event that is set when the journal grows after this call."""
        return self._grown

    def close(self) -> None:
        """Stop watching processes. The owner of the tasks and threads ends those."""
        self._watcher.close()
        self.shares.close()
        self._journal_file.close()

    async def _take_or_log(self, event: DatagramReceived | ConnectionClosed | ShareFinding) -> None:
        if isinstance(event, DatagramReceived) and event.datagram.kind is DatagramKind.HELLO:
            self.shares.came(event.container, event.datagram.slot)
            await asyncio.sleep(HELLO_S)
        try:
            await self.take(event)
        except NotCarriedOutError as error:
            _log.error("not_carried_out", problem=str(error))

    def _survey_soon(self, container: ContainerKey) -> None:
        self._start_task(self._survey_one(container), "survey")

    async def _survey_one(self, container: ContainerKey) -> None:
        """Search for the owners of a container's slots. If that fails now, the audit tries again."""
        with contextlib.suppress(NotCarriedOutError):
            async with self._turn:
                await self._carry_out([self.node.survey_of(container)])

    def _announce_finding(self, event: ShareFinding) -> None:
        self._start_task(self._take_or_log(event), "announce")

    def _on_death(self, key: ProcessKey) -> None:
        self._start_task(self._bury(key), f"death of {key.pid}")

    async def _bury(self, key: ProcessKey) -> None:
        for container in self.node.containers_of(key):
            self.shares.died(container, self.node.processes(container)[key])
        await self._hooks.drain_dead(key.pid, self.node.containers_of(key))
        try:
            await self.take(Died(key, time.monotonic()))
        except NotCarriedOutError as error:
            _log.error("not_carried_out", problem=str(error), remedy="the next audit tries again")

    async def _read_while_contended(self) -> None:
        """Read the words once every `LOOK_AGAIN_S`, as long as a process waits for memory."""
        while self.node.memory_requests.is_anybody_waiting:
            await asyncio.sleep(LOOK_AGAIN_S)
            try:
                async with self._turn:
                    await self._carry_out(self.node.memory_requests.read_contended())
            except NotCarriedOutError as error:
                _log.error("not_carried_out", problem=str(error), remedy="the next reading tries again")

    async def _carry_out(self, instructions: Sequence[Instruction]) -> None:
        failures = await self._settle(instructions)
        if self.node.memory_requests.is_anybody_waiting and (self._looking is None or self._looking.done()):
            self._looking = self._start_task(self._read_while_contended(), "read words while a process waits")
        if failures:
            problems = "; ".join(dict.fromkeys(map(str, failures)))
            self.disk_failures += len(failures)
            remedy = disk_remedy(ExceptionGroup("", failures), "mend that", "the broker's")
            raise NotCarriedOutError(f"{problems}; {remedy} and ask again")

    async def _settle(self, instructions: Sequence[Instruction]) -> list[OSError]:
        """Carry out instructions, and then those that follow from their readings; returns the failures."""
        if self._journal_file.is_behind:
            instructions = [self.node.rewrite(), *instructions]
        if not instructions:
            return []
        results = await self.in_files_thread(partial(self._file_work.carry_out, instructions))
        self._show(instructions)
        for key, file in results.watches:
            self._watcher.watch(key, file)
        for instruction in instructions:
            await self._work_on_sockets(instruction, results)
        for answer in results.answers:
            results.failures += await self._settle(self.node.handle(answer, time.time()))
        for reading in results.readings.values():
            results.failures += await self._read_held(reading)
        return results.failures

    async def _read_held(self, reading: ReadHeld) -> list[OSError]:
        try:
            held = await self.in_files_thread(partial(self._file_work.held, reading))
        except OSError as error:
            return [error]
        return await self._settle(self.node.handle(held, time.time())) if held else []

    def _show(self, instructions: Sequence[Instruction]) -> None:
        if any(isinstance(instruction, Append | Rewrite) for instruction in instructions):
            self._visible_seq = self.node.newest_seq
            self._grown.set()
            self._grown = asyncio.Event()

    async def _work_on_sockets(self, instruction: Instruction, results: FileResults) -> None:
        match instruction:
            case LayOut():
                await self._open(instruction, results)
            case RemovePod():
                for container in instruction.containers:
                    self._hooks.close(container)
                    self.shares.leave(container)
                    self.bounded_log.forget(container)
                self.driver_lines.forget(instruction.pod)
                _log.info("pod_removed", pod=instruction.pod)
            case Reply():
                self._hooks.reply(instruction)
            case LogWarning():
                self.bounded_log.warning(instruction.event, instruction.container, **instruction.details)
            case Append(Announcement() as line):
                found = msgspec.structs.asdict(line)
                details = {name: found[name] for name in ("gpu", "text") if found.get(name)}
                container = ContainerKey(line.pod, line.container)
                self.bounded_log.info(line.what, container, pid=line.pid, seq=line.seq, **details)

    async def _open(self, laid_out: LayOut, results: FileResults) -> None:
        """Listen on a container's socket, and schedule its compute time."""
        container = laid_out.container
        if not self._hooks.listens_for(container):
            directory = self.files.limits_dir(container)
            try:
                listener = await self.in_files_thread(partial(bind_hook_socket, directory))
            except OSError as error:
                results.failures.append(error)
            else:
                self._hooks.listen(container, listener)
        if container in results.gates:
            self.shares.join(container, laid_out.lines, *results.gates.pop(container))
