"""Whose each measured process is, and what is known of it beside what NVML shows.

A process that said hello belongs to the container on whose socket it did. Of any other the kernel tells the pod by
its cgroup, and so the container only where the pod has a single one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hook.broker.core.audit.overheads import Sample
from hook.broker.core.ids import ContainerKey, ProcessKey
from plimsoll.broker.wire import ContainerLines, MeasuredProcess
from plimsoll.ids import ContainerName, GpuUuid, PodUid

UNKNOWN_CONTAINER: Final = ContainerName("")
"""Of a pod with several containers: the kernel tells a process's pod, not its container."""

Place = tuple[ContainerKey, GpuUuid]
"""A container on a GPU."""

Seen = tuple[ProcessKey, GpuUuid]
"""A process on a GPU."""


@dataclass(frozen=True, slots=True)
class Hooked:
    """A process under the library.

    Attributes:
        words: what it says to hold, per GPU in the order of its container's lines; None where its slot is not known.
        contexts: the GPUs on which it said to have made a context.
        slots: the numbers of the slots in which its words stand.
        changed_ns: CLOCK_MONOTONIC just before its words last changed, by its own account; 0 for never.
    """

    words: tuple[int, ...] | None
    contexts: frozenset[GpuUuid]
    slots: tuple[int, ...] = ()
    changed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Audited:
    """A registered container with its processes."""

    key: ContainerKey
    lines: ContainerLines
    hooked: Mapping[ProcessKey, Hooked]

    @property
    def line_bytes(self) -> dict[GpuUuid, int]:
        """Its lines."""
        return {line.gpu: line.line_bytes for line in self.lines.lines}


@dataclass(frozen=True, slots=True)
class Standing:
    """How a process counts somewhere. While it changes, nobody knows which words belong to what NVML shows.

    Attributes:
        slots: where its words stand; None for a process that has none, as it never said hello.
    """

    place: Place
    slots: tuple[int, ...] | None
    has_context: bool


@dataclass(frozen=True, slots=True)
class Held:
    """A measured process with whose it is.

    Attributes:
        process: as NVML shows it.
        owner: whose it is; None for a process of nobody here.
        container: the owner as it is registered; None where only the pod is known.
        hooked: what the broker knows of it; None if it never said hello.
    """

    process: MeasuredProcess
    owner: ContainerKey | None = None
    container: Audited | None = None
    hooked: Hooked | None = None

    @property
    def key(self) -> ProcessKey:
        """Which process."""
        return ProcessKey(self.process.pid, self.process.start_ticks)

    @property
    def seen(self) -> Seen:
        """Which process on which GPU."""
        return self.key, self.process.gpu

    @property
    def place(self) -> Place | None:
        """Where it counts; None where that is known of no container with a line there."""
        if self.container is None or self.process.gpu not in self.container.line_bytes:
            return None
        return self.container.key, self.process.gpu

    @property
    def standing(self) -> Standing | None:
        """How it counts; None where it counts nowhere."""
        if self.place is None:
            return None
        if self.hooked is None:
            return Standing(self.place, None, has_context=False)
        return Standing(self.place, self.hooked.slots, self.process.gpu in self.hooked.contexts)

    @property
    def changed_ns(self) -> int:
        """CLOCK_MONOTONIC just before its words last changed; 0 for never, and where it has none."""
        return 0 if self.hooked is None else self.hooked.changed_ns

    @property
    def line_bytes(self) -> int:
        """The line that it should keep; 0 where it has none."""
        return 0 if self.container is None else self.container.line_bytes.get(self.process.gpu, 0)

    @property
    def sample(self) -> Sample | None:
        """Its NVML figure beside its word; None where it should have a word and that is not known."""
        used_bytes, gpu = self.process.used_bytes, self.process.gpu
        if self.hooked is None or self.container is None:
            return Sample(used_bytes, 0)
        if self.hooked.words is None:
            return None
        words = dict(zip(self.container.line_bytes, self.hooked.words, strict=False))
        return Sample(used_bytes, words.get(gpu, 0), gpu in self.hooked.contexts)


def attributed(processes: Iterable[MeasuredProcess], containers: Sequence[Audited]) -> tuple[Held, ...]:
    """Every measured process with its owner."""
    hooked = {key: (container, each) for container in containers for key, each in container.hooked.items()}
    pods: dict[PodUid, list[Audited]] = {}
    for container in containers:
        pods.setdefault(container.key.pod, []).append(container)
    return tuple(_held(process, hooked, pods) for process in processes)


def _held(
    process: MeasuredProcess,
    hooked: Mapping[ProcessKey, tuple[Audited, Hooked]],
    pods: Mapping[PodUid, Sequence[Audited]],
) -> Held:
    known = hooked.get(ProcessKey(process.pid, process.start_ticks))
    if known is not None:
        return Held(process, known[0].key, *known)
    siblings = pods.get(process.pod, ()) if process.pod is not None else ()
    mine = [each for each in siblings if process.container in (None, each.key.container)]
    if len(mine) == 1:
        return Held(process, mine[0].key, mine[0])
    owner = ContainerKey(siblings[0].key.pod, UNKNOWN_CONTAINER) if siblings else None
    return Held(process, owner)
