"""How long a turn is: long enough that handing over costs little, as measured, and no longer."""

from typing import Final

from hook.broker.core.shares.settings import MS, ShareSettings

LOSS: Final = 0.01
"""Of a GPU's time, for handing it over once per quota."""

WEIGHT: Final = 1 / 8
"""Of a new gap in the average: a few stray ones move the quota little."""

GAP_MOST_NS: Final = 10 * MS
"""A longer gap was not the hand-over's: the next program was not ready."""


class Quota:
    """One GPU's."""

    def __init__(self, settings: ShareSettings) -> None:
        self._least_ns = settings.quota_least_ms * MS
        self._most_ns = settings.quota_most_ms * MS
        self.quota_ns = self._clamp(settings.quota_ms * MS)
        self._gap_ns = self.quota_ns * LOSS

    def measured(self, gap_ns: int) -> None:
        """So long the GPU had nothing to do between the work of one container and of the next."""
        if 0 <= gap_ns <= GAP_MOST_NS:
            self._gap_ns += (gap_ns - self._gap_ns) * WEIGHT
            self.quota_ns = self._clamp(self._gap_ns / LOSS)

    def _clamp(self, quota_ns: float) -> float:
        return min(max(quota_ns, self._least_ns), self._most_ns)
