"""Attributes each measured process to a container, and joins NVML's figure with the process's own words.

A process that sent a hello belongs to the container of the socket. For any other process, its cgroup names the pod.
So its container is known only where the pod has a single container.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hook.broker.core.ids import ContainerKey
from plimsoll.broker.wire import ContainerLines, MeasuredProcess
from plimsoll.ids import ContainerName, GpuUuid, PodUid, ProcessKey

UNKNOWN_CONTAINER: Final = ContainerName("")
"""The container of a process that never sent a hello, in a pod of several: its cgroup names only the pod."""

ContainerOnGpu = tuple[ContainerKey, GpuUuid]
"""A container on a GPU."""

ProcessOnGpu = tuple[ProcessKey, GpuUuid]
"""A process on a GPU."""


@dataclass(frozen=True, slots=True)
class Hooked:
    """A process under the library.

    Attributes:
        words: bytes in its words, per GPU in the order of its container's lines; None where its slot is not known.
        contexts: the GPUs on which it reported a context.
        slots: the numbers of the slots that hold its words.
        changed_ns: the machine's clock just before its words last changed, as it wrote itself; 0 for never.
        awaiting: the GPUs on which it holds still until it was measured, because nothing was charged for a context.
        in_vain: the GPUs on which it has gone on without that measurement.
    """

    words: tuple[int, ...] | None
    contexts: frozenset[GpuUuid]
    slots: tuple[int, ...] = ()
    changed_ns: int = 0
    awaiting: frozenset[GpuUuid] = frozenset()
    in_vain: frozenset[GpuUuid] = frozenset()


@dataclass(frozen=True)  # without slots, for the cached properties
class Audited:
    """A registered container with its processes."""

    key: ContainerKey
    lines: ContainerLines
    hooked: Mapping[ProcessKey, Hooked]

    @cached_property
    def line_bytes(self) -> dict[GpuUuid, int]:
        """The container's line per GPU, in bytes."""
        return {line.gpu: line.line_bytes for line in self.lines.lines}


@dataclass(frozen=True, slots=True)
class Attribution:
    """The container and GPU of a process at a measurement, and the slots that hold its words.

    After a change of these, the words may not belong to NVML's figure, so the measurement does not count.

    Attributes:
        slots: the slots that hold its words; None for a process without words, which never sent a hello.
    """

    place: ContainerOnGpu
    slots: tuple[int, ...] | None
    has_context: bool


@dataclass(frozen=True, slots=True)
class MeasuredUse:
    """A process on a GPU at a measurement that counts.

    Attributes:
        used_bytes: NVML's figure.
        word_bytes: the process's own word.
        has_context: the process had reported its context, so that the figure holds the whole context.
        is_awaited: the process held still for this measurement, so that its context was not just ending.
    """

    used_bytes: int
    word_bytes: int
    has_context: bool = False
    is_awaited: bool = False

    @property
    def past_bytes(self) -> int:
        """NVML's figure less the word; below 0 where the driver has not given reserved memory yet."""
        return self.used_bytes - self.word_bytes


@dataclass(frozen=True)  # without slots, for the cached properties
class AttributedProcess:
    """A measured process with its container.

    Attributes:
        process: NVML's figures.
        owner: its container; None for a process of no registered container.
        container: the registration of the owner; None where only the pod is known.
        hooked: the broker's knowledge of the process; None if it never sent a hello.
    """

    process: MeasuredProcess
    owner: ContainerKey | None = None
    container: Audited | None = None
    hooked: Hooked | None = None

    @cached_property
    def key(self) -> ProcessKey:
        """The process."""
        return ProcessKey(self.process.pid, self.process.start_ticks)

    @cached_property
    def seen(self) -> ProcessOnGpu:
        """The process and the GPU."""
        return self.key, self.process.gpu

    @cached_property
    def place(self) -> ContainerOnGpu | None:
        """The container and GPU; None where no container with a line on this GPU is known."""
        if self.container is None or self.process.gpu not in self.container.line_bytes:
            return None
        return self.container.key, self.process.gpu

    @cached_property
    def attribution(self) -> Attribution | None:
        """See `Attribution`; None where the place is None."""
        if self.place is None:
            return None
        if self.hooked is None:
            return Attribution(self.place, None, has_context=False)
        return Attribution(self.place, self.hooked.slots, self.process.gpu in self.hooked.contexts)

    @cached_property
    def changed_ns(self) -> int:
        """The machine's clock just before its words last changed; 0 for never, and for a process without words."""
        return 0 if self.hooked is None else self.hooked.changed_ns

    @cached_property
    def line_bytes(self) -> int:
        """The line of the process's container on this GPU in bytes; 0 where there is none."""
        return 0 if self.container is None else self.container.line_bytes.get(self.process.gpu, 0)

    @cached_property
    def sample(self) -> MeasuredUse | None:
        """NVML's figure beside the process's word; None where the process has a word that is not known."""
        used_bytes, gpu = self.process.used_bytes, self.process.gpu
        if self.hooked is None or self.container is None:
            return MeasuredUse(used_bytes, 0)
        if self.hooked.words is None:
            return None
        words = dict(zip(self.container.line_bytes, self.hooked.words, strict=False))
        has_context, is_awaited = gpu in self.hooked.contexts, gpu in self.hooked.awaiting
        return MeasuredUse(used_bytes, words.get(gpu, 0), has_context, is_awaited)


def attributed(
    processes: Iterable[MeasuredProcess], containers: Sequence[Audited]
) -> tuple[AttributedProcess, ...]:
    """Every measured process with its container."""
    hooked = {key: (container, each) for container in containers for key, each in container.hooked.items()}
    pods: dict[PodUid, list[Audited]] = {}
    for container in containers:
        pods.setdefault(container.key.pod, []).append(container)
    return tuple(_held(process, hooked, pods) for process in processes)


def _held(
    process: MeasuredProcess,
    hooked: Mapping[ProcessKey, tuple[Audited, Hooked]],
    pods: Mapping[PodUid, Sequence[Audited]],
) -> AttributedProcess:
    known = hooked.get(ProcessKey(process.pid, process.start_ticks))
    if known is not None:
        return AttributedProcess(process, known[0].key, *known)
    siblings = pods.get(process.pod, ()) if process.pod is not None else ()
    mine = [each for each in siblings if process.container in (None, each.key.container)]
    if len(mine) == 1:
        return AttributedProcess(process, mine[0].key, mine[0])
    owner = ContainerKey(siblings[0].key.pod, UNKNOWN_CONTAINER) if siblings else None
    return AttributedProcess(process, owner)
