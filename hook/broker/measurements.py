"""The broker's own readings by NVML: measurements for nodes without a monitor, and the GPUs for `plimsoll run`.

The broker measures once at its start, because the driver's first answer takes a while, and then only while a
container is registered. After a new process or context, and after a death, which may leave memory to others, it
measures a few times within hundredths of a second. So it knows the cost of a context before programs make many.

`plimsoll run` chooses a GPU, and asks the broker for them. The command may itself be under a line, where NVML shows
the line instead of the GPU. And a new session with the driver takes a second on some machines.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from hook.broker.core.audit.audit import RUN
from hook.broker.engine import Engine, NotCarriedOutError
from hook.broker.gpu_health import driver_view
from plimsoll.broker.announcements import Context, Exited, Hello
from plimsoll.broker.wire import GpusRead, Measured, MeasuredGpu, MeasuredProcess
from plimsoll.events import Gpu, Phase, Task
from plimsoll.gpu_health import DriverView
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.kube.cgroup import read_pod
from plimsoll.nvml.readings import GpuReading, GpuSample, NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.clock import machine_ns
from plimsoll.part.limits import memory_limit
from plimsoll.part.log import get_logger
from plimsoll.part.processes import read_stat

if TYPE_CHECKING:
    from plimsoll.nvml.library import Nvml

SOON_S: Final = 0.01
"""Seconds after an arrival, and between the next measurements. A measurement takes some milliseconds."""

PERIOD_S: Final = 1.0
"""Seconds between two measurements while no process or context is new."""

RETRY_S: Final = 30.0
"""Seconds between two attempts while no driver answers."""

UNKNOWN_IDLE_PCT: Final = 100.0
"""The idle time, in percent, of a GPU whose driver measures no utilisation (MIG). Memory alone then decides."""

NO_DRIVER: Final = "install it, or, for the emulator, set PLIMSOLL_EMULATOR and LD_LIBRARY_PATH"

REMEDY: Final = "install NVIDIA's driver, or let the monitor measure: PLIMSOLL_BROKER_MEASURE=false"

_log: Final = get_logger()


class Measurements:
    """Measures, and gives each measurement to the core; `run` it as a task.

    Args:
        engine: the broker's engine.
        driver: the broker's thread for NVML.
    """

    def __init__(self, engine: Engine, driver: DriverThread) -> None:
        self._engine = engine
        self._driver = driver
        self._seen_seq = 0
        self._trouble = ""
        self._judged_s = -PERIOD_S

    async def run(self) -> None:
        """Measure for ever."""
        pauses = _pauses()
        while True:
            try:
                await self._measure()
            except (NvmlAwayError, NotCarriedOutError, OSError) as error:
                self._is_troubled(error)
                await asyncio.sleep(RETRY_S if isinstance(error, NvmlAwayError) else PERIOD_S)
            has_come = await self._has_come(PERIOD_S if self._is_idle() else next(pauses))
            while self._is_idle() and not has_come:
                has_come = await self._has_come(PERIOD_S)
            if has_come:
                pauses = _pauses()
                await asyncio.sleep(SOON_S)  # The pause also bounds programs that send hellos without end.

    def _is_idle(self) -> bool:
        return not self._engine.node.pods

    async def _has_come(self, pause_s: float) -> bool:
        """Wait at most `pause_s` seconds for a new process or context, or a death; returns whether one came."""
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
        return any(isinstance(each, Hello | Context | Exited) for each in new)

    async def _measure(self) -> None:
        measured, seen = await self._driver.ask(
            partial(_measure, judges=time.monotonic() >= self._judged_s + PERIOD_S)
        )
        if seen is not None:
            self._judged_s = seen.now_s
            await self._engine.judge(seen)
        if measured.gpus:
            await self._engine.take(measured)
        if self._trouble:
            self._trouble = ""
            _log.info("measuring_again", gpus=len(measured.gpus))

    def _is_troubled(self, error: Exception) -> None:
        """Log a problem, unless it is the same as the last one."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            effect = "memory that no call requests (contexts, modules) does not count against the lines"
            remedy = (
                error.remedy or REMEDY
                if isinstance(error, NvmlAwayError)
                else "mend that; the broker tries again by itself"
            )
            _log.warning("not_measured", problem=self._trouble, effect=effect, remedy=remedy)


