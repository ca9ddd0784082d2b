"""The broker's whole knowledge of its node. Here, and only here, an event turns into instructions.

What always holds: a pod's directories stay as long as one of its processes lives. A container's GPUs and their order
never change while it is registered, because its processes count memory by that order.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import assert_never

from msgspec.structs import replace

from hook.broker.core.announcer import NO_PROCESS
from hook.broker.core.audit.audit import Audit
from hook.broker.core.audit.measuring import Measuring
from hook.broker.core.codec import Numbers, PageNumbers
from hook.broker.core.datagram import DatagramKind
from hook.broker.core.describing import ShareOf, describe
from hook.broker.core.enforcement import EnforcementName, on_page
from hook.broker.core.events import (
    ConnectionClosed,
    DatagramReceived,
    Died,
    Event,
    HeldRead,
    Surveyed,
    Unheld,
    WordsRead,
)
from hook.broker.core.ids import ContainerKey, Process, SlotMeasured, SlotUse
from hook.broker.core.instructions import (
    Append,
    ClearSlots,
    Instruction,
    LayOut,
    RemovePod,
    Reply,
    SaveRecord,
    SetLimits,
    Survey,
)
from hook.broker.core.journal import Journal
from hook.broker.core.lives import Lives
from hook.broker.core.memory.arbiter import Step
from hook.broker.core.memory.requests import MemoryRequests, Overcommit
from hook.broker.core.registration import PodRecord, RegisteredPods, check, check_change, check_shares
from hook.broker.core.resizes import Resizes
from hook.broker.core.shares.events import ShareOveruse, UnmetSpan
from hook.broker.core.shares.findings import ShareFindings
from plimsoll.broker.announcements import Announcement
from plimsoll.broker.wire import (
    Acknowledge,
    ContainerLines,
    Description,
    Measured,
    Register,
    Unregister,
)
from plimsoll.ids import GpuUuid, PodUid, ProcessKey
from plimsoll.part.errors import InputError


class Node:
    """Registered pods, living processes, and the journal of what happened to them. Others only read its attributes.

    Attributes:
        pods: the registered pods.
        audit: the results of measurements so far.
        measuring: takes measurements, and counts their findings.
        is_measuring: the broker reads NVML by itself; set before `start`.
        memory_requests: requests for memory.
        share_findings: the findings of the share scheduler.
    """

    def __init__(
        self,
        journal: Journal,
        records: Iterable[PodRecord],
        boot_id: str,
        contexts: Mapping[GpuUuid, int] | None = None,
        overcommit: Overcommit | None = None,
        enforcement: EnforcementName = "both",
    ) -> None:
        """Begin where the last broker on this node ended.

        Args:
            journal: folded from the journal file; empty on a node's first start.
            records: the contents of the `record.json` files.
            boot_id: the machine's boot id, now.
            contexts: the known cost of a context, in bytes per GPU.
            overcommit: by what processes wait for memory; None where none waits.
            enforcement: what holds containers to their lines of memory.
        """
        self.is_measuring = False
        self._journal = journal
        self._enforcement: EnforcementName = enforcement
        self._lives = Lives(journal, boot_id)
        # A journal that lost its first line names no boot. The survey then finds which processes are dead.
        self._is_new_boot = journal.boot_id not in {"", boot_id}
        self.pods = RegisteredPods(records)
        self._vacant: set[ContainerKey] = set()
        self._resizes = Resizes(self._lives.announcer)
        self.audit = Audit(contexts or {})
        self.measuring = Measuring(self._lives, self.audit)
        self.memory_requests = MemoryRequests(overcommit, self._lives.announcer, self._set_limits)
        self.share_findings = ShareFindings(self._lives.announcer)

    def start(self, now_s: float) -> list[Instruction]:
        """Adopt what an earlier broker left. Carry these instructions out once, before any event is handled."""
        instructions: list[Instruction] = [self._lives.rewrite()]
        if self._is_new_boot:
            instructions += self._lives.all_died(now_s)
        # Containers are enrolled first, because their pages show the bytes that were granted already.
        enrolments = [step for record in self.pods for step in self._enrol(record)]
        for record in self.pods:
            instructions += self._lay_out(record, clear_counts=self._is_new_boot)
        return instructions + self.memory_requests.carry(enrolments, now_s) + self.survey()

    def survey(self) -> list[Instruction]:
        """Survey every container: the slow audit, which finds changes that no event reported."""
        containers = self.pods.containers.keys() | self._lives.containers
        surveys = [self.survey_of(container) for container in sorted(containers)]
        return [*self._set_limits(self._resizes.containers), *surveys]

    def handle(self, event: Event, now_s: float) -> list[Instruction]:  # noqa: C901, PLR0911, PLR0912 - one case an event
        """Take in one event.

        Args:
            event: a request, or something that happened.
            now_s: seconds since 1970, for the announcements' times.

        Raises:
            InputError: a request cannot be fulfilled; nothing has changed.
        """
        match event:
            case Register():
                return self._register(event, now_s)
            case Unregister():
                return self._unregister(event.pod)
            case Acknowledge():
                return self._acknowledge(event)
            case Measured():
                return [self.measuring.ask(event, self.pods.containers, self._runners())]
            case DatagramReceived():
                return self._received(event, now_s)
            case ConnectionClosed():
                return self.memory_requests.connection_closed(event.connection, now_s, event.at_s)
            case Died():
                return self._died(event, now_s)
            case Surveyed():
                return self._surveyed(event, now_s)
            case WordsRead():
                return self._words_read(event, now_s)
            case HeldRead():
                return self._held_read(event, now_s)
            case UnmetSpan() | Unheld() | ShareOveruse() if self.pods.lines(event.container) is None:
                return []  # The container was removed meanwhile.
            case UnmetSpan():
                return self.share_findings.take_unmet(event, now_s)
            case Unheld():
                return self._lives.unheld(event, now_s)
            case ShareOveruse():
                return self._overused(event, now_s)
            case _:
                assert_never(event)

    def lay_out_again(self, pod: PodUid) -> list[Instruction]:
        """Lay out a pod whose files are elsewhere now. A pod that is unknown or leaving stays as it is."""
        record = self.pods.get(pod)
        return [] if record is None or record.leaving else self._lay_out(record)

    def rewrite(self) -> Instruction:
        """Write the whole journal file anew, after an append failed."""
        return self._lives.rewrite()

    def containers_of(self, key: ProcessKey) -> list[ContainerKey]:
        """The containers in which a process was announced: one, unless the process reached another's socket."""
        return self._lives.containers_of(key)

    def process(self, container: ContainerKey, pid: int, owner: int) -> Process | None:
        """The announced process of a container with this pid and owner word; None if there is none."""
        return self._lives.find(container, pid, owner)

    def processes(self, container: ContainerKey) -> Mapping[ProcessKey, int]:
        """A container's announced processes with their owner words; 0 where the word is not known yet."""
        return self._lives.of(container)

    def after(self, seq: int) -> list[Announcement]:
        """Unacknowledged announcements past `seq`, in order."""
        return self._journal.after(seq)

    @property
    def newest_seq(self) -> int:
        """The number of the latest announcement, 0 before the first."""
        return self._journal.next_seq - 1

    @property
    def journal_length(self) -> int:
        """How many announcements are not acknowledged yet."""
        return len(self._journal)

    def describe(self, slots: Mapping[ContainerKey, tuple[SlotUse, ...]], share_of: ShareOf) -> Description:
        """Every registered container, with the memory and compute time of its announced processes; see `describe`."""
        return describe(self.pods, self._lives, slots, share_of, self.audit)

    def _runners(self) -> dict[ProcessKey, PodUid]:
        return {record.pod.runner: record.pod.pod for record in self.pods if record.pod.runner is not None}

    def _register(self, request: Register, now_s: float) -> list[Instruction]:
        check(request)
        check_shares(request, self.pods)
        old = self.pods.get(request.pod)
        if old is not None:
            check_change(old.pod, request)
            self._resizes.note(old.pod, request)
            if request.runner is None:
                request = replace(request, runner=old.pod.runner)
        record = self.pods.put(PodRecord(pod=request))
        self._vacant.difference_update(record.containers)
        resized = self._resizes.of(request.pod)
        enrolments = self._enrol(record)
        # The record is saved first: if the broker is killed next, the next broker still knows whose directories these
        # are. Only the record of a resized pod is saved together with its announcement; see `resizes`.
        saved = [] if resized else [SaveRecord(record)]
        instructions = [*saved, *self._lay_out(record), *map(self.survey_of, resized)]
        return instructions + self.memory_requests.carry(enrolments, now_s)

    def _unregister(self, pod: PodUid) -> list[Instruction]:
        record = self.pods.get(pod)
        if record is None:
            return []
        leaving = self.pods.put(PodRecord(pod=record.pod, leaving=True))
        # A process may have claimed a slot while its hello is still under way: survey before anything is removed.
        return [SaveRecord(leaving), *map(self.survey_of, record.containers)]

    def _acknowledge(self, request: Acknowledge) -> list[Instruction]:
        newest = self.newest_seq
        if not 0 <= request.seq <= newest:
            raise InputError("seq", request.seq, "was never announced", f"acknowledge 0 to {newest}")
        if request.seq <= self._journal.acknowledged:
            return []
        needs_rewrite = self._journal.acknowledge(request.seq)
        return [self._lives.rewrite() if needs_rewrite else Append(request)]

    def _received(self, event: DatagramReceived, now_s: float) -> list[Instruction]:
        if self.pods.lines(event.container) is None:
            return []
        self._vacant.discard(event.container)
        instructions = self._lives.received(event, now_s)
        if event.container in self._lives.containers_of(event.process.key):
            return instructions + self.memory_requests.received(event, now_s)
        if event.datagram.kind is DatagramKind.WAIT and event.datagram.gpu is not None:
            instructions.append(
                Reply(event.connection, event.datagram.gpu, refusal="its process is not known")
            )
        return instructions

    def _overused(self, event: ShareOveruse, now_s: float) -> list[Instruction]:
        owners = {owner: key for key, owner in self._lives.of(event.container).items()}
        return self.share_findings.take_overuse(event, owners.get(event.owner, NO_PROCESS), now_s)

    def _died(self, event: Died, now_s: float) -> list[Instruction]:
        containers = self.containers_of(event.key)
        instructions = self.memory_requests.process_died(event.key, now_s, event.at_s)
        instructions += self._forget_measured([event.key])
        instructions += self._lives.died(event.key, now_s)
        instructions += self.memory_requests.read_held(
            sorted({gpu for container in containers for gpu in self.pods.gpus(container)})
        )
        records = [self.pods.get(pod) for pod in sorted({container.pod for container in containers})]
        again = [key for record in records if record and record.leaving for key in record.containers]
        return [*instructions, *map(self.survey_of, again)]

    def _forget_measured(self, dead: Iterable[ProcessKey]) -> list[Instruction]:
        """End the excess of dead processes, before their slots are cleared."""
        gone = [self.measuring.forget(process) for process in sorted(dead)]
        return [instruction for each in gone for instruction in self._set_limits(each, each)]

    def _surveyed(self, event: Surveyed, now_s: float) -> list[Instruction]:
        container = event.container
        instructions = self._forget_measured(event.dead)
        instructions += self._lives.surveyed(event, self.pods.gpus(container), now_s)
        if any(isinstance(instruction, ClearSlots) for instruction in instructions):
            instructions += self.memory_requests.read_held(self.pods.gpus(container))
        record = self.pods.get(container.pod)
        if record is not None:
            instructions += self._resized(event, record, now_s)
        if record is None or not record.leaving:
            return instructions
        if self._lives.of(container):
            self._vacant.discard(container)
        else:
            self._vacant.add(container)
        return instructions + self._remove_if_vacant(record, now_s)

    def _resized(self, event: Surveyed, record: PodRecord, now_s: float) -> list[Instruction]:
        lines = self.pods.lines(event.container)
        if event.container not in self._resizes.containers or lines is None:
            return []
        announcements = self._resizes.surveyed(event, lines, now_s)
        is_last = not self._resizes.of(record.pod.pod)
        return [*announcements, SaveRecord(record)] if is_last else announcements

    def _remove_if_vacant(self, record: PodRecord, now_s: float) -> list[Instruction]:
        containers = tuple(record.containers)
        if not self._vacant.issuperset(containers):
            return []
        self._vacant.difference_update(containers)
        self.pods.remove(record.pod.pod)
        self._resizes.forget(record.pod.pod)
        self.measuring.forget_pod(record.pod.pod)
        self.share_findings.forget(containers)
        return [RemovePod(record.pod.pod, containers), *self.memory_requests.leave(containers, now_s)]

    def _words_read(self, event: WordsRead, now_s: float) -> list[Instruction]:
        containers = self.pods.containers
        before = {key: self._measured_gpus(lines) for key, lines in containers.items()}
        instructions, stale, saves = self.measuring.take(event, containers, now_s)
        # Only the end of measuring must be written at once: a program may wait for its measurement.
        for key, lines in containers.items():
            if before[key] - self._measured_gpus(lines):
                stale.setdefault(key, ())
        measured = self.memory_requests.measured(self.audit.capacity, now_s)
        return [*instructions, *self._set_limits(stale, stale), *measured, *saves]

    def _measured_gpus(self, lines: ContainerLines) -> frozenset[GpuUuid]:
        """The GPUs of a container on which the cost of a context is measured soon after the context was made."""
        return frozenset(
            line.gpu
            for line in lines.lines
            if (self.is_measuring or line.gpu in self.audit.capacity) and self.audit.lists_processes(line.gpu)
        )

    def _lay_out(self, record: PodRecord, *, clear_counts: bool = False) -> list[Instruction]:
        return [LayOut(key, *self._page(record, key), clear_counts) for key in record.containers]

    def _set_limits(
        self,
        containers: Iterable[ContainerKey],
        measured: Mapping[ContainerKey, tuple[SlotMeasured, ...]] = MappingProxyType({}),
    ) -> list[Instruction]:
        """Write the current numbers onto these containers' pages; an unregistered container has no page."""
        instructions: list[Instruction] = []
        for key in sorted(containers):
            record = self.pods.get(key.pod)
            if record is not None and key in record.containers:
                instructions.append(SetLimits(key, *self._page(record, key), measured.get(key, ())))
        return instructions

    def _page(self, record: PodRecord, container: ContainerKey) -> tuple[ContainerLines, Numbers]:
        lines = on_page(record.pod, record.containers[container], self._enforcement)
        return lines, self._numbers(container, lines)

    def _numbers(self, container: ContainerKey, lines: ContainerLines) -> Numbers:
        """The numbers beside each of a container's lines."""
        measured = self._measured_gpus(lines)
        return tuple(
            PageNumbers(
                granted_bytes=self.memory_requests.granted_bytes(container, line),
                context_bytes=self.audit.context_bytes(line.gpu),
                excess_bytes=self.audit.excess_bytes(container, line.gpu),
                is_wanted=self.memory_requests.is_wanted(line.gpu),
                is_measured=line.gpu in measured,
            )
            for line in lines.lines
        )

    def _enrol(self, record: PodRecord) -> list[Step]:
        containers = record.containers.items()
        return [step for key, lines in containers for step in self.memory_requests.enrol(key, lines)]

    def _held_read(self, event: HeldRead, now_s: float) -> list[Instruction]:
        gpus = {key: self.pods.gpus(key) for key in event.slots}
        places = {key: own.index(event.gpu) for key, own in gpus.items() if event.gpu in own}
        words = {
            key: sum(slot.used_bytes[place] for slot in event.slots[key]) for key, place in places.items()
        }
        excess = {key: self.audit.excess_bytes(key, event.gpu) for key in places}
        return self.memory_requests.held_read(event, words, excess, now_s)

    def survey_of(self, container: ContainerKey) -> Survey:
        """Survey one container."""
        return Survey(container, frozenset[ProcessKey](self._lives.of(container)))
