"""The broker's whole knowledge of its node, and the one place where an event turns into instructions.

What always holds: a pod's directories stay for as long as one of its processes lives; a container's GPUs and
their order never change while it is registered, as its processes count by their order.
"""

from collections.abc import Iterable, Mapping
from typing import assert_never

from hook.broker.core.announcer import NOBODY
from hook.broker.core.audit.measuring import Measuring
from hook.broker.core.codec import Numbers, PageNumbers
from hook.broker.core.datagram import Kind
from hook.broker.core.describing import ShareOf, describe
from hook.broker.core.ids import ContainerKey, ProcessKey, SlotUse
from hook.broker.core.journal import Journal
from hook.broker.core.memory.arbiter import Step
from hook.broker.core.memory.requests import Overcommit, Waits
from hook.broker.core.processes.lives import Lives
from hook.broker.core.registration.admission import check_shares
from hook.broker.core.registration.checks import check, check_change
from hook.broker.core.registration.resizes import Resizes
from hook.broker.core.shares.events import ShareViolated, Unmet
from hook.broker.core.shares.unmet import UnmetRequests
from hook.broker.core.shares.violations import ShareViolations
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
    Record,
    RemovePod,
    Reply,
    SaveRecord,
    SetLimits,
    Survey,
    Surveyed,
    Unheld,
    WordsRead,
)
from plimsoll.broker.wire import (
    Acknowledge,
    Announcement,
    ContainerLines,
    Description,
    Measured,
    Register,
    Unregister,
)
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.part.errors import InputError


