"""Compares the processes' own words with NVML's figures: words can lie or miss memory, the driver does not.

What always holds:

* The bytes that a process holds past its words (`excess_bytes`) count against its container's line. They end with
  the process, and say nothing of another process.
* A measurement that counts proves the bytes that it shows past the word. One that shows less lowers the excess at
  once, but never below NVML's figure less the lower of two words: the word now, and the word at the measurement
  before. A program that fills its line reserves bytes in its word before the driver gives them: it has freed nothing.
* A measurement counts for a process on two conditions. The process had the same slots at the measurement before. Its
  words did not change between the moment before NVML was asked and the reading of the words. Otherwise its excess
  stays as it was.
* The cost of a context (`context_bytes`) only falls: it is the least cost seen, so no process is charged too much.
* A finding needs two measurements in a row, and a process without the library `UNHOOKED_NS` of them. It is announced
  once, and again only after it had ended.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hook.broker.core.announcer import about
from hook.broker.core.audit.attribution import (
    UNKNOWN_CONTAINER,
    AttributedProcess,
    Attribution,
    Audited,
    ContainerOnGpu,
    MeasuredUse,
    ProcessOnGpu,
    attributed,
)
from hook.broker.core.ids import ContainerKey
from plimsoll.broker.announcements import Unenforced, Violated
from plimsoll.broker.wire import Measured
from plimsoll.ids import GpuUuid, ProcessKey
from plimsoll.quantity import MIB

_WITHOUT: Final = (
    "uses the GPU without the library, so no line holds it: its environment was cleared, LD_PRELOAD was unset, or "
    "its program is static"
)
_UNHOOKED: Final = f"a process of this container {_WITHOUT}"
_UNHOOKED_SOMEWHERE: Final = f"a process of one of this pod's containers {_WITHOUT}"

UNHOOKED_NS: Final = 2_000_000_000
"""Nanoseconds over which a process is measured without a hello, before it counts as one without the library. Between
two quick measurements the hello of a program that has just started may still be under way."""

RUN: Final = 3
"""Measurements over which memory must stay the same before a context's cost is learned from it. NVML shows a part of
a context that is just ending, and a learned cost only falls."""

BLOCK_BYTES: Final = 2 * MIB
"""NVIDIA's driver gives out memory in blocks of this size. Smaller differences do not count."""

LEAST_CONTEXT_BYTES: Final = MIB
"""No driver's context costs less. Less means that the process has counted the context already."""


