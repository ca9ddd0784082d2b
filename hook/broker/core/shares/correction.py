"""Compares the charges with NVML's process utilisation: whether slices are equal, and whether words are true.

The charge assumes slices of equal length. Where slices differ, a process runs more or less than its charge, by a
factor that changes slowly. A single span proves little. NVML gives whole percent, and its span ends up to a sample's
length before ours, so a program that has just begun seems to use less than it ran. Sums over many spans differ only
by that much at their ends. So only a difference beyond that is corrected.
"""

from dataclasses import dataclass
from typing import Final

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


@dataclass(eq=False, slots=True)
class Correction:
    """The figures of NVML and of the counts for one process on a GPU.

    Attributes:
        factor: its real compute time ÷ the charge by its words.
        ran_ns: uncorrected charge since NVML was last asked.
        claimed_ns: the most compute time that its words can mean, since NVML was last asked.
        seen_ns: decayed sum of NVML's figures.
        charged_ns: decayed sum of the charges in the same time.
        compared_ns: decayed sum of that time.
        skipped_ns: when its words last did not count.
        violations: spans in a row in which NVML showed more than its words can mean.
    """

    factor: float = 1.0
    ran_ns: float = 0.0
    claimed_ns: float = 0.0
    seen_ns: float = 0.0
    charged_ns: float = 0.0
    compared_ns: float = 0.0
    skipped_ns: int = 0
    violations: int = 0

    def correct(self, used_pct: float, span_ns: int) -> None:
        """Set the factor by NVML's figure for this span and those before it."""
        self.seen_ns = KEPT * self.seen_ns + used_pct / 100 * span_ns
        self.charged_ns = KEPT * self.charged_ns + self.ran_ns
        self.compared_ns = KEPT * self.compared_ns + span_ns
        is_exact = abs(self.seen_ns - self.charged_ns) <= EXACT * self.compared_ns + SAMPLE_NS
        self.factor = 1.0 if is_exact else min(max(self.seen_ns / max(self.charged_ns, 1.0), LEAST), MOST)

    def is_violation(self, used_pct: float, claimed_pct: float) -> bool:
        """Whether the process has now used more than its words can mean in `LIE_SPANS` spans in a row."""
        self.violations = self.violations + 1 if used_pct > claimed_pct + LIE_PCT else 0
        return self.violations == LIE_SPANS