class Node:
    """Registered pods, living processes, and the journal of what happened to them."""

    def __init__(
        self,
        journal: Journal,
        records: Iterable[Record],
        boot_id: str,
        contexts: Mapping[GpuUuid, int] | None = None,
        overcommit: Overcommit | None = None,
    ) -> None:
        """Begin where the last broker on this node left off.

        Args:
            journal: folded from the journal file; empty on a node's first start.
            records: what the `record.json` files hold.
            boot_id: the machine's, now.
            contexts: what a context was known to cost, in bytes per GPU.
            overcommit: None where nobody ever waits.
        """
        self._journal = journal
        self._lives = Lives(journal, boot_id)
        # A journal that lost its first line says nothing of boots; the survey sorts its processes out.
        self._is_new_boot = journal.boot_id not in {"", boot_id}
        self._records: dict[PodUid, Record] = {record.pod.pod: record for record in records}
        self._vacant: set[ContainerKey] = set()
        self._resizes = Resizes(self._lives.announcer)
        self._measuring = Measuring(self._lives, contexts or {})
        self._waits = Waits(overcommit, self._lives.announcer, self._set_limits)
        self._unmet = UnmetRequests(self._lives.announcer)
        self._share_violations = ShareViolations(self._lives.announcer)

    def start(self, now_s: float) -> list[Instruction]:
        """Adopt what is there; to be carried out once, before any other event."""
        instructions: list[Instruction] = [self._lives.rewrite()]
        if self._is_new_boot:
            instructions += self._lives.all_died(now_s)
        # Enrolled first, as what is laid out says what was granted already.
        enrolments = [step for record in self._records.values() for step in self._enrol(record.pod)]
        for record in self._records.values():
            instructions += self._lay_out(record.pod, clear_counts=self._is_new_boot)
        return instructions + self._waits.carry(enrolments, now_s) + self.survey()

    def survey(self) -> list[Instruction]:
        """Look after every container: for the slow audit that finds what no event told."""
        registered = {key for record in self._records.values() for key in _containers(record.pod)}
        surveys = [self.survey_of(container) for container in sorted(registered | self._lives.containers)]
        return [*self._set_limits(self._resizes.containers), *surveys]

    def handle(self, event: Event, now_s: float) -> list[Instruction]:
        """Take in one event.

        Args:
            event: what happened or was asked.
            now_s: seconds since 1970, for the announcements' times.

        Raises:
            InputError: a request cannot be fulfilled; nothing has changed.
        """
        match event:
            case Register() | Unregister() | Acknowledge() | Measured():
                return self._asked(event, now_s)
            case Heard():
                return self._heard(event, now_s)
            case HungUp():
                return self._waits.hung_up(event.connection, now_s, event.at_s)
            case Died():
                return self._died(event, now_s)
            case Unmet() | Unheld() | ShareViolated():
                return self._of_shares(event, now_s)
            case Surveyed() | WordsRead() | HeldRead():
                return self._has_read(event, now_s)
            case _:
                assert_never(event)

    def _of_shares(self, event: Unmet | Unheld | ShareViolated, now_s: float) -> list[Instruction]:
        """What was found out of a container's share of compute time."""
        if self.lines(event.container) is None:
            return []
        match event:
            case Unmet():
                return self._unmet.take(event, now_s)
            case Unheld():
                return self._lives.unheld(event, now_s)
            case ShareViolated():
                owners = {owner: key for key, owner in self._lives.of(event.container).items()}
                return self._share_violations.take(event, owners.get(event.owner, NOBODY), now_s)
            case _:
                assert_never(event)

    def _has_read(self, event: Surveyed | WordsRead | HeldRead, now_s: float) -> list[Instruction]:
        match event:
            case Surveyed():
                return self._surveyed(event, now_s)
            case WordsRead():
                return self._words_read(event, now_s)
            case HeldRead():
                return self._held_read(event, now_s)
            case _:
                assert_never(event)

    def _asked(
        self, request: Register | Unregister | Acknowledge | Measured, now_s: float
    ) -> list[Instruction]:
        match request:
            case Register():
                return self._register(request, now_s)
            case Unregister():
                return self._unregister(request.pod)
            case Acknowledge():
                return self._acknowledge(request)
            case Measured():
                return [self._measuring.ask(request, self.containers())]
            case _:
                assert_never(request)

    def rewrite(self) -> Instruction:
        """The whole journal file anew, after one that could not be written."""
        return self._lives.rewrite()

    def places(self, key: ProcessKey) -> list[ContainerKey]:
        """The containers that a process lives in: one, as far as containers are what they should be."""
        return [container for container in self._lives.containers if key in self._lives.of(container)]

    def processes(self, container: ContainerKey) -> Mapping[ProcessKey, int]:
        """A container's announced processes with their owner words; 0 where that is not known yet."""
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

    def containers(self) -> list[ContainerKey]:
        """Every registered container."""
        return [key for record in self._records.values() for key in _containers(record.pod)]

    def after(self, seq: int) -> list[Announcement]:
        """Unacknowledged announcements past `seq`, in order."""
        return self._journal.after(seq)

    @property
    def measuring(self) -> Measuring:
        """What measurements have come to; to be read only."""
        return self._measuring

    @property
    def waits(self) -> Waits:
        """Everyone who waits for memory; to be read only."""
        return self._waits

    @property
    def unmet(self) -> UnmetRequests:
        """Requests for compute time that could not be met; to be read only."""
        return self._unmet

    @property
    def share_violations(self) -> ShareViolations:
        """Processes whose pages were belied by NVML; to be read only."""
        return self._share_violations

    @property
    def newest_seq(self) -> int:
        """The number of the latest announcement, 0 before the first."""
        return self._journal.next_seq - 1

    @property
    def journal_length(self) -> int:
        """How many announcements wait to be acknowledged."""
        return len(self._journal)

    def describe(self, slots: Mapping[ContainerKey, tuple[SlotUse, ...]], share_of: ShareOf) -> Description:
        """Everything registered, with what its announced processes hold by these slots, and what time it has."""
        return describe(self._records.values(), self._lives, slots, share_of)

    def _register(self, request: Register, now_s: float) -> list[Instruction]:
        check(request)
        check_shares(request, self._records.values())
        old = self._records.get(request.pod)
        if old is not None:
            check_change(old.pod, request)
            self._resizes.note(old.pod, request)
        record = self._records[request.pod] = Record(pod=request)
        self._vacant.difference_update(_containers(request))
        resized = self._resizes.of(request.pod)
        enrolments = self._enrol(request)
        # The record of a resized pod is saved with the announcement, see `resizes`.
        instructions = [
            *self._lay_out(request),
            *(map(self.survey_of, resized) if resized else (SaveRecord(record),)),
        ]
        return instructions + self._waits.carry(enrolments, now_s)

    def _unregister(self, pod: PodUid) -> list[Instruction]:
        record = self._records.get(pod)
        if record is None:
            return []
        leaving = self._records[pod] = Record(pod=record.pod, leaving=True)
        # A process may have claimed a slot whose hello is still under way: look before removing anything.
        return [SaveRecord(leaving), *map(self.survey_of, _containers(record.pod))]

    def _acknowledge(self, request: Acknowledge) -> list[Instruction]:
        newest = self.newest_seq
        if not 0 <= request.seq <= newest:
            raise InputError("seq", request.seq, "was never announced", f"acknowledge 0 to {newest}")
        if request.seq <= self._journal.acknowledged:
            return []
        needs_rewrite = self._journal.acknowledge(request.seq)
        return [self._lives.rewrite() if needs_rewrite else Append(request)]

    def _heard(self, event: Heard, now_s: float) -> list[Instruction]:
        if self.lines(event.container) is None:
            return []
        self._vacant.discard(event.container)
        instructions = self._lives.heard(event, now_s)
        if event.process.key in self._lives.of(event.container):
            return instructions + self._waits.heard(event, now_s)
        if event.datagram.kind is Kind.WAIT and event.datagram.gpu is not None:
            instructions.append(Reply(event.connection, event.datagram.gpu, refusal="it is not who it says"))
        return instructions

    def _died(self, event: Died, now_s: float) -> list[Instruction]:
        places = self.places(event.key)
        instructions = self._waits.died(event.key, now_s, event.at_s)
        instructions += self._lives.died(event.key, now_s)
        instructions += self._set_limits(self._measuring.forget(event.key))
        instructions += self._waits.look(sorted({gpu for place in places for gpu in self.gpus(place)}))
        leaving = {c.pod for c in places if c.pod in self._records and self._records[c.pod].leaving}
        again = [c for pod in sorted(leaving) for c in _containers(self._records[pod].pod)]
        return [*instructions, *map(self.survey_of, again)]

    def _surveyed(self, event: Surveyed, now_s: float) -> list[Instruction]:
        container = event.container
        instructions = self._lives.surveyed(event, self.gpus(container), now_s)
        if any(isinstance(instruction, ClearSlots) for instruction in instructions):
            instructions += self._waits.look(self.gpus(container))
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

    def _resized(self, event: Surveyed, record: Record, now_s: float) -> list[Instruction]:
        lines = self.lines(event.container)
        if event.container not in self._resizes.containers or lines is None:
            return []
        announcements = self._resizes.surveyed(event, lines, now_s)
        is_last = not self._resizes.of(record.pod.pod)
        return [*announcements, SaveRecord(record)] if is_last else announcements

    def _remove_if_vacant(self, record: Record, now_s: float) -> list[Instruction]:
        containers = _containers(record.pod)
        if not self._vacant.issuperset(containers):
            return []
        self._vacant.difference_update(containers)
        del self._records[record.pod.pod]
        self._resizes.forget(record.pod.pod)
        self._measuring.forget_pod(record.pod.pod)
        self._unmet.forget(containers)
        self._share_violations.forget(containers)
        return [RemovePod(record.pod.pod, containers), *self._waits.leave(containers, now_s)]

    def _words_read(self, event: WordsRead, now_s: float) -> list[Instruction]:
        containers = {
            key: lines
            for record in self._records.values()
            for key, lines in zip(_containers(record.pod), record.pod.containers, strict=True)
        }
        instructions, stale = self._measuring.take(event, containers, now_s)
        measured = self._waits.measured(self._measuring.capacity, now_s)
        return [*instructions, *self._set_limits(stale), *measured]

    def _lay_out(self, pod: Register, *, clear_counts: bool = False) -> list[Instruction]:
        pairs = zip(_containers(pod), pod.containers, strict=True)
        return [LayOut(key, lines, self._numbers(key, lines), clear_counts) for key, lines in pairs]

    def _set_limits(self, containers: Iterable[ContainerKey]) -> list[Instruction]:
        """Show these containers' processes the numbers as they now are; who is not registered has none."""
        pairs = [(key, self.lines(key)) for key in sorted(containers)]
        return [SetLimits(key, lines, self._numbers(key, lines)) for key, lines in pairs if lines is not None]

    def _numbers(self, container: ContainerKey, lines: ContainerLines) -> Numbers:
        """What stands beside each of a container's lines, put together from who computes it."""
        return tuple(
            PageNumbers(
                granted_bytes=self._waits.granted_bytes(container, line),
                context_bytes=self._measuring.context_bytes(line.gpu),
                excess_bytes=self._measuring.excess_bytes(container, line.gpu),
                is_wanted=self._waits.is_wanted(line.gpu),
            )
            for line in lines.lines
        )

    def _enrol(self, pod: Register) -> list[Step]:
        pairs = zip(_containers(pod), pod.containers, strict=True)
        return [step for key, lines in pairs for step in self._waits.enrol(key, lines)]

    def _held_read(self, event: HeldRead, now_s: float) -> list[Instruction]:
        places = {key: self.gpus(key).index(event.gpu) for key in event.slots if event.gpu in self.gpus(key)}
        words = {
            key: sum(slot.used_bytes[place] for slot in event.slots[key]) for key, place in places.items()
        }
        excess = {key: self._measuring.excess_bytes(key, event.gpu) for key in places}
        return self._waits.read(event, words, excess, now_s)

    def survey_of(self, container: ContainerKey) -> Survey:
        """A look after one container."""
        known: frozenset[ProcessKey] = frozenset(self._lives.of(container))
        return Survey(container, known)


def _containers(pod: Register) -> tuple[ContainerKey, ...]:
    return tuple(ContainerKey(pod.pod, container.name) for container in pod.containers)
