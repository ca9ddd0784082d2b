"""Percentiles of measured values."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least this percentage of the values does not exceed; infinite without values."""
    if not values:
        return math.inf
    return sorted(values)[max(math.ceil(len(values) * percent / 100) - 1, 0)]
