"""The last answers of the driver: the GPUs with their utilisation and health, and the node's hardware."""

from collections.abc import Iterable, Mapping
from typing import Final

from monitor.core.idle import IdleMeters
from monitor.sampler import Hardware, NodeSample, Sampler
from plimsoll.gpu_events import NodeInfo
from plimsoll.gpu_health import DriverView
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.nvml.readings import GpuReading, HealthReading, XidSeen

EVERY_S: Final = 3600.0
"""Heartbeats fill a stream of 1 GiB in some six hours at 1000 nodes. This is one message beside 60 of theirs, and
costs little."""

_Gpus = tuple[tuple[GpuUuid, int], ...]

UTILISATION_S: Final = 5.0
"""Seconds between two readings of the GPUs' utilisation. The driver keeps samples for longer than that."""


class GpuReadings:
    """The GPUs as the driver described them last, and the time of the next reading of their utilisation.

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


class Informer:
    """Knows which `node.info` was published, and when another one is due: at the start, after a change, each hour.

    What always holds: the newest `node.info` of a node that runs is in the stream. Subscribers that come later read
    it as the last message of its subject; without the hourly repetition the stream's limits of size and age would
    drop it.
    """

    def __init__(self, node: NodeName, heartbeat_s: float, sampler: Sampler) -> None:
        self._node = node
        self._heartbeat_s = heartbeat_s
        self._sampler = sampler
        self._read: tuple[_Gpus, Hardware] | None = None
        self._published: NodeInfo | None = None
        self._due_s = 0.0

    async def due(
        self, readings: Iterable[GpuReading], labels: dict[str, str], now_s: float
    ) -> NodeInfo | None:
        """The `node.info` to publish now; None if the last one holds, and is not older than an hour.

        The hardware is read when the GPUs have changed, and once an hour: a link may be down since.

        Args:
            readings: the GPUs that answered now.
            labels: the node's labels by GPU feature discovery.
            now_s: monotonic clock.

        Raises:
            NvmlAwayError: see `Sampler.hardware`.
        """
        gpus = tuple((one.uuid, one.index) for one in readings)
        is_due = now_s >= self._due_s
        if self._read is None or self._read[0] != gpus or is_due:
            self._read = gpus, await self._sampler.hardware({uuid for uuid, _ in gpus})
        hardware = self._read[1]
        info = NodeInfo(
            node=self._node,
            heartbeat_s=self._heartbeat_s,
            driver=hardware.driver,
            gpus=hardware.gpus,
            labels=labels,
        )
        return info if is_due or info != self._published else None

    def stored(self, info: NodeInfo, now_s: float) -> None:
        """The event is on disk."""
        self._published, self._due_s = info, now_s + EVERY_S
