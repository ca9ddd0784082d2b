"""What NVML's process utilisation says of the charges: whether slices are equal, and whether words are true.

The charge takes slices to be equally long. Where they are not, a process runs more or less than its words come to, by
a factor that changes slowly. One span says little of it: NVML tells whole percent, and its span ends up to a sample's
length before ours, so that a program which has just begun seems to use less than it ran. Sums over many spans differ
by no more than that at their ends: what exceeds it is corrected, and nothing else.
"""

from typing import Final

from hook.broker.core.shares.settings import MS
from hook.broker.core.shares.work import Meter

KEPT: Final = 0.9
"""Each span leaves so much of the sums: with spans of a second they tell of about ten."""

LEAST: Final = 0.5
MOST: Final = 2.0
"""Slices differ by no more than this from the mean; what seems to is a span that does not fit."""

EXACT: Final = 0.01
"""How far a whole number of percent may be from the truth."""

SAMPLE_NS: Final = 200 * MS
"""NVML's samples are of a sixth of a second: for so long the ends of its spans and ours differ at most."""

WHOLE: Final = 0.9
"""A span says something only of processes that were metered for this part of it."""

LIE_PCT: Final = 10.0
LIE_SPANS: Final = 2
"""Nobody is suspected for fewer points, or for one span that does not fit."""


def correct(meter: Meter, used_pct: float, span_ns: int) -> None:
    """Set the factor of a process by what NVML showed of this span and those before it."""
    meter.seen_ns = KEPT * meter.seen_ns + used_pct / 100 * span_ns
    meter.charged_ns = KEPT * meter.charged_ns + meter.ran_ns
    meter.compared_ns = KEPT * meter.compared_ns + span_ns
    is_exact = abs(meter.seen_ns - meter.charged_ns) <= EXACT * meter.compared_ns + SAMPLE_NS
    meter.factor = 1.0 if is_exact else min(max(meter.seen_ns / max(meter.charged_ns, 1.0), LEAST), MOST)


def is_violation(meter: Meter, used_pct: float, told_pct: float) -> bool:
    """Whether a process has now been seen, twice in a row, to use more than its words can mean."""
    meter.violations = meter.violations + 1 if used_pct > told_pct + LIE_PCT else 0
    return meter.violations == LIE_SPANS
