"""The broker's own measurements by NVML, where no monitor measures for it.

Nothing is measured while no hooked process lives, but once at the start, as the driver's first answer takes a while.
A process or context that has just come is measured within hundredths of a second, a few times, so that what a context
costs is known before many are made.
"""

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import structlog

from hook.broker.core.audit.overheads import RUN
from hook.broker.engine import Engine, NotCarriedOutError
from plimsoll.broker.wire import Measured, MeasuredGpu, MeasuredProcess
from plimsoll.ids import GpuUuid
from plimsoll.kube.cgroup import read_pod
from plimsoll.nvml.readings import GpuReading, NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.processes import read_stat

if TYPE_CHECKING:
    from plimsoll.nvml.library import Nvml

SOON_S: Final = 0.01
"""After an arrival, and between the measurements that follow. A measurement takes some milliseconds."""

PERIOD_S: Final = 1.0
"""Between two measurements of processes that have been there for a while."""

RETRY_S: Final = 30.0
"""Between two attempts where no driver answers."""

_ARRIVALS: Final = frozenset({"hello", "context"})

_log: Final = structlog.get_logger()


class Measurements:
    """Measures and has the core judge it; `run` it as a task.

    Args:
        engine: the broker at work.
        driver: its thread for NVML.
    """

    def __init__(self, engine: Engine, driver: DriverThread) -> None:
        self._engine = engine
        self._driver = driver
        self._seen_seq = 0
        self._trouble = ""

    async def run(self) -> None:
        """Measure for ever."""
        pauses = _pauses()
        while True:
            try:
                await self._measure()
            except (NvmlAwayError, NotCarriedOutError, OSError) as error:
                self._is_troubled(str(error))
                await asyncio.sleep(RETRY_S if isinstance(error, NvmlAwayError) else PERIOD_S)
            if await self._has_come(None if self._is_idle() else next(pauses)):
                pauses = _pauses()
                await asyncio.sleep(SOON_S)  # also where a program greets without end

    def _is_idle(self) -> bool:
        return not self._engine.node.measuring.is_needed

    async def _has_come(self, pause_s: float | None) -> bool:
        """Wait, but no longer than until a process or context comes; whether one did. None waits for that alone."""
        try:
            async with asyncio.timeout(pause_s):
                while True:
                    growth = self._engine.growth()
                    if self._arrived():
                        return True
                    await growth.wait()
        except TimeoutError:
            return False

    def _arrived(self) -> bool:
        new = self._engine.announcements_after(self._seen_seq)
        if new:
            self._seen_seq = new[-1].seq
        return any(each.what in _ARRIVALS for each in new)

    async def _measure(self) -> None:
        measured = await self._driver.ask(_read)
        if measured.gpus:
            await self._engine.take(measured)
        if self._trouble:
            self._trouble = ""
            _log.info("measuring_again", gpus=len(measured.gpus))

    def _is_troubled(self, trouble: str) -> None:
        """Say the same trouble once."""
        if trouble != self._trouble:
            self._trouble = trouble
            effect = "what no call counts (contexts, modules) is not held against the lines"
            _log.warning("not_measured", problem=trouble, effect=effect)


def _pauses() -> Iterator[float]:
    """From an arrival on: as often as it takes to learn from it, then ever more slowly."""
    for _ in range(RUN):
        yield SOON_S
    pause_s = SOON_S
    while True:
        pause_s = min(2 * pause_s, PERIOD_S)
        yield pause_s


def _read(nvml: "Nvml") -> Measured:
    """The whole node, as NVML and the kernel show it now.

    Raises:
        NvmlAwayError: there is no driver.
        OSError: descriptors ran out.
    """
    began_ns = time.monotonic_ns()
    gpus = [gpu for gpu in nvml.read(None) if gpu.reading.usable_bytes > 0]
    found = [_process(gpu.reading.uuid, *held) for gpu in gpus for held in gpu.used_bytes.items()]
    return Measured(
        began_ns=began_ns,
        gpus=tuple(_gpu(gpu.reading) for gpu in gpus),
        processes=tuple(process for process in found if process is not None),
    )


def _gpu(reading: GpuReading) -> MeasuredGpu:
    used_bytes = min(max(reading.used_bytes, 0), reading.usable_bytes)
    return MeasuredGpu(gpu=reading.uuid, usable_bytes=reading.usable_bytes, used_bytes=used_bytes)


def _process(gpu: GpuUuid, pid: int, used_bytes: int | None) -> MeasuredProcess | None:
    """None for one that is gone, or of which the driver tells no amount."""
    stat = read_stat(pid)
    if stat is None or stat.has_ended or not used_bytes:
        return None
    return MeasuredProcess(
        pid=pid, start_ticks=stat.start_ticks, gpu=gpu, used_bytes=used_bytes, pod=read_pod(pid)
    )
