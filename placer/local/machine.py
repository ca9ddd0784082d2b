"""This machine's GPUs, read once through NVML, for `plimsoll run` where no monitor and no bus are about.

Read-only, and it blocks: call it on a thread. Utilisation of the driver's last sample stands in for the monitor's
decayed average.
"""

import socket
from collections.abc import Mapping
from typing import Any, Final

import pynvml

from plimsoll.errors import PlimsollError
from plimsoll.events import Gpu, NodeState, Phase, Task
from plimsoll.names import GpuUuid, NodeName, PodUid

UNKNOWN_IDLE_PCT: Final = 100.0
"""Where a driver measures no utilisation (MIG): memory alone decides then."""


class NoGpuError(PlimsollError):
    """There is no NVIDIA driver on this machine, or no GPU."""


def read_machine(owners: Mapping[int, PodUid]) -> NodeState:
    """The machine's GPUs as a report.

    Args:
        owners: whose process a pid is, for those that belong to a registered pod.

    Raises:
        NoGpuError: the driver is missing or does not answer.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        remedy = "install it, or, for the emulator, set PLIMSOLL_EMULATOR and LD_LIBRARY_PATH"
        raise NoGpuError(f"no NVIDIA driver answers ({error}); {remedy}") from error
    try:
        gpus = tuple(_gpu(index, owners) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        raise NoGpuError(f"the NVIDIA driver does not tell of its GPUs ({error})") from error
    finally:
        pynvml.nvmlShutdown()
    return NodeState(node=NodeName(socket.gethostname()), epoch=1, seq=1, time="", gpus=gpus)


def _gpu(index: int, owners: Mapping[int, PodUid]) -> Gpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    uuid = GpuUuid(pynvml.nvmlDeviceGetUUID(handle))
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    return Gpu(
        uuid=uuid,
        index=index,
        model=pynvml.nvmlDeviceGetName(handle),
        usable_bytes=memory.total - memory.reserved,
        used_bytes=memory.used,
        idle_pct=_idle_pct(handle),
        tasks=tuple(
            _task(process, uuid, owners) for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        ),
    )


def _idle_pct(handle: Any) -> float:  # noqa: ANN401 - pynvml's untyped pointer
    try:
        return 100.0 - float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError_NotSupported:
        return UNKNOWN_IDLE_PCT


def _task(process: Any, gpu: GpuUuid, owners: Mapping[int, PodUid]) -> Task:  # noqa: ANN401 - likewise
    used_bytes = process.usedGpuMemory or 0
    return Task(
        pid=process.pid,
        start_ticks=0,
        gpu=gpu,
        phase=Phase.LOADED,
        used_bytes=used_bytes,
        peak_bytes=used_bytes,
        pod=owners.get(process.pid),
    )
