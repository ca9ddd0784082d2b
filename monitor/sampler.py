"""The node's GPUs and the processes on them, read in the one thread that reads the driver and /proc."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from monitor.core.lifecycle import TOLERANCE_BYTES, TaskKey
from monitor.core.tasks import ListedProcess, Listing
from monitor.processes import Identities
from plimsoll.gpu_events import GpuInfo
from plimsoll.ids import GpuUuid, ProcessKey
from plimsoll.nvml.library import Nvml
from plimsoll.nvml.readings import FailingGpu, GpuReading, HealthReading, NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.clock import machine_ns
from plimsoll.part.log import get_logger

PATIENCE_S: Final = 0.25
"""Seconds that a round waits for the driver. A healthy one answers for eight GPUs in milliseconds. A round without
a sample still publishes announcements and deaths."""

log = get_logger()


@dataclass(frozen=True, slots=True)
class NodeSample:
    """The node, read once.

    Attributes:
        began_ns: the machine's clock just before NVML was read.
        readings: the GPUs that answered.
        listing: the living processes on them.
        utilisation: per GPU, (microseconds since the epoch, busy percent), oldest first.
        memory_traffic: the same of the GPUs' memory: the time in which it was read or written.
        figures: the health of the GPUs that answered; empty if it was not read.
        failing: the GPUs that did not answer.
        session: the number of the session with the driver, see `Nvml.sessions`.
        divided: the cards in MIG mode, which are no GPUs.
    """

    began_ns: int
    readings: tuple[GpuReading, ...]
    listing: Listing
    utilisation: Mapping[GpuUuid, tuple[tuple[int, float], ...]]
    memory_traffic: Mapping[GpuUuid, tuple[tuple[int, float], ...]]
    figures: Mapping[GpuUuid, HealthReading]
    failing: tuple[FailingGpu, ...]
    session: int
    divided: frozenset[GpuUuid] = frozenset()


@dataclass(frozen=True, slots=True)
class Hardware:
    """The part of a node that seldom changes: the driver's version, and the GPUs that answer."""

    driver: str
    gpus: tuple[GpuInfo, ...]


class Sampler:
    """Reads the node on its own thread, one sample at a time. `close` it when done.

    Args:
        late: called on the loop when a sample comes after `sample` has stopped waiting for it.
        took: gets the name and the seconds of each call of the driver, in the sampler's thread.
    """

    def __init__(self, late: Callable[[], None], took: Callable[[str, float], None] | None = None) -> None:
        self._driver = DriverThread(took)
        self._identities = Identities()
        self._late = late
        self._reading: asyncio.Task[NodeSample] | None = None
        self._is_late = False
        self._was_named = False

    @property
    def is_busy(self) -> bool:
        """The driver has not answered yet, so `sample` begins no other sample."""
        return self._reading is not None and not self._reading.done()

    @property
    def has_begun(self) -> bool:
        """`sample` was called for a sample that it has not returned yet."""
        return self._reading is not None

    async def sample(
        self,
        since_us: Mapping[GpuUuid, int] | None,
        watched: Mapping[int, ProcessKey],
        *,
        reads_health: bool,
    ) -> NodeSample | None:
        """Read every GPU.

        Cancelling loses nothing: the next call returns the sample.

        Args:
            since_us: see `Nvml.read`; without effect while the sampler is busy.
            watched: see `Identities.of`; likewise.
            reads_health: the driver's figures on health too, by two more calls for each GPU; likewise.

        Returns:
            None while the driver takes longer than `PATIENCE_S`. The next call after `late` returns the sample.

        Raises:
            NvmlAwayError: there is no driver, the driver does not answer, or /proc cannot be read.
        """
        if self._reading is None:
            self._reading = asyncio.create_task(
                self._driver.ask(partial(self._read, since_us, watched, reads_health)), name="sample"
            )
            self._reading.add_done_callback(self._answered)
        done, _ = await asyncio.wait({self._reading}, timeout=0 if self._is_late else PATIENCE_S)
        if not done:
            self._be_late()
            return None
        reading, self._reading, self._is_late = self._reading, None, False
        return reading.result()

    async def hardware(self, gpus: Collection[GpuUuid]) -> Hardware:
        """Read the hardware of these GPUs, which takes some milliseconds for eight of them.

        Raises:
            NvmlAwayError: there is no driver, or the driver does not answer.
        """
        return await self._driver.ask(lambda nvml: Hardware(nvml.driver(), nvml.hardware(gpus)))

    async def used_bytes(self) -> Mapping[GpuUuid, int]:
        """Read the used memory of the GPUs that answer, and nothing else.

        Raises:
            NvmlAwayError: there is no driver, or the driver does not answer.
        """
        return await self._driver.ask(Nvml.used_bytes)

    async def close(self) -> None:
        """End the session with the driver and the thread."""
        if self._reading is not None:
            self._reading.cancel()
        await self._driver.close()

    def _be_late(self) -> None:
        self._is_late = True
        if not self._was_named:
            self._was_named = True
            effect = "memory is seen late; starts and ends of hooked processes are not"
            log.warning("the driver answers slowly", longer_than_s=PATIENCE_S, effect=effect)

    def _answered(self, reading: asyncio.Task[NodeSample]) -> None:
        if reading.cancelled():
            return
        reading.exception()  # so that asyncio does not report it, should nobody ask for this sample any more
        if self._is_late:
            self._late()

    def _read(
        self,
        since_us: Mapping[GpuUuid, int] | None,
        watched: Mapping[int, ProcessKey],
        reads_health: bool,  # noqa: FBT001 - from `sample`, which names it
        nvml: Nvml,
    ) -> NodeSample:
        began_ns = machine_ns()
        gpus = nvml.read(since_us)
        figures = nvml.health() if reads_health else {}
        try:
            living = self._identities.of({pid for gpu in gpus for pid in gpu.used_bytes}, watched)
        except OSError as error:  # no process may count as dead for that
            raise NvmlAwayError(f"the GPUs' processes cannot be read ({error}); raise ulimit -n") from error
        processes = tuple(
            ListedProcess(TaskKey(living[pid][0], gpu.reading.uuid), used_bytes, living[pid][1])
            for gpu in gpus
            for pid, used_bytes in gpu.used_bytes.items()
            if pid in living
        )
        return NodeSample(
            began_ns=began_ns,
            readings=tuple(gpu.reading for gpu in gpus),
            listing=Listing(frozenset(gpu.reading.uuid for gpu in gpus if gpu.lists_processes), processes),
            utilisation={gpu.reading.uuid: gpu.utilisation for gpu in gpus},
            memory_traffic={gpu.reading.uuid: gpu.memory_traffic for gpu in gpus},
            figures=figures,
            failing=nvml.failing,
            session=nvml.sessions,
            divided=nvml.divided,
        )


POLL_S: Final = 1.0
"""Seconds between two polls: the start of a process without the library is found within this time."""


class MemoryPoll:
    """Polls the GPUs' used memory, which finds changes on a quiet node between two samples. `run` it as a task.

    A poll costs one call of the driver for each GPU. A task without the hook has a context, so its start changes the
    used memory, as do its loading and its end. What always holds: a poll changes nothing by itself; it only asks for
    a sample.

    Args:
        sampler: reads the driver.
        changed: called after a poll that found a change.
    """

    def __init__(self, sampler: Sampler, changed: Callable[[], None]) -> None:
        self._sampler = sampler
        self._changed = changed
        self._known: dict[GpuUuid, int] = {}

    async def run(self) -> None:
        """Poll for ever. A driver that does not answer is the sampler's to report."""
        while True:
            await asyncio.sleep(POLL_S)
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
