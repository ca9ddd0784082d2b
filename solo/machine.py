"""This machine's GPUs, read once through NVML, for `plimsoll run` where no monitor and no bus are about.

Read-only, and it blocks: call it on a thread. Utilisation of the driver's last sample stands in for the monitor's
decayed average.
"""

import socket
from collections.abc import Mapping
from typing import Final

from plimsoll.events import Gpu, NodeState, Phase, Task
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.nvml.library import Nvml
from plimsoll.nvml.readings import GpuSample, NvmlAwayError
from plimsoll.part.errors import PlimsollError

UNKNOWN_IDLE_PCT: Final = 100.0
"""Where a driver measures no utilisation (MIG): memory alone decides then."""


class NoGpuError(PlimsollError):
    """There is no NVIDIA driver on this machine, or no GPU."""


def read_machine(owners: Mapping[int, PodUid]) -> NodeState:
    """The machine's GPUs as a report.

    Args:
        owners: whose process a pid is, for those that belong to a registered pod.

    Raises:
        NoGpuError: the driver is missing, or none of its GPUs can be read.
    """
    nvml = Nvml()
    try:
        samples = nvml.read({})
    except NvmlAwayError as error:
        remedy = "install it, or, for the emulator, set PLIMSOLL_EMULATOR and LD_LIBRARY_PATH"
        raise NoGpuError(f"{error}; {remedy}") from error
    finally:
        nvml.close()
    if not samples:
        raise NoGpuError("the NVIDIA driver does not tell of its GPUs; `nvidia-smi` may say why")
    gpus = tuple(_gpu(sample, owners) for sample in samples)
    return NodeState(node=NodeName(socket.gethostname()), epoch=1, seq=1, time="", gpus=gpus)


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
