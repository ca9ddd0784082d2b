"""Pressure: the free memory of a GPU is short, or no longer short.

    free < begin % of usable    → short       (event)
    free ≥ end % of usable      → not short   (event)

Between the two marks nothing changes, so memory that moves around one mark makes one event. Free memory is usable
less used, both by NVML. Promises are no part of it: the placer knows them, and refuses what does not fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plimsoll.events import Gpu
from plimsoll.ids import GpuUuid


@dataclass(frozen=True, slots=True)
class PressureRules:
    """The two marks, in percent of a GPU's usable memory: memory that moves around one does not reach the other."""

    begin_pct: float = 5.0
    end_pct: float = 10.0


@dataclass(frozen=True, slots=True)
class PressureChange:
    """A GPU whose pressure changed.

    Attributes:
        short: whether its free memory is short now.
        since: when it became so.
        limit_bytes: the mark that was passed.
    """

    gpu: Gpu
    short: bool
    since: str
    limit_bytes: int


Short = Mapping[GpuUuid, str]
"""The GPUs whose free memory is short, and since when."""


def update(
    short: Short, gpus: Iterable[Gpu], time: str, rules: PressureRules
) -> tuple[Short, tuple[PressureChange, ...]]:
    """Compare the GPUs with the marks; returns the GPUs that are short now, and the changes.

    A GPU that is not listed keeps its state: it cannot be read now.
    """
    after, changes = dict(short), list[PressureChange]()
    for gpu in gpus:
        was_short = gpu.uuid in short
        limit_bytes = int(gpu.usable_bytes * (rules.end_pct if was_short else rules.begin_pct) / 100)
        if (gpu.usable_bytes - gpu.used_bytes < limit_bytes) == was_short:
            continue
        if was_short:
            del after[gpu.uuid]
        else:
            after[gpu.uuid] = time
        changes.append(PressureChange(gpu, not was_short, time, limit_bytes))
    return after, tuple(changes)
