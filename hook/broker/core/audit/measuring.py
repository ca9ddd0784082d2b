"""Takes a measurement through the core: words are read, the audit compares, and its findings are announced."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final

from hook.broker.core.audit.attribution import Audited, Hooked
from hook.broker.core.audit.audit import Audit
from hook.broker.core.events import WordsRead
from hook.broker.core.ids import ContainerKey, Process, SlotMeasured, SlotUse
from hook.broker.core.instructions import Instruction, LogWarning, ReadWords, SaveContexts, VacateSlots
from hook.broker.core.lives import Lives
from plimsoll.broker.announcements import Unenforced, Violated
from plimsoll.broker.wire import ContainerLines, Measured
from plimsoll.ids import GpuUuid, PodUid, ProcessKey

_IN_VAIN: Final = (
    "until NVML shows its context or the memory that it imports, that does not count against the line"
)
_IN_VAIN_REMEDY: Final = "find out why NVML is slow on this node: `not_measured` in this log, or nvidia-smi"


class Measuring:
    """Takes measurements in, one by one, and counts the findings."""

    def __init__(self, lives: Lives, audit: Audit) -> None:
        """Begin.

        Args:
            lives: the hooked processes, and the announcer.
            audit: compares measurements with words; fresh.
        """
        self._lives = lives
        self._audit = audit
        self._absences = Absences()
        self._found: Counter[tuple[ContainerKey, type[Violated | Unenforced]]] = Counter()

    def found_count(self, container: ContainerKey, sort: type[Violated | Unenforced]) -> int:
        """How often a finding of this sort was announced for a container since this broker's start."""
        return self._found[container, sort]

    def ask(
        self,
        measured: Measured,
        containers: Iterable[ContainerKey],
        runners: Mapping[ProcessKey, PodUid],
    ) -> ReadWords:
        """The reading that must come before a measurement can be compared."""
        hooked = tuple(key for key in containers if self._lives.of(key))
        known = {process for key in hooked for process in self._lives.of(key)}
        strays = frozenset(one.process for one in measured.processes if one.pod is None)
        return ReadWords(measured, hooked, strays - known, runners)

    def take(
        self, event: WordsRead, containers: Mapping[ContainerKey, ContainerLines], now_s: float
    ) -> tuple[list[Instruction], dict[ContainerKey, tuple[SlotMeasured, ...]], list[SaveContexts]]:
        """Compare a measurement with the words.

        Args:
            event: the measurement and the words.
            containers: every registered container.
            now_s: for the announcements' times.

        Returns:
            Instructions, the containers whose `limits` or slots of `measured` hold old numbers now, and what is saved
            once their pages are written: a program that waits for its measurement must not wait for the disk. The
            slots are given with their new figures.
        """
        audited = [
            Audited(key, lines, self._hooked(key, lines, event.slots.get(key, ())))
            for key, lines in containers.items()
        ]
        result = self._audit.take(event.measured, audited)
        instructions: list[Instruction] = []
        for finding in result.findings:
            if isinstance(finding, Unenforced) and self._lives.has_died(finding.process):
                continue  # It died between NVML's list and now, and two monitors may send that list twice.
            self._found[ContainerKey(finding.pod, finding.container), type(finding)] += 1
            instructions += self._lives.announcer.announce(finding, now_s)
        for container, (process, gpu) in result.in_vain:
            instructions.append(_late(container, process, gpu))
        instructions += self._absences.take(event.measured, self._holders(event))
        changed = dict.fromkeys(result.stale, ()) | self._remeasured(audited, result.remeasured)
        saves = [SaveContexts(dict(self._audit.contexts))] if result.has_learned else []
        return instructions, changed, saves

    def forget(self, process: ProcessKey) -> dict[ContainerKey, tuple[SlotMeasured, ...]]:
        """Forget a dead process; returns the containers whose numbers changed, and its slots without figures."""
        return {
            container: tuple(SlotMeasured(slot) for slot in slots)
            for container, slots in self._audit.forget(process).items()
        }

    def _remeasured(
        self, containers: Sequence[Audited], processes: frozenset[ProcessKey]
    ) -> dict[ContainerKey, tuple[SlotMeasured, ...]]:
        """The figures of these processes, in the first slot of each."""
        return {
            container.key: found
            for container in containers
            if (found := tuple(self._figures(container, processes & container.hooked.keys())))
        }

    def _figures(self, container: Audited, processes: frozenset[ProcessKey]) -> Iterator[SlotMeasured]:
        owners = self._lives.of(container.key)
        for key in processes:
            if slots := container.hooked[key].slots:
                figures = [self._audit.of_process(key, gpu) for gpu in container.line_bytes]
                measured_ns, excess_bytes = zip(*figures, strict=True)
                yield SlotMeasured(slots[0], owners[key], measured_ns, excess_bytes)

    def forget_pod(self, pod: PodUid) -> None:
        """Forget the counts of a pod that was removed."""
        self._found = Counter({key: count for key, count in self._found.items() if key[0].pod != pod})

    def _holders(self, event: WordsRead) -> dict[tuple[ContainerKey, ProcessKey], int]:
        holding = {
            (c, slot.owner) for c, slots in event.slots.items() for slot in slots if any(slot.used_bytes)
        }
        return {
            (container, key): owner
            for container in event.slots
            for key, owner in self._lives.of(container).items()
            if (container, owner) in holding
        }

    def _hooked(
        self, container: ContainerKey, lines: ContainerLines, slots: tuple[SlotUse, ...]
    ) -> dict[ProcessKey, Hooked]:
        by_owner: dict[int, list[SlotUse]] = {}
        for slot in slots:
            by_owner.setdefault(slot.owner, []).append(slot)
        return {
            key: _hooked(
                lines, by_owner.get(owner, []) if owner else None, self._lives.contexts(container, key)
            )
            for key, owner in self._lives.of(container).items()
        }


