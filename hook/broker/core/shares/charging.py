"""The part of a tick in which the GPU executed each process's work.

The hardware gives each process with work a slice in turn. The first slice of a burst surely belongs to the process.
In the rest of the burst, the process shares the GPU with all processes that are sliced at the same time. The words
show for how long each process was sliced in the tick, but not when. So the charge is a mean that takes the others as
independent: the mean of 1 ÷ (1 + others). As 1 ÷ (1 + n) is the integral of zⁿ over 0 … 1, that mean is the integral
of ∏(1 - u + u·z), computed by Gauss' rule with four points.

While a process is sliced, it gets nothing of the others' first slices. Among three or more processes these count as
independent too. Among two they do not: a process launches burst after burst while the other is held, and can do so
only while the GPU is its own. So its first slices are placed outside the other's time, as far as there is room. If
they counted as independent, every greedy process beside a synchronising one would run 0.4 points more than its
charge.
"""

from collections.abc import Sequence
from math import prod
from typing import Final

from hook.broker.core.shares.meters import Meter

POINTS: Final = (
    (0.06943184, 0.17392742),
    (0.33000948, 0.32607258),
    (0.66999052, 0.32607258),
    (0.93056816, 0.17392742),
)
"""Gauss' points and weights over 0 … 1: exact for up to seven other processes."""


def charge(meters: Sequence[Meter], span_ns: int, uncharged_ns: float) -> list[float]:
    """The charge of each process on a GPU for a tick of `span_ns`, in ns: at most `uncharged_ns` together."""
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
    scale_ns = span_ns if total_ns <= uncharged_ns else span_ns * uncharged_ns / total_ns
    return [part * scale_ns for part in parts]


def _sliced(meter: Meter) -> float:
    return meter.sliced / (1 - meter.sure) if meter.sure < 1 else 1.0


def _left_by_other(meter: Meter, other_sure: float) -> float:
    within = max(other_sure - max(1 - meter.sliced - meter.sure, 0.0), 0.0)
    return 1 - within / meter.sliced


def _means(sliced: Sequence[float]) -> dict[float, float]:
    """The mean of 1 ÷ (1 + others sliced at the same time), by the part of the tick in which a process was sliced."""
    means = dict.fromkeys(sliced, 0.0)
    for z, weight in POINTS:
        chance = prod([1 - part + part * z for part in sliced])
        for part in means:
            means[part] += weight * chance / (1 - part + part * z)
    return means
