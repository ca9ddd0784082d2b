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
* Before the first period is whole, the average is that of the time so far; before any sample it is 100, as no work
  was seen. The driver keeps a buffer of past samples, so in practice the first reading covers some seconds.
* Samples are the driver's utilisation percentages, each the mean since the sample before it. A sample that spans two
  periods is split where they meet, so idle time is conserved.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from plimsoll.ids import GpuUuid

PERIODS_OF_MEMORY: Final = 64
"""After this many equal periods the older average weighs 3⁻⁶⁴: more of them change no digit."""


class IdleMeter:
    """The idle average of one GPU. Times are the driver's time stamps, in microseconds since the epoch."""

    def __init__(self, period_s: float) -> None:
        assert period_s > 0
        self._period_us = round(period_s * 1_000_000)
        self._average_pct: float | None = None
        self._last_us: int | None = None
        self._measured_us = 0
        self._idle_us = 0.0
        self._busy_us = 0.0

    @property
    def busy_s(self) -> float:
        """Seconds of work in all samples so far; never falls."""
        return self._busy_us / 1_000_000

    @property
    def last_us(self) -> int:
        """Time stamp of the newest sample; 0 before the first. Ask the driver for later samples only."""
        return self._last_us or 0

    @property
    def idle_pct(self) -> float:
        """The average as of the last whole period, 0–100; see the module for the time before that."""
        if self._average_pct is not None:
            return self._average_pct
        return 100 * self._idle_us / self._measured_us if self._measured_us else 100.0

    def add(self, at_us: int, busy_pct: float) -> None:
        """Take in a sample.

        The first sample only marks when measuring began. A sample that is not newer than the last was taken in before
        and is ignored. If it is older by more than a period, the clock was set back, and measuring begins anew.

        Args:
            at_us: when the span that the sample describes ended.
            busy_pct: mean utilisation since the last sample; clamped to 0–100.
        """
        last_us, idle_ratio = self._last_us, 1 - min(max(busy_pct, 0.0), 100.0) / 100
        if last_us is not None and last_us - self._period_us <= at_us <= last_us:
            return
        self._last_us = at_us
        if last_us is not None and at_us > last_us:
            self._measure(at_us - last_us, idle_ratio)

    def _measure(self, span_us: int, idle_ratio: float) -> None:
        self._busy_us += span_us * (1 - idle_ratio)
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
    # Rounding may leave an average of 100s a hair above 100, and every reader of the event would refuse that.
    return min(max(value, 0.0), 100.0)


class IdleMeters:
    """The idle averages of a node's GPUs, each begun at the GPU's first samples."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._meters: dict[GpuUuid, IdleMeter] = {}

    @property
    def last_us(self) -> dict[GpuUuid, int]:
        """Per GPU, the time stamp of its newest sample, in microseconds since the epoch."""
        return {uuid: meter.last_us for uuid, meter in self._meters.items()}

    @property
    def idle_pct(self) -> dict[GpuUuid, float]:
        """Per GPU, its idle average, 0-100."""
        return {uuid: meter.idle_pct for uuid, meter in self._meters.items()}

    @property
    def busy_pct(self) -> dict[GpuUuid, float]:
        """Per GPU that the driver has measured, the rest of its idle average, 0-100."""
        return {uuid: 100 - meter.idle_pct for uuid, meter in self._meters.items() if meter.last_us}

    @property
    def busy_s(self) -> dict[GpuUuid, float]:
        """Per GPU, the seconds of work in all samples so far."""
        return {uuid: meter.busy_s for uuid, meter in self._meters.items()}

    def add(self, utilisation: Mapping[GpuUuid, Iterable[tuple[int, float]]]) -> None:
        """Take in samples: per GPU, (microseconds since the epoch, busy percent), oldest first."""
        for uuid, samples in utilisation.items():
            meter = self._meters.setdefault(uuid, IdleMeter(self._period_s))
            for at_us, busy_pct in samples:
                meter.add(at_us, busy_pct)
