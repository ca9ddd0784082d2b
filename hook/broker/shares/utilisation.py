"""How much of each GPU every process really uses, by NVML; read only when somebody asks.

What always holds: a driver that is not there costs one log line, is asked again slowly, and holds nobody up.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from plimsoll.ids import GpuUuid
from plimsoll.nvml.readings import NvmlAwayError, ProcessUsage
from plimsoll.nvml.thread import DriverThread

if TYPE_CHECKING:
    from plimsoll.nvml.library import Nvml

SPAN_US: Final = 2_000_000
"""No usage is asked for over a longer time. Whoever asks once a second has each span follow the one before."""

RETRY_S: Final = 30.0
"""Between two questions to a driver that is not there."""

_log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Used:
    """What a process used of a GPU's multiprocessors over a span.

    Attributes:
        busy_pct: of the span, exact to about one point: the driver tells whole percent.
        began_ns: CLOCK_MONOTONIC at the start of the span; a younger process was measured from its own start.
        ended_ns: CLOCK_MONOTONIC at its end, which is the driver's latest sample and up to a sample's length ago.
    """

    busy_pct: float
    began_ns: int
    ended_ns: int


class Utilisation:
    """Asks the driver how busy each process kept the GPUs since it was asked last.

    Args:
        driver: the broker's thread for NVML.
    """

    def __init__(self, driver: DriverThread) -> None:
        self._driver = driver
        self._ended_us: dict[GpuUuid, int] = {}
        self._away_until_s: float | None = None

    async def ask(self) -> Mapping[tuple[GpuUuid, int], Used]:
        """What each process used since the latest span before this, by GPU and pid as the host sees it.

        A process that used nothing is absent, and so is everybody where no driver answers or it does not tell (in MIG
        mode, for example).
        """
        if self._away_until_s is not None and time.monotonic() < self._away_until_s:
            return {}
        try:
            used = await self._driver.ask(self._read)
        except NvmlAwayError as error:
            self._is_away(error)
            return {}
        self._away_until_s = None
        return used

    def _is_away(self, error: NvmlAwayError) -> None:
        if self._away_until_s is None:
            effect = "shares of compute time are kept by the processes' own words alone"
            _log.warning("utilisation_not_read", problem=str(error), effect=effect)
        self._away_until_s = time.monotonic() + RETRY_S

    def _read(self, nvml: "Nvml") -> dict[tuple[GpuUuid, int], Used]:
        wall_ns = time.time_ns()
        monotonic_offset_ns = time.monotonic_ns() - wall_ns
        found = nvml.usage(self._ended_us, wall_ns // 1000 - SPAN_US)
        self._ended_us |= {
            gpu: max(each.ended_us for each in usages) for gpu, usages in found.items() if usages
        }
        return {
            (gpu, each.pid): _used(each, monotonic_offset_ns)
            for gpu, usages in found.items()
            for each in usages
        }


def _used(usage: ProcessUsage, monotonic_offset_ns: int) -> Used:
    return Used(
        busy_pct=float(usage.busy_pct),
        began_ns=usage.began_us * 1000 + monotonic_offset_ns,
        ended_ns=usage.ended_us * 1000 + monotonic_offset_ns,
    )
