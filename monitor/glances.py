"""Glances at the GPUs' used memory: they find changes on a quiet node, between two samples.

A glance costs one call of the driver for each GPU. A task without the hook has a context, so its start changes the
used memory, as do its loading and its end. What always holds: a glance changes nothing by itself; it only asks for a
sample.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from monitor.core.lifecycle import TOLERANCE_BYTES
from monitor.sampler import Sampler
from plimsoll.ids import GpuUuid
from plimsoll.nvml.readings import NvmlAwayError

GLANCE_S: Final = 1.0
"""Seconds between two glances: the start of a process without the library is found within this time."""


class Glances:
    """Glances for ever; `run` it as a task.

    Args:
        sampler: reads the driver.
        changed: called after a glance that found a change.
    """

    def __init__(self, sampler: Sampler, changed: Callable[[], None]) -> None:
        self._sampler = sampler
        self._changed = changed
        self._known: dict[GpuUuid, int] = {}

    async def run(self) -> None:
        """Glance for ever. A driver that does not answer is the sampler's to report."""
        while True:
            await asyncio.sleep(GLANCE_S)
            try:
                used_bytes = await self._sampler.used_bytes()
            except NvmlAwayError:
                continue
            if self._has_moved(used_bytes):
                self._known = dict(used_bytes)
                self._changed()

    def _has_moved(self, used_bytes: Mapping[GpuUuid, int]) -> bool:
        """Whether memory is another than at the last change; so a slow drift adds up to a change."""
        return used_bytes.keys() != self._known.keys() or any(
            abs(now - self._known[gpu]) > TOLERANCE_BYTES for gpu, now in used_bytes.items()
        )