def _late(container: ContainerKey, process: ProcessKey, gpu: GpuUuid) -> LogWarning:
    details: dict[str, str | int] = {"pid": process.pid, "gpu": gpu}
    details |= {"effect": _IN_VAIN, "remedy": _IN_VAIN_REMEDY}
    return LogWarning("context_not_measured_in_time", details, container)


def _hooked(lines: ContainerLines, own: Sequence[SlotUse] | None, contexts: frozenset[GpuUuid]) -> Hooked:
    """A process with the words of its own slots; `None` for slots that are not known."""
    if own is None:
        return Hooked(None, contexts)
    words = tuple(sum(slot.used_bytes[place] for slot in own) for place in range(len(lines.lines)))
    slots = tuple(slot.slot for slot in own)
    changed_ns = max((slot.changed_ns for slot in own), default=0)
    awaiting = _marked(lines, (slot.awaiting for slot in own))
    in_vain = _marked(lines, (slot.in_vain for slot in own))
    return Hooked(words, contexts, slots, changed_ns, awaiting, in_vain)


def _marked(lines: ContainerLines, masks: Iterable[int]) -> frozenset[GpuUuid]:
    marks = reduce(or_, masks, 0)
    return frozenset(line.gpu for place, line in enumerate(lines.lines) if marks >> place & 1)


class Absences:
    """The processes with memory in their words that the latest measurement did not list."""

    def __init__(self) -> None:
        self._absent: frozenset[tuple[ContainerKey, ProcessKey]] = frozenset()

    def take(
        self, measured: Measured, holders: Mapping[tuple[ContainerKey, ProcessKey], int]
    ) -> list[VacateSlots]:
        """Take in a measurement.

        Args:
            measured: the measurement by NVML.
            holders: the owner words of all processes with memory in their words.

        Returns:
            An instruction for each process that was absent from two measurements in a row.
        """
        listed = {ProcessKey(process.pid, process.start_ticks) for process in measured.processes}
        absent = frozenset(holder for holder in holders if holder[1] not in listed)
        suspects = sorted(absent & self._absent)
        self._absent = absent
        return [VacateSlots(place, Process(key, holders[place, key])) for place, key in suspects]
