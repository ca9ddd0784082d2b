"""The node's GPUs and the processes on them, read in the one thread that reads the driver and /proc."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from monitor.core.lifecycle import TaskKey
from monitor.core.tasks import ListedProcess, Listing
from monitor.processes import Identities
from plimsoll.gpu_events import GpuInfo
from plimsoll.ids import GpuUuid
from plimsoll.nvml.library import Nvml
from plimsoll.nvml.readings import FailingGpu, GpuReading, HealthReading, NvmlAwayError
from plimsoll.nvml.thread import DriverThread


@dataclass(frozen=True, slots=True)
class Sample:
    """The node, read once.

    Attributes:
        began_ns: CLOCK_MONOTONIC just before NVML was read.
        readings: the GPUs that answered.
        listing: the living processes on them.
        utilisation: per GPU, (microseconds since the epoch, busy percent), oldest first.
        figures: the health of the GPUs that answered; empty if it was not read.
        failing: the GPUs that did not answer.
        session: the number of the session with the driver, see `Nvml.sessions`.
    """

    began_ns: int
    readings: tuple[GpuReading, ...]
    listing: Listing
    utilisation: Mapping[GpuUuid, tuple[tuple[int, float], ...]]
    figures: Mapping[GpuUuid, HealthReading]
    failing: tuple[FailingGpu, ...]
    session: int


@dataclass(frozen=True, slots=True)
class Hardware:
    """The part of a node that seldom changes: the driver's version, and the GPUs that answer."""

    driver: str
    gpus: tuple[GpuInfo, ...]


class Sampler:
    """Reads the node on its own thread. `close` it when done."""

    def __init__(self) -> None:
        self._driver = DriverThread()
        self._identities = Identities()

    async def sample(self, since_us: Mapping[GpuUuid, int] | None, *, reads_health: bool) -> Sample:
        """Read every GPU.

        Cancelling drops the result; the reading itself goes on to its end.

        Args:
            since_us: see `Nvml.read`.
            reads_health: the driver's figures on health too, which costs two more calls a GPU.

        Raises:
            NvmlAwayError: there is no driver, the driver does not answer, or /proc cannot be read.
        """
        return await self._driver.ask(partial(self._read, since_us, reads_health))

    async def hardware(self, gpus: Collection[GpuUuid]) -> Hardware:
        """Read the hardware of these GPUs, which takes some milliseconds for eight of them.

        Raises:
            NvmlAwayError: there is no driver, or the driver does not answer.
        """
        return await self._driver.ask(lambda nvml: Hardware(nvml.driver(), nvml.hardware(gpus)))

    async def close(self) -> None:
        """End the session with the driver and the thread."""
        await self._driver.close()

    def _read(
        self,
        since_us: Mapping[GpuUuid, int] | None,
        reads_health: bool,  # noqa: FBT001 - from `sample`, which names it
        nvml: Nvml,
    ) -> Sample:
        began_ns = time.monotonic_ns()
        gpus = nvml.read(since_us)
        figures = nvml.health() if reads_health else {}
        try:
            living = self._identities.of({pid for gpu in gpus for pid in gpu.used_bytes})
        except OSError as error:  # no process may count as dead for that
            raise NvmlAwayError(f"the GPUs' processes cannot be read ({error}); raise ulimit -n") from error
        processes = tuple(
            ListedProcess(TaskKey(living[pid][0], gpu.reading.uuid), used_bytes, living[pid][1])
            for gpu in gpus
            for pid, used_bytes in gpu.used_bytes.items()
            if pid in living
        )
        return Sample(
            began_ns=began_ns,
            readings=tuple(gpu.reading for gpu in gpus),
            listing=Listing(frozenset(gpu.reading.uuid for gpu in gpus), processes),
            utilisation={gpu.reading.uuid: gpu.utilisation for gpu in gpus},
            figures=figures,
            failing=nvml.failing,
            session=nvml.sessions,
        )
