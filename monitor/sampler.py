"""The one thread that reads the driver and /proc, and the loop's way to ask it.

What always holds: NVML is called from this thread alone; a driver that does not answer in time is an error
on the loop and never blocks it.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from monitor.core.lifecycle import TaskKey
from monitor.core.node_state import GpuReading
from monitor.core.tasks import Look, Seen
from monitor.nvml import GpuSample, Nvml, NvmlAwayError
from monitor.processes import Identities
from plimsoll.names import GpuUuid

ANSWER_S: Final = 30.0
"""A healthy driver answers in milliseconds; one that initialises eight cards may take seconds."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The node, read once.

    Attributes:
        readings: the GPUs that answered.
        look: living processes on them.
        utilisation: per GPU, (microseconds since the epoch, busy percent), oldest first.
    """

    readings: tuple[GpuReading, ...]
    look: Look
    utilisation: Mapping[GpuUuid, tuple[tuple[int, float], ...]]


class Sampler:
    """Reads the node on its own thread. `close` it when done."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="nvml")
        self._nvml = Nvml()
        self._identities = Identities()

    async def sample(self, since_us: Mapping[GpuUuid, int] | None) -> Sample:
        """Read every GPU.

        Cancelling leaves the reading to end by itself; its result is dropped.

        Args:
            since_us: see `Nvml.read`.

        Raises:
            NvmlAwayError: there is no driver, or it did not answer within `ANSWER_S`; or processes cannot be read.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                return await loop.run_in_executor(self._thread, self._read, since_us)
        except TimeoutError as error:
            raise NvmlAwayError(f"the NVIDIA driver did not answer in {ANSWER_S:.0f} s") from error

    async def close(self) -> None:
        """End the session with the driver and the thread."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                await loop.run_in_executor(self._thread, self._nvml.close)
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _read(self, since_us: Mapping[GpuUuid, int] | None) -> Sample:
        gpus = self._nvml.read(since_us)
        try:
            living = self._identities.of({pid for gpu in gpus for pid in gpu.used_bytes})
        except OSError as error:  # nobody may be taken for dead for that
            raise NvmlAwayError(f"the GPUs' processes cannot be read ({error}); raise ulimit -n") from error
        seen = tuple(
            Seen(TaskKey(living[pid][0], gpu.reading.uuid), used_bytes, living[pid][1])
            for gpu in gpus
            for pid, used_bytes in gpu.used_bytes.items()
            if pid in living
        )
        return Sample(
            readings=tuple(gpu.reading for gpu in gpus),
            look=Look(frozenset(gpu.reading.uuid for gpu in gpus), seen),
            utilisation=_utilisation(gpus),
        )


def _utilisation(gpus: tuple[GpuSample, ...]) -> dict[GpuUuid, tuple[tuple[int, float], ...]]:
    return {gpu.reading.uuid: gpu.utilisation for gpu in gpus}
