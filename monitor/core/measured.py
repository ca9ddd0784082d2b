"""A look at the GPUs as the broker wants it, to hold it against what its processes count."""

from collections.abc import Iterable

from plimsoll.broker.wire import Measured, MeasuredGpu, MeasuredProcess
from plimsoll.events import Gpu, Task


def measured(gpus: Iterable[Gpu], began_ns: int) -> Measured:
    """The whole look. A task that holds nothing was announced and is not listed yet, so it is left out.

    Args:
        gpus: as NVML showed them.
        began_ns: CLOCK_MONOTONIC just before NVML was asked.
    """
    gpus = tuple(gpus)
    return Measured(
        began_ns=began_ns,
        gpus=tuple(
            MeasuredGpu(gpu=gpu.uuid, usable_bytes=gpu.usable_bytes, used_bytes=gpu.used_bytes)
            for gpu in gpus
        ),
        processes=tuple(_process(task) for gpu in gpus for task in gpu.tasks if task.used_bytes > 0),
    )


def _process(task: Task) -> MeasuredProcess:
    return MeasuredProcess(
        pid=task.pid,
        start_ticks=task.start_ticks,
        gpu=task.gpu,
        used_bytes=task.used_bytes,
        pod=task.pod,
        container=task.container,
    )