def _pauses() -> Iterator[float]:
    """The pauses after an arrival: short ones until a context's cost is learned, then ever longer ones."""
    for _ in range(RUN):
        yield SOON_S
    pause_s = SOON_S
    while True:
        pause_s = min(2 * pause_s, PERIOD_S)
        yield pause_s


def _measure(nvml: "Nvml", *, judges: bool) -> tuple[Measured, DriverView | None]:
    """Measure the whole node by NVML and `/proc`, and read the GPUs' health where it is asked for.

    Raises:
        NvmlAwayError: no driver answers.
        OSError: the broker ran out of descriptors.
    """
    began_ns = machine_ns()
    samples = nvml.read(None)
    gpus = [gpu for gpu in samples if gpu.reading.usable_bytes > 0]
    found = [_measured_process(gpu.reading.uuid, *held) for gpu in gpus for held in gpu.used_bytes.items()]
    measured = Measured(
        began_ns=began_ns,
        gpus=tuple(_measured_gpu(gpu.reading) for gpu in gpus),
        processes=tuple(process for process in found if process is not None),
    )
    return measured, driver_view(nvml, samples) if judges else None


def _measured_gpu(reading: GpuReading) -> MeasuredGpu:
    used_bytes = min(max(reading.used_bytes, 0), reading.usable_bytes)
    return MeasuredGpu(gpu=reading.uuid, usable_bytes=reading.usable_bytes, used_bytes=used_bytes)


def _measured_process(gpu: GpuUuid, pid: int, used_bytes: int | None) -> MeasuredProcess | None:
    """A measured process; None for a process that is gone, or whose bytes the driver does not know."""
    stat = read_stat(pid)
    if stat is None or stat.has_ended or not used_bytes:
        return None
    return MeasuredProcess(
        pid=pid, start_ticks=stat.start_ticks, gpu=gpu, used_bytes=used_bytes, pod=read_pod(pid)
    )


async def read_gpus(engine: Engine, driver: DriverThread) -> GpusRead:
    """Read every GPU that answers; cancelling is safe.

    Raises:
        NvmlAwayError: the driver is missing; the message has the remedy.
    """
    containers = (await engine.describe()).containers
    owners = {process.pid: use.pod for use in containers for process in use.processes}
    try:
        samples, seen = await driver.ask(_read)
    except NvmlAwayError as error:
        raise NvmlAwayError(f"{error}; {memory_limit() or error.remedy or NO_DRIVER}") from error
    await engine.judge(seen)
    return GpusRead(gpus=tuple(_gpu(sample, owners) for sample in samples), health=engine.health.unhealthy)


def _read(nvml: "Nvml") -> tuple[tuple[GpuSample, ...], DriverView]:
    samples = nvml.read({})
    return samples, driver_view(nvml, samples)


def _gpu(sample: GpuSample, owners: Mapping[int, PodUid]) -> Gpu:
    reading = sample.reading
    busy_pct = sample.utilisation[-1][1] if sample.utilisation else 100.0 - UNKNOWN_IDLE_PCT
    return Gpu(
        uuid=reading.uuid,
        index=reading.index,
        model=reading.model,
        usable_bytes=reading.usable_bytes,
        used_bytes=reading.used_bytes,
        idle_pct=100.0 - busy_pct,
        mig_parent=reading.mig_parent,
        tasks=tuple(_task(pid, used, reading.uuid, owners) for pid, used in sample.used_bytes.items()),
    )


def _task(pid: int, used_bytes: int | None, gpu: GpuUuid, owners: Mapping[int, PodUid]) -> Task:
    held_bytes = used_bytes or 0
    return Task(
        pid=pid,
        start_ticks=0,
        gpu=gpu,
        phase=Phase.LOADED,
        used_bytes=held_bytes,
        peak_bytes=held_bytes,
        pod=owners.get(pid),
    )
