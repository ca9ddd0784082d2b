"""The node's state as an event carries it, and when a change of that state is worth an event of its own.

What always holds: a state lists every readable GPU, in the order of their indices, with every task on it that
has not exited; used bytes never pass usable bytes. `bounded` gives the same with a bounded number of entries.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from monitor.core.lifecycle import TaskLife
from plimsoll.events import TASKS_AT_MOST, Gpu, Phase, Task
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.nvml.readings import GpuReading
from plimsoll.quantity import MIB

_IDLE_DIGITS: Final = 3


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The smallest changes that are worth a `node.state` event when no task event carries them.

    Attributes:
        heartbeat_s: the longest time without an event.
        idle_pct: change of a GPU's idle average, in points.
        memory_bytes: change of a GPU's used memory, or rise of a task's peak.
    """

    heartbeat_s: float
    idle_pct: float = 10.0
    memory_bytes: int = 256 * MIB


def gpus(
    readings: Iterable[GpuReading],
    idle_pct: Mapping[GpuUuid, float],
    lives: Iterable[TaskLife],
    overcommit_ratio: float = 1.0,
    memory_busy_pct: Mapping[GpuUuid, float] = MappingProxyType({}),
) -> tuple[Gpu, ...]:
    """The GPUs of a state.

    Used bytes are clamped to 0 … usable: the two are read at different moments, and some drivers count the
    reserved part as used. A GPU without usable memory is left out, as nothing can be placed on it.

    Args:
        readings: the GPUs that could be read.
        idle_pct: their idle averages; a GPU without one counts as 100.
        lives: every living task of the node; tasks on unreadable GPUs are left out.
        overcommit_ratio: bytes that may be promised per usable byte.
        memory_busy_pct: the averages of the time in which their memory was read or written, where measured.
    """
    on: dict[GpuUuid, list[Task]] = {}
    for life in sorted(lives, key=lambda life: life.key):
        on.setdefault(life.key.gpu, []).append(life.task)
    return tuple(
        Gpu(
            uuid=reading.uuid,
            index=reading.index,
            model=reading.model,
            usable_bytes=reading.usable_bytes,
            used_bytes=min(max(reading.used_bytes, 0), reading.usable_bytes),
            idle_pct=round(idle_pct.get(reading.uuid, 100.0), _IDLE_DIGITS),
            overcommit_ratio=overcommit_ratio,
            mig_parent=reading.mig_parent,
            memory_busy_pct=_rounded(memory_busy_pct.get(reading.uuid)),
            tasks=tuple(on.get(reading.uuid, ())),
        )
        for reading in sorted(readings, key=lambda reading: reading.index)
        if reading.usable_bytes > 0
    )


def bounded(gpus: tuple[Gpu, ...], most: int = TASKS_AT_MOST) -> tuple[Gpu, ...]:
    """The GPUs with at most this many entries of tasks, so that their state fits into a message.

    A node with more tasks has one entry for each container on a GPU, which keeps the sums of each pod. Of still more
    entries, those with the least memory are left out: it counts as that of processes of unknown pods.
    """
    if sum(len(gpu.tasks) for gpu in gpus) <= most:
        return gpus
    together = [(gpu, _together(gpu.tasks)) for gpu in gpus]
    largest = sorted((task for _, tasks in together for task in tasks), key=_by_size)[:most]
    kept = {(task.gpu, task.process) for task in largest}
    return tuple(
        replace(gpu, tasks=tuple(task for task in tasks if (task.gpu, task.process) in kept))
        for gpu, tasks in together
    )


def _by_size(task: Task) -> tuple[int, GpuUuid, int]:
    return (-task.used_bytes, task.gpu, task.pid)


def _together(tasks: Iterable[Task]) -> list[Task]:
    """One entry for each container; processes of no known container are one too."""
    of: dict[tuple[PodUid | None, ContainerName | None], list[Task]] = {}
    for task in tasks:
        of.setdefault((task.pod, task.container), []).append(task)
    return [_sum(each) if len(each) > 1 else each[0] for each in of.values()]


def _sum(tasks: list[Task]) -> Task:
    return replace(
        tasks[0],
        phase=min((task.phase for task in tasks), key=list(Phase).index),
        used_bytes=sum(task.used_bytes for task in tasks),
        peak_bytes=sum(task.peak_bytes for task in tasks),
        processes=len(tasks),
    )


def _rounded(pct: float | None) -> float | None:
    return None if pct is None else round(pct, _IDLE_DIGITS)


def is_state_due(
    last: tuple[Gpu, ...] | None, now: tuple[Gpu, ...], silent_s: float, thresholds: Thresholds
) -> bool:
    """Whether a state event is due.

    Args:
        last: the GPUs of the last event that carried a state; None if there was none in this epoch.
        now: the GPUs now.
        silent_s: time since that event.
        thresholds: the smallest changes that count.
    """
    if last is None or silent_s >= thresholds.heartbeat_s:
        return True
    before = {gpu.uuid: gpu for gpu in last}
    if before.keys() != {gpu.uuid for gpu in now}:
        return True
    return any(_moved(before[gpu.uuid], gpu, thresholds) for gpu in now)


def _moved(last: Gpu, now: Gpu, thresholds: Thresholds) -> bool:
    return (
        last.usable_bytes != now.usable_bytes
        or abs(last.used_bytes - now.used_bytes) >= thresholds.memory_bytes
        or abs(last.idle_pct - now.idle_pct) >= thresholds.idle_pct
        or _tasks_moved(last, now, thresholds)
    )


def _tasks_moved(last: Gpu, now: Gpu, thresholds: Thresholds) -> bool:
    """Whether a task has a higher peak than in the last event, or an owner that was unknown then."""
    before = {task.process: task for task in last.tasks}
    pairs = ((before.get(task.process, task), task) for task in now.tasks)
    return any(
        (old.pod, old.container) != (task.pod, task.container)
        or task.peak_bytes - old.peak_bytes >= thresholds.memory_bytes
        for old, task in pairs
    )
