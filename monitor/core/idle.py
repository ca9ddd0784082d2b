"""How idle a GPU has been: the decayed average of Kang et al. 2024, §II.B.

"The idle time of the GPU is measured for 1 minute …, the weight of the previous information is calculated as
half of the latest information":

    average' = (latest + average / 2) / 1.5

`latest` is the idle time of the last whole period in percent of that period, so the average is a percentage
too, 0 (never idle) to 100 (never busy). The last three periods weigh 2/3, 2/9 and 2/27.

Where the paper is silent, or we deviate:

* The period is a setting; a minute is the default.
* The first whole period has no predecessor and is taken as the average. (Starting from a guess of 0 or 100
  instead would be visible for three periods.)
* Before the first period is whole, the idle time so far is given; before any sample, 100: nobody has
  been seen to work. The driver keeps a buffer of past samples, so in practice the first reading has seconds of it.
* Samples are the driver's utilisation percentages, each the mean since the one before it. One that spans two
  periods is split where they meet, so idle time is conserved.
"""

from typing import Final

PERIODS_OF_MEMORY: Final = 64
"""A value repeated this often has displaced the average by all but 3⁻⁶⁴: more repeats change no digit."""


class IdleMeter:
    """The idle average of one GPU. Times are the driver's time stamps, in microseconds since the epoch."""

    def __init__(self, period_s: float) -> None:
        assert period_s > 0
        self._period_us = round(period_s * 1_000_000)
        self._average_pct: float | None = None
        self._last_us: int | None = None
        self._measured_us = 0
        self._idle_us = 0.0

    @property
    def last_us(self) -> int:
        """Time stamp of the newest sample; 0 before the first. Ask the driver for what came after it."""
        return self._last_us or 0

    @property
    def idle_pct(self) -> float:
        """The average as of the last whole period, 0–100; see the module for the time before that."""
        if self._average_pct is not None:
            return self._average_pct
        return 100 * self._idle_us / self._measured_us if self._measured_us else 100.0

    def add(self, at_us: int, busy_pct: float) -> None:
        """Take in a sample.

        The first one only says since when time is measured. One that is not newer than the last is known already
        and is ignored, unless it is older by more than a period: then the clock was set back, and counts anew.

        Args:
            at_us: when the stretch that it describes ended.
            busy_pct: mean utilisation since the last sample; clamped to 0–100.
        """
        last_us, idle_ratio = self._last_us, 1 - min(max(busy_pct, 0.0), 100.0) / 100
        if last_us is not None and last_us - self._period_us <= at_us <= last_us:
            return
        self._last_us = at_us
        if last_us is not None and at_us > last_us:
            self._measure(at_us - last_us, idle_ratio)

    def _measure(self, span_us: int, idle_ratio: float) -> None:
        span_us = min(span_us, PERIODS_OF_MEMORY * self._period_us)
        while span_us > 0:
            part_us = min(span_us, self._period_us - self._measured_us)
            self._measured_us += part_us
            self._idle_us += part_us * idle_ratio
            span_us -= part_us
            if self._measured_us == self._period_us:
                self._close_period()

    def _close_period(self) -> None:
        latest_pct = 100 * self._idle_us / self._measured_us
        self._average_pct = decayed(self._average_pct, latest_pct)
        self._measured_us, self._idle_us = 0, 0.0


def decayed(average_pct: float | None, latest_pct: float) -> float:
    """The next average: `(latest + average / 2) / 1.5`, or `latest` where there is none yet."""
    value = latest_pct if average_pct is None else (latest_pct + average_pct / 2) / 1.5
    # Rounding may leave a sum of 100s a hair above 100, which every reader of the event would refuse.
    return min(max(value, 0.0), 100.0)
