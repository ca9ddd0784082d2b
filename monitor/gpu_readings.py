"""The GPUs as the driver described them last, and the time of the next reading of their utilisation."""

from collections.abc import Mapping
from typing import Final

from monitor.core.idle import IdleMeters
from monitor.sampler import NodeSample
from plimsoll.gpu_health import DriverView
from plimsoll.ids import GpuUuid
from plimsoll.nvml.readings import GpuReading, HealthReading, XidSeen

UTILISATION_S: Final = 5.0
"""Seconds between two readings of the GPUs' utilisation. The driver keeps samples for longer than that."""


class GpuReadings:
    """The last answers of the driver.

    Attributes:
        gpus: the GPUs as last read; empty while no driver answers.
        is_away: the last reading found no driver.
        meters: the idle time of each GPU.
        memory_meters: the time in which the memory of each GPU is neither read nor written.
    """

    def __init__(self, idle_period_s: float, slow_s: float) -> None:
        """Have no answer yet.

        Args:
            idle_period_s: the period of the idle average, in seconds.
            slow_s: the pause of the monitor's slow pace, in seconds.
        """
        self.gpus: tuple[GpuReading, ...] = ()
        self.is_away = False
        self.meters = IdleMeters(idle_period_s)
        self.memory_meters = IdleMeters(idle_period_s)
        self._figures: Mapping[GpuUuid, HealthReading] = {}
        self._pause_s = max(slow_s, min(UTILISATION_S, idle_period_s))
        self._utilisation_due_s = 0.0

    @property
    def ecc_errors(self) -> Mapping[GpuUuid, int]:
        """Per GPU, its uncorrected ECC errors since it was last reset, as last read."""
        return {gpu: figures.uncorrected_ecc for gpu, figures in self._figures.items()}

    def is_utilisation_due(self, now_s: float) -> bool:
        """Whether the next sample should read the utilisation too."""
        return now_s >= self._utilisation_due_s

    def utilisation_read(self, now_s: float) -> None:
        """Note that the utilisation was asked for, whether or not the answer came."""
        self._utilisation_due_s = now_s + self._pause_s

    def take(self, sample: NodeSample) -> None:
        """Take the driver's answer."""
        self.gpus, self.is_away = sample.readings, False
        self.meters.add(sample.utilisation)
        self.memory_meters.add(sample.memory_traffic)
        self._figures = sample.figures or self._figures

    def lose(self) -> None:
        """Note that no driver answers."""
        self.gpus, self.is_away = (), True


def driver_view(
    sample: NodeSample | None, xids: tuple[XidSeen, ...], now_s: float, time_text: str
) -> DriverView:
    """The driver's view of the GPUs in a round. Without a sample it has no XID errors: they wait for the next one."""
    if sample is None:
        return DriverView(now_s, time_text)
    return DriverView(
        now_s=now_s,
        time=time_text,
        present=sample.readings,
        failing=sample.failing,
        figures=sample.figures,
        xids=xids,
        session=sample.session,
        divided=sample.divided,
    )
