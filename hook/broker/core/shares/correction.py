"""Compares the charges with NVML's process utilisation: whether slices are equal, and whether words are true.

The charge assumes slices of equal length. Where slices differ, a process runs more or less than its charge, by a
factor that changes slowly. A single span proves little. NVML gives whole percent, and its span ends up to a sample's
length before ours, so a program that has just begun seems to use less than it ran. Sums over many spans differ only
by that much at their ends. So only a difference beyond that is corrected.
"""

from typing import Final

from hook.broker.core.shares.meters import Meter
from hook.broker.core.shares.settings import MS

KEPT: Final = 0.9
"""The part of the sums that each span keeps: with spans of a second, the sums cover about ten of them."""

LEAST: Final = 0.5
MOST: Final = 2.0
"""The bounds of the factor. Real slices differ less from the mean; a larger difference comes from a bad span."""

EXACT: Final = 0.01
"""The error of a figure in whole percent, as a part of 1."""

SAMPLE_NS: Final = 200 * MS
"""The largest difference between the ends of NVML's spans and ours: NVML's samples last a sixth of a second."""

WHOLE: Final = 0.9
"""A span counts only for processes that were metered for this part of it."""

LIE_PCT: Final = 10.0
LIE_SPANS: Final = 2
"""The points, and the spans in a row, from which a process is announced. A single bad span is no reason."""


def correct(meter: Meter, used_pct: float, span_ns: int) -> None:
    """Set the factor of a process by NVML's figure for this span and those before it."""
    meter.seen_ns = KEPT * meter.seen_ns + used_pct / 100 * span_ns
    meter.charged_ns = KEPT * meter.charged_ns + meter.ran_ns
    meter.compared_ns = KEPT * meter.compared_ns + span_ns
    is_exact = abs(meter.seen_ns - meter.charged_ns) <= EXACT * meter.compared_ns + SAMPLE_NS
    meter.factor = 1.0 if is_exact else min(max(meter.seen_ns / max(meter.charged_ns, 1.0), LEAST), MOST)


def is_violation(meter: Meter, used_pct: float, told_pct: float) -> bool:
    """Whether a process has now used more than its words can mean in `LIE_SPANS` spans in a row."""
    meter.violations = meter.violations + 1 if used_pct > told_pct + LIE_PCT else 0
    return meter.violations == LIE_SPANS
