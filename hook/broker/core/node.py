"""The broker's whole knowledge of its node. Here, and only here, an event turns into instructions.

What always holds: a pod's directories stay as long as one of its processes lives. A container's GPUs and their order
never change while it is registered, because its processes count memory by that order.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import assert_never

from msgspec.structs import replace

from hook.broker.core.announcer import NO_PROCESS
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
from hook.broker.core.memory.arbiter import Step
from hook.broker.core.memory.no_overcommit import NoOvercommit
from hook.broker.core.memory.requests import MemoryRequests, Overcommit
from hook.broker.core.processes.lives import Lives
from hook.broker.core.registration.admission import check_shares
from hook.broker.core.registration.checks import check, check_change
from hook.broker.core.registration.record import PodRecord
from hook.broker.core.registration.resizes import Resizes
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
        measuring: the results of measurements so far.
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
        overcommit: Overcommit | NoOvercommit = NoOvercommit(),  # noqa: B008 - it holds no state
        enforcement: EnforcementName = "both",
    ) -> None:
        """Begin where the last broker on this node ended.

        Args:
            journal: folded from the journal file; empty on a node's first start.
            records: the contents of the `record.json` files.
            boot_id: the machine's boot id, now.
            contexts: the known cost of a context, in bytes per GPU.
            overcommit: whether processes may wait for memory.
            enforcement: what holds containers to their lines of memory.
        """
        self.is_measuring = False
        self._journal = journal
        self._enforcement: EnforcementName = enforcement
        self._lives = Lives(journal, boot_id)
        # A journal that lost its first line names no boot. The survey then finds which processes are dead.
        self._is_new_boot = journal.boot_id not in {"", boot_id}
        self._records: dict[PodUid, PodRecord] = {record.pod.pod: record for record in records}
        self._vacant: set[ContainerKey] = set()
        self._resizes = Resizes(self._lives.announcer)
        self.measuring = Measuring(self._lives, contexts or {})
        self.memory_requests: MemoryRequests | NoOvercommit = overcommit.requests(
            self._lives.announcer, self._set_limits
        )
        self.share_findings = ShareFindings(self._lives.announcer)

    def start(self, now_s: float) -> list[Instruction]:
        """Adopt what an earlier broker left. Carry these instructions out once, before any event is handled."""
        instructions: list[Instruction] = [self._lives.rewrite()]
        if self._is_new_boot:
            instructions += self._lives.all_died(now_s)
        # Containers are enrolled first, because their pages show the bytes that were granted already.
        enrolments = [step for record in self._records.values() for step in self._enrol(record.pod)]
        for record in self._records.values():
            instructions += self._lay_out(record.pod, clear_counts=self._is_new_boot)
        return instructions + self.memory_requests.carry(enrolments, now_s) + self.survey()

    def survey(self) -> list[Instruction]:
        """Survey every container: the slow audit, which finds changes that no event reported."""
        registered = {key for record in self._records.values() for key in _containers(record.pod)}
        surveys = [self.survey_of(container) for container in sorted(registered | self._lives.containers)]
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
                return [self.measuring.ask(event, self.containers(), self._runners())]
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
            case UnmetSpan() | Unheld() | ShareOveruse() if self.lines(event.container) is None:
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
        record = self._records.get(pod)
        return [] if record is None or record.leaving else self._lay_out(record.pod)

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

    def gpus(self, container: ContainerKey) -> tuple[GpuUuid, ...]:
        """A container's GPUs in the order of its lines; empty for one that is not registered."""
        lines = self.lines(container)
        return tuple(line.gpu for line in lines.lines) if lines else ()

    def lines(self, container: ContainerKey) -> ContainerLines | None:
        """A container's lines, or None for one that is not registered."""
        record = self._records.get(container.pod)
        found = [c for c in record.pod.containers if c.name == container.container] if record else []
        return found[0] if found else None

    def registered(self, pod: PodUid) -> Register | None:
        """A pod's registration, or None for one that is not registered."""
        record = self._records.get(pod)
        return record.pod if record else None

    def pods(self) -> list[PodUid]:
        """Every registered pod."""
        return list(self._records)

    def containers(self) -> list[ContainerKey]:
        """Every registered container."""
        return [key for record in self._records.values() for key in _containers(record.pod)]

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
        return describe(self._records.values(), self._lives, slots, share_of, self.measuring)

    def _runners(self) -> dict[ProcessKey, PodUid]:
        pods = [record.pod for record in self._records.values()]
        return {pod.runner: pod.pod for pod in pods if pod.runner is not None}

    def _register(self, request: Register, now_s: float) -> list[Instruction]:
        check(request)
        check_shares(request, self._records.values())
        old = self._records.get(request.pod)
        if old is not None:
            check_change(old.pod, request)
            self._resizes.note(old.pod, request)
            if request.runner is None:
                request = replace(request, runner=old.pod.runner)
        record = self._records[request.pod] = PodRecord(pod=request)
        self._vacant.difference_update(_containers(request))
        resized = self._resizes.of(request.pod)
        enrolments = self._enrol(request)
        # The record is saved first: if the broker is killed next, the next broker still knows whose directories these
        # are. Only the record of a resized pod is saved together with its announcement; see `resizes`.
        saved = [] if resized else [SaveRecord(record)]
        instructions = [*saved, *self._lay_out(request), *map(self.survey_of, resized)]
        return instructions + self.memory_requests.carry(enrolments, now_s)

    def _unregister(self, pod: PodUid) -> list[Instruction]:
        record = self._records.get(pod)
        if record is None:
            return []
        leaving = self._records[pod] = PodRecord(pod=record.pod, leaving=True)
        # A process may have claimed a slot while its hello is still under way: survey before anything is removed.
        return [SaveRecord(leaving), *map(self.survey_of, _containers(record.pod))]

    def _acknowledge(self, request: Acknowledge) -> list[Instruction]:
        newest = self.newest_seq
        if not 0 <= request.seq <= newest:
            raise InputError("seq", request.seq, "was never announced", f"acknowledge 0 to {newest}")
        if request.seq <= self._journal.acknowledged:
            return []
        needs_rewrite = self._journal.acknowledge(request.seq)
        return [self._lives.rewrite() if needs_rewrite else Append(request)]

    def _received(self, event: DatagramReceived, now_s: float) -> list[Instruction]:
        if self.lines(event.container) is None:
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
            sorted({gpu for container in containers for gpu in self.gpus(container)})
        )
        leaving = {c.pod for c in containers if c.pod in self._records and self._records[c.pod].leaving}
        again = [c for pod in sorted(leaving) for c in _containers(self._records[pod].pod)]
        return [*instructions, *map(self.survey_of, again)]

    def _forget_measured(self, dead: Iterable[ProcessKey]) -> list[Instruction]:
        """End the excess of dead processes, before their slots are cleared."""
        gone = [self.measuring.forget(process) for process in sorted(dead)]
        return [instruction for each in gone for instruction in self._set_limits(each, each)]

    def _surveyed(self, event: Surveyed, now_s: float) -> list[Instruction]:
        container = event.container
        instructions = self._forget_measured(event.dead)
        instructions += self._lives.surveyed(event, self.gpus(container), now_s)
        if any(isinstance(instruction, ClearSlots) for instruction in instructions):
            instructions += self.memory_requests.read_held(self.gpus(container))
        record = self._records.get(container.pod)
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
        lines = self.lines(event.container)
        if event.container not in self._resizes.containers or lines is None:
            return []
        announcements = self._resizes.surveyed(event, lines, now_s)
        is_last = not self._resizes.of(record.pod.pod)
        return [*announcements, SaveRecord(record)] if is_last else announcements

    def _remove_if_vacant(self, record: PodRecord, now_s: float) -> list[Instruction]:
        containers = tuple(_containers(record.pod))
        if not self._vacant.issuperset(containers):
            return []
        self._vacant.difference_update(containers)
        del self._records[record.pod.pod]
        self._resizes.forget(record.pod.pod)
        self.measuring.forget_pod(record.pod.pod)
        self.share_findings.forget(containers)
        return [RemovePod(record.pod.pod, containers), *self.memory_requests.leave(containers, now_s)]

    def _words_read(self, event: WordsRead, now_s: float) -> list[Instruction]:
        pods = [_containers(record.pod) for record in self._records.values()]
        containers = {key: lines for pod in pods for key, lines in pod.items()}
        before = {key: self._measured_gpus(lines) for key, lines in containers.items()}
        instructions, stale, saves = self.measuring.take(event, containers, now_s)
        # Only the end of measuring must be written at once: a program may wait for its measurement.
        for key, lines in containers.items():
            if before[key] - self._measured_gpus(lines):
                stale.setdefault(key, ())
        measured = self.memory_requests.measured(self.measuring.capacity, now_s)
        return [*instructions, *self._set_limits(stale, stale), *measured, *saves]

    def _measured_gpus(self, lines: ContainerLines) -> frozenset[GpuUuid]:
        """The GPUs of a container on which the cost of a context is measured soon after the context was made."""
        return frozenset(
            line.gpu
            for line in lines.lines
            if (self.is_measuring or line.gpu in self.measuring.capacity)
            and self.measuring.lists_processes(line.gpu)
        )

    def _lay_out(self, pod: Register, *, clear_counts: bool = False) -> list[Instruction]:
        shown = [(key, on_page(pod, lines, self._enforcement)) for key, lines in _containers(pod).items()]
        return [LayOut(key, lines, self._numbers(key, lines), clear_counts) for key, lines in shown]

    def _set_limits(
        self,
        containers: Iterable[ContainerKey],
        measured: Mapping[ContainerKey, tuple[SlotMeasured, ...]] = MappingProxyType({}),
    ) -> list[Instruction]:
        """Write the current numbers onto these containers' pages; an unregistered container has no page."""
        pairs = [(key, self.lines(key)) for key in sorted(containers)]
        shown = [
            (key, on_page(self._records[key.pod].pod, lines, self._enforcement))
            for key, lines in pairs
            if lines is not None
        ]
        return [
            SetLimits(key, lines, self._numbers(key, lines), measured.get(key, ())) for key, lines in shown
        ]

    def _numbers(self, container: ContainerKey, lines: ContainerLines) -> Numbers:
        """The numbers beside each of a container's lines."""
        measured = self._measured_gpus(lines)
        return tuple(
            PageNumbers(
                granted_bytes=self.memory_requests.granted_bytes(container, line),
                context_bytes=self.measuring.context_bytes(line.gpu),
                excess_bytes=self.measuring.excess_bytes(container, line.gpu),
                is_wanted=self.memory_requests.is_wanted(line.gpu),
                is_measured=line.gpu in measured,
            )
            for line in lines.lines
        )

    def _enrol(self, pod: Register) -> list[Step]:
        return [
            step for key, lines in _containers(pod).items() for step in self.memory_requests.enrol(key, lines)
        ]

    def _held_read(self, event: HeldRead, now_s: float) -> list[Instruction]:
        places = {key: self.gpus(key).index(event.gpu) for key in event.slots if event.gpu in self.gpus(key)}
        words = {
            key: sum(slot.used_bytes[place] for slot in event.slots[key]) for key, place in places.items()
        }
        excess = {key: self.measuring.excess_bytes(key, event.gpu) for key in places}
        return self.memory_requests.held_read(event, words, excess, now_s)

    def survey_of(self, container: ContainerKey) -> Survey:
        """Survey one container."""
        return Survey(container, frozenset[ProcessKey](self._lives.of(container)))


def _containers(pod: Register) -> dict[ContainerKey, ContainerLines]:
    return {ContainerKey(pod.pod, lines.name): lines for lines in pod.containers}
