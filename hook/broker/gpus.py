"""The machine's GPUs for `plimsoll run`, which chooses one: the broker reads them by NVML when it is asked.

The command that asks may itself be under a line, where NVML shows the line instead of the GPU. And the broker has a
session with the driver already; a new one takes a second on some machines.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hook.broker.engine import Engine
from hook.broker.gpu_health import driver_view
from plimsoll.broker.wire import GpusRead
from plimsoll.events import Gpu, Phase, Task
from plimsoll.gpu_health import DriverView
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.nvml.readings import GpuSample, NvmlAwayError
from plimsoll.nvml.thread import DriverThread
from plimsoll.part.limits import memory_limit

if TYPE_CHECKING:
    from plimsoll.nvml.library import Nvml

UNKNOWN_IDLE_PCT: Final = 100.0
"""The idle time, in percent, of a GPU whose driver measures no utilisation (MIG). Memory alone then decides."""

_REMEDY: Final = "install it, or, for the emulator, set PLIMSOLL_EMULATOR and LD_LIBRARY_PATH"


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
        raise NvmlAwayError(f"{error}; {memory_limit() or error.remedy or _REMEDY}") from error
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
