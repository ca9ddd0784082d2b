"""What NVML's process utilisation says of the charges: whether slices are equal, and whether words are true.

The charge takes slices to be equally long. Where they are not, a process runs more or less than its words come to, by
a factor that changes slowly. NVML's figure is a whole number, exact to a point: inside of that nothing is corrected.
"""

from typing import Final

from hook.broker.core.shares.settings import MS
from hook.broker.core.shares.work import Meter

GAIN: Final = 0.5
"""Of the distance to what a span showed, taken at once: spans of NVML and of the words differ by some percent."""

LEAST: Final = 0.5
MOST: Final = 2.0
"""Slices differ by no more than this from the mean; what seems to is a span that does not fit."""

EXACT_PCT: Final = 1.0
"""How far a whole number may be from the truth."""

LITTLE_NS: Final = 20 * MS
"""Less work than this in a span says nothing."""

WHOLE: Final = 0.9
"""A span says something only of processes that were metered for this part of it."""

LIE_PCT: Final = 10.0
LIE_SPANS: Final = 2
"""Nobody is suspected for fewer points, or for one span that does not fit."""


def correct(meter: Meter, used_pct: float, span_ns: int) -> None:
    """Move the factor of a process towards what NVML showed."""
    if meter.ran_ns > LITTLE_NS:
        ran_pct = 100 * meter.ran_ns / span_ns
        seen = used_pct / ran_pct if abs(used_pct - ran_pct) > EXACT_PCT else 1.0
        meter.factor += GAIN * (min(max(seen, LEAST), MOST) - meter.factor)


def is_violation(meter: Meter, used_pct: float, told_pct: float) -> bool:
    """Whether a process has now been seen, twice in a row, to use more than its words can mean."""
    meter.violations = meter.violations + 1 if used_pct > told_pct + LIE_PCT else 0
    return meter.violations == LIE_SPANS
