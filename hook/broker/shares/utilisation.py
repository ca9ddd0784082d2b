"""The utilisation of each GPU by each process, read from NVML on demand.

What always holds: a missing driver causes a single log line, is tried again slowly, and blocks nothing.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from plimsoll.ids import GpuUuid
from plimsoll.nvml.readings import NvmlAwayError, ProcessUsage
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.log import get_logger

if TYPE_CHECKING:
    from plimsoll.nvml.library import Nvml

SPAN_US: Final = 2_000_000
"""The longest span of a question. With a question each second, the spans follow each other."""

RETRY_S: Final = 30.0
"""Seconds between two questions to a missing driver."""

_log: Final = get_logger()


class Utilisation:
    """Asks the driver how busy each process kept the GPUs since the last question.

    Args:
        driver: the broker's thread for NVML.
    """

    def __init__(self, driver: DriverThread) -> None:
        self._driver = driver
        self._ended_us: dict[GpuUuid, int] = {}
        self._away_until_s: float | None = None

    async def ask(self) -> Mapping[tuple[GpuUuid, int], ProcessUsage]:
        """Each process's use since the end of the last span, by GPU and host pid.

        A process that used nothing is absent. If no driver answers, or the driver gives no utilisation (in MIG mode,
        for example), the result is empty.
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

    def _read(self, nvml: "Nvml") -> dict[tuple[GpuUuid, int], ProcessUsage]:
        found = nvml.usage(self._ended_us, time.time_ns() // 1000 - SPAN_US)
        self._ended_us |= {
            gpu: max(each.ended_us for each in usages) for gpu, usages in found.items() if usages
        }
        return {(gpu, each.pid): each for gpu, usages in found.items() for each in usages}
