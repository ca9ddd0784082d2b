"""How much of a tick each process's work really had of its GPU.

The hardware gives each process with work a slice in turn. The first slice of a burst is surely the process's own; of
the rest, it had its part among those that were sliced at the same time. The words say how long each was sliced in the
tick, and not when: the mean takes the others as independent. It is that of 1 ÷ (1 + others), and as 1 ÷ (1 + n) is
the integral of zⁿ over 0 … 1, it is the integral of ∏(1 - u + u·z), by Gauss' rule with four points. Others' first
slices are taken as independent too, unless that leaves one of two less than the half that it has in any case.
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
    means = _means([meter.sliced for meter in meters if meter.sliced])
    least = _least(meters)
    parts = []
    for meter in meters:
        part = meter.sure / all_sure if all_sure > 1 else meter.sure
        if meter.sliced:
            part += meter.sliced * max(means[meter.sliced] * (1 - all_sure + meter.sure), least)
        parts.append(part)
    total_ns = sum(parts) * span_ns
    scale_ns = span_ns if total_ns <= room_ns else span_ns * room_ns / total_ns
    return [part * scale_ns for part in parts]


def _least(meters: Sequence[Meter]) -> float:
    """The least part that a process has while it is sliced: a half where two had work in the tick."""
    return 0.5 if sum([meter.sure > 0 or meter.sliced > 0 for meter in meters]) == 2 else 0.0


def _means(sliced: Sequence[float]) -> dict[float, float]:
    """By the part in which a process was sliced: the mean of 1 ÷ (1 + others sliced at the same time)."""
    means = dict.fromkeys(sliced, 0.0)
    for z, weight in POINTS:
        chance = prod([1 - part + part * z for part in sliced])
        for part in means:
            means[part] += weight * chance / (1 - part + part * z)
    return means