class Overhead:
    """The bytes of a process on a GPU past its words, and the apparent cost of its contexts."""

    def __init__(self) -> None:
        self._samples: deque[MeasuredUse] = deque(maxlen=RUN)
        self.excess_bytes = 0
        """Bytes that the process holds past its word, at least 0."""
        self.measured_ns = 0
        """The machine's clock when the latest measurement that counts began; 0 for none."""

    def add(self, sample: MeasuredUse) -> None:
        """Take in the next measurement that counts."""
        before = self._samples[-1] if self._samples else sample
        possible_bytes = sample.used_bytes - min(sample.word_bytes, before.word_bytes)
        self._samples.append(sample)
        self.excess_bytes = max(0, sample.past_bytes, min(self.excess_bytes, possible_bytes))

    @property
    def bare_bytes(self) -> int | None:
        """NVML's figure less the word with a context, if the process held still for it; else None.

        A process that does not hold still must show the same over `RUN` measurements.
        """
        latest = self._samples[-1] if self._samples else None
        if latest is not None and latest.is_awaited and latest.has_context:
            return latest.past_bytes if latest.past_bytes >= LEAST_CONTEXT_BYTES else None
        return self._steady([each.past_bytes for each in self._samples])

    @property
    def whole_bytes(self) -> int | None:
        """NVML's figure, if it did not change over `RUN` measurements with a context; else None."""
        return self._steady([each.used_bytes for each in self._samples])

    def _steady(self, values: list[int]) -> int | None:
        if len(values) < RUN or not all(each.has_context for each in self._samples):
            return None
        lowest = min(values)
        return lowest if lowest >= LEAST_CONTEXT_BYTES and max(values) - lowest <= BLOCK_BYTES else None


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of a measurement.

    Attributes:
        findings: the findings to be announced.
        stale: containers whose `limits` hold old numbers now.
        has_learned: the cost of a context was learned, and is to be saved.
        remeasured: the processes whose excess changed, or that were measured for the first time since their words
            changed.
        in_vain: the processes that have not been measured in time, with the GPU: a context of theirs is in no number
            yet. Each is named once.
    """

    findings: tuple[Violated | Unenforced, ...]
    stale: frozenset[ContainerKey]
    has_learned: bool
    remeasured: frozenset[ProcessKey] = frozenset()
    in_vain: tuple[tuple[ContainerKey, ProcessOnGpu], ...] = ()


class Audit:
    """Compares the processes of a node with NVML, measurement by measurement."""

    def __init__(self, contexts: Mapping[GpuUuid, int]) -> None:
        """Begin.

        Args:
            contexts: what a context was known to cost, per GPU, by the last broker on this node.
        """
        self.contexts = dict(contexts)
        self.capacity: dict[GpuUuid, int] = {}
        """Usable bytes per GPU, less the bytes of processes of no registered container."""
        self._overheads: dict[ProcessOnGpu, tuple[Attribution, Overhead]] = {}
        self._excess: dict[ContainerOnGpu, int] = {}
        self._uncharged: set[ProcessOnGpu] = set()
        self._measured: Mapping[ContainerOnGpu, int] = {}
        self._missed: Counter[GpuUuid] = Counter()
        self._in_vain: frozenset[tuple[ContainerKey, ProcessOnGpu]] = frozenset()
        self._over: frozenset[ContainerOnGpu] = frozenset()
        self._over_announced: frozenset[ContainerOnGpu] = frozenset()
        self._bare_since_ns: dict[ProcessKey, int] = {}
        self._bare_announced: dict[ProcessKey, ContainerKey] = {}

    def context_bytes(self, gpu: GpuUuid) -> int:
        """Bytes that a context costs on a GPU; 0 while the cost is not known."""
        return self.contexts.get(gpu, 0)

    def excess_bytes(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """Bytes that a container holds past its words."""
        return self._excess.get((container, gpu), 0)

    def of_process(self, process: ProcessKey, gpu: GpuUuid) -> tuple[int, int]:
        """When the latest measurement of a process that counts began, and its excess; zeros before the first one."""
        _, overhead = self._overheads.get((process, gpu), (None, Overhead()))
        return overhead.measured_ns, overhead.excess_bytes

    def measured_bytes(self, container: ContainerKey, gpu: GpuUuid) -> int:
        """Bytes that the last measurement showed of a container, hooked or not."""
        return self._measured.get((container, gpu), 0)

    def lists_processes(self, gpu: GpuUuid) -> bool:
        """Whether NVML lists the processes on a GPU; WSL's driver, for example, lists none.

        It does not where the last `RUN` measurements lacked the processes that have a context there.
        """
        return self._missed[gpu] < RUN

    def take(self, measured: Measured, containers: Sequence[Audited]) -> AuditResult:
        """Take in a measurement.

        Args:
            measured: the measurement by NVML.
            containers: every registered container, with its words as read after the measurement.
        """
        held = attributed(measured.processes, containers)
        bare = {each.key for each in held if each.hooked is None and each.owner is not None}
        self._bare_since_ns = {key: self._bare_since_ns.get(key, measured.began_ns) for key in bare}
        remeasured = self._weigh(held, measured.began_ns)
        learned = self._learn(held)
        stale = self._sum_up() | {c.key for c in containers if learned & c.line_bytes.keys()}
        self._measure_capacity(measured, held)
        self._note_missed(held, containers)
        violated, unenforced = self._violated(held, containers), self._unenforced(held, measured.began_ns)
        return AuditResult(
            (*violated, *unenforced),
            frozenset(stale),
            bool(learned),
            frozenset(remeasured),
            self._note_in_vain(containers),
        )

    def forget(self, process: ProcessKey) -> dict[ContainerKey, tuple[int, ...]]:
        """Forget a dead process and its excess; returns the containers whose numbers changed, with its slots."""
        gone = [self._overheads.pop(seen) for seen in tuple(self._overheads) if seen[0] == process]
        if not any(overhead.excess_bytes for _, overhead in gone):
            return {}
        slots = {attribution.place[0]: attribution.slots or () for attribution, _ in gone}
        return {container: slots.get(container, ()) for container in self._sum_up()}

    def _weigh(self, held: Iterable[AttributedProcess], began_ns: int) -> set[ProcessKey]:
        """Take the next sample of each process with a place. A process that NVML no longer lists has no overhead.

        Returns:
            the processes that were remeasured; see `AuditResult`.
        """
        before, self._overheads = self._overheads, {}
        shown = {seen: overhead.excess_bytes for seen, (_, overhead) in before.items()}
        remeasured = set()
        for each in held:
            attribution, sample = each.attribution, each.sample
            if attribution is None or sample is None:
                continue
            known, overhead = before.get(each.seen, (None, Overhead()))
            if known is not None and known.place != attribution.place:
                overhead = Overhead()
            is_judged = each.hooked is not None or self._is_unhooked(each.key, began_ns)
            if known == attribution and each.changed_ns < began_ns and is_judged:
                overhead.add(sample)
                if overhead.measured_ns <= each.changed_ns:
                    remeasured.add(each.key)
                overhead.measured_ns = began_ns
            self._overheads[each.seen] = (attribution, overhead)
        now = {seen: overhead.excess_bytes for seen, (_, overhead) in self._overheads.items()}
        changed = {seen for seen in shown.keys() | now.keys() if shown.get(seen, 0) != now.get(seen, 0)}
        return remeasured | {process for process, _ in changed}

    def _learn(self, held: Sequence[AttributedProcess]) -> frozenset[GpuUuid]:
        """Learn the least cost of a context; returns the GPUs whose cost changed.

        A context that was made before its cost was known is in no word, so NVML shows it past the word. Later
        contexts are in the words. There the whole figure is a bound: a process with a context holds at least its
        cost.
        """
        with_context = {each.seen for each in held if each.sample and each.sample.has_context}
        unknown = {seen for seen in with_context if seen[1] not in self.contexts}
        self._uncharged = (self._uncharged & with_context) | unknown
        learned = set()
        for seen in with_context & self._overheads.keys():
            _, overhead = self._overheads[seen]
            cost = overhead.bare_bytes if seen in self._uncharged else overhead.whole_bytes
            if cost is not None and cost < self.contexts.get(seen[1], cost + 1):
                self.contexts[seen[1]] = cost
                learned.add(seen[1])
        return frozenset(learned)

    def _sum_up(self) -> set[ContainerKey]:
        """Sum up each container's excess; returns the containers whose excess changed."""
        before, now = self._excess, defaultdict[ContainerOnGpu, int](int)
        for attribution, overhead in self._overheads.values():
            now[attribution.place] += overhead.excess_bytes
        self._excess = {place: excess for place, excess in now.items() if excess}
        places = before.keys() | self._excess.keys()
        return {place[0] for place in places if before.get(place) != self._excess.get(place)}

    def _measure_capacity(self, measured: Measured, held: Sequence[AttributedProcess]) -> None:
        ours = defaultdict[GpuUuid, int](int)
        listed = defaultdict[GpuUuid, int](int)
        for each in held:
            listed[each.process.gpu] += each.process.used_bytes
            ours[each.process.gpu] += each.process.used_bytes if each.place else 0
        # Used memory of no listed process belongs to processes that are hidden from the monitor.
        self.capacity = {
            gpu.gpu: max(0, gpu.usable_bytes - max(gpu.used_bytes, listed[gpu.gpu]) + ours[gpu.gpu])
            for gpu in measured.gpus
        }

    def _note_missed(self, held: Iterable[AttributedProcess], containers: Iterable[Audited]) -> None:
        listed = {each.seen for each in held}
        due = {(key, gpu) for c in containers for key, hooked in c.hooked.items() for gpu in hooked.contexts}
        for gpu in {gpu for _, gpu in due - listed}:
            self._missed[gpu] += 1
        for _, gpu in due & listed:
            self._missed[gpu] = 0

    def _note_in_vain(self, containers: Iterable[Audited]) -> tuple[tuple[ContainerKey, ProcessOnGpu], ...]:
        before = self._in_vain
        self._in_vain = frozenset(
            (container.key, (key, gpu))
            for container in containers
            for key, hooked in container.hooked.items()
            for gpu in hooked.in_vain
        )
        return tuple(sorted(self._in_vain - before))

    def _violated(self, held: Sequence[AttributedProcess], containers: Sequence[Audited]) -> list[Violated]:
        used = defaultdict[ContainerOnGpu, int](int)
        for each in held:
            if each.place is not None:
                used[each.place] += each.process.used_bytes
        self._measured = used
        lines = {
            (container.key, gpu): line_bytes
            for container in containers
            if not container.lines.whole and not container.lines.best_effort
            for gpu, line_bytes in container.line_bytes.items()
        }
        over = frozenset(place for place, line in lines.items() if used[place] > line + BLOCK_BYTES)
        new = sorted((over & self._over) - self._over_announced)
        self._over, self._over_announced = over, (self._over_announced & over) | frozenset(new)
        text = "NVML shows more than the line"
        return [
            Violated(
                **about(place[0]), gpu=place[1], used_bytes=used[place], line_bytes=lines[place], text=text
            )
            for place in new
        ]

    def unheld_pids(self, container: ContainerKey) -> tuple[int, ...]:
        """The announced processes without the library of a container, or of an unknown container of its pod."""
        owners = (container, ContainerKey(container.pod, UNKNOWN_CONTAINER))
        return tuple(key.pid for key, owner in sorted(self._bare_announced.items()) if owner in owners)

    def _is_unhooked(self, process: ProcessKey, began_ns: int) -> bool:
        return began_ns - self._bare_since_ns.get(process, began_ns) >= UNHOOKED_NS

    def _unenforced(self, held: Sequence[AttributedProcess], began_ns: int) -> list[Unenforced]:
        bare = {each.key: each for each in held if each.key in self._bare_since_ns}
        known = self._bare_announced
        due = sorted(key for key in bare if self._is_unhooked(key, began_ns))
        self._bare_announced = {key: owner for key in due if (owner := bare[key].owner) is not None}
        return [_unenforced(bare[key]) for key in due if key not in known]


def _unenforced(held: AttributedProcess) -> Unenforced:
    assert held.owner is not None
    return Unenforced(
        **about(held.owner, held.key),
        gpu=held.process.gpu,
        used_bytes=held.process.used_bytes,
        line_bytes=held.line_bytes,
        text=_UNHOOKED if held.container else _UNHOOKED_SOMEWHERE,
    )
