"""How much of a tick each process's work really had of its GPU.

The hardware gives each process with work a slice in turn. The first slice of a burst is surely the process's own; of
the rest, it had its part among those that were sliced at the same time. The words say how long each was sliced in the
tick, and not when: the mean takes the others as independent. It is that of 1 ÷ (1 + others), and as 1 ÷ (1 + n) is
the integral of zⁿ over 0 … 1, it is the integral of ∏(1 - u + u·z), by Gauss' rule with four points.

While a process is sliced, it has nothing of the others' first slices. Among several these are taken as independent
too. One of two, though, launches burst after burst while the other is held, and can do so only when the GPU is its
own: its first slices lie outside the other's time as far as there is room for them. Taken as independent, they
would make every greedy process beside one that synchronises run 0.4 points more than it is charged.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

from hook.broker.core.shares.work import Meter

POINTS: Final = (
    (0.06943184, 0.17392742),
    (0.33000948, 0.32607258),
    (0.66999052, 0.32607258),
    (0.93056816, 0.17392742),
)
"""Gauss' points and weights over 0 … 1: exact for up to seven others."""


def charge(meters: Sequence[Meter], span_ns: int, room_ns: float) -> list[float]:
    """How long each of these processes ran on one GPU in a tick of `span_ns`: at most `room_ns` in all, in ns."""
    all_sure = sum([meter.sure for meter in meters])
    means = _means([_sliced(meter) for meter in meters if meter.sliced])
    are_two = sum([meter.sure > 0 or meter.sliced > 0 for meter in meters]) == 2
    parts = []
    for meter in meters:
        part = meter.sure / all_sure if all_sure > 1 else meter.sure
        if meter.sliced:
            others_sure = all_sure - meter.sure
            left = _left_by_other(meter, others_sure) if are_two else max(1 - others_sure, 0.0)
            part += meter.sliced * max(means[_sliced(meter)] * left, 0.5 if are_two else 0.0)
        parts.append(part)
    total_ns = sum(parts) * span_ns
    scale_ns = span_ns if total_ns <= room_ns else span_ns * room_ns / total_ns
    return [part * scale_ns for part in parts]


def _sliced(meter: Meter) -> float:
    return meter.sliced / (1 - meter.sure) if meter.sure < 1 else 1.0


def _left_by_other(meter: Meter, other_sure: float) -> float:
    within = max(other_sure - max(1 - meter.sliced - meter.sure, 0.0), 0.0)
    return 1 - within / meter.sliced


def _means(sliced: Sequence[float]) -> dict[float, float]:
    """By the part in which a process was sliced: the mean of 1 ÷ (1 + others sliced at the same time)."""
    means = dict.fromkeys(sliced, 0.0)
    for z, weight in POINTS:
        chance = prod([1 - part + part * z for part in sliced])
        for part in means:
            means[part] += weight * chance / (1 - part + part * z)
    return means
