"""Limits of a control group on a GPU's memory, which NVIDIA's driver holds by itself from r615 on.

What always holds: the soft limit is 0. It would reserve memory, and MPS may end programs above it. Without it,
nothing of a limit remains anywhere once its control group is gone.

NVIDIA documents the calls in its NVML reference, and their effect under "MPS v3 memory partitioning".
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pynvml

from plimsoll.nvml.devices import is_divided

UNLIMITED_BYTES: Final = int(pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX)

FIRST_DRIVER: Final = 615
"""The first driver's major version with the two calls."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The limit of a control group on a GPU.

    Attributes:
        hard_bytes: the most that its processes may hold together; None for no limit.
        used_bytes: what they hold: contexts, code and everything else.
    """

    hard_bytes: int | None
    used_bytes: int


def obstacle(handle: Any, cgroup: Path) -> str:  # noqa: ANN401 - pynvml's untyped pointer
    """The reason why the driver cannot limit control groups on a GPU, with the remedy; empty where it may.

    Only an attempt shows whether a certain group can be limited.

    Args:
        handle: the card.
        cgroup: any control group, such as the root.
    """
    if is_divided(handle):
        return (
            "the GPU is in MIG mode, in which the driver has no such limits: switch MIG off, or use `preload`"
        )
    try:
        read(handle, cgroup)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            return cause_of(error)
    return ""


def read(handle: Any, cgroup: Path) -> MemoryLimit:  # noqa: ANN401 - pynvml's untyped pointer
    """The limit of a control group. A group that the driver does not know has none, and holds nothing.

    Raises:
        NVMLError: the driver has no limits, or does not answer.
    """
    asked = pynvml.c_nvmlGetMemoryLimits_v1_t()
    asked.nameSpace = str(cgroup).encode()
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, asked)
    except (pynvml.NVMLError_NotFound, pynvml.NVMLError_NotSupported):
        return MemoryLimit(None, 0)
    hard_bytes = int(asked.hardLimit)
    return MemoryLimit(None if hard_bytes == UNLIMITED_BYTES else hard_bytes, int(asked.currentUsed))


def write(handle: Any, cgroup: Path, hard_bytes: int | None) -> None:  # noqa: ANN401 - pynvml's untyped pointer
    """Set the limit of a control group, or remove it. The driver may leave a limit that is below the use as it was.

    Raises:
        NVMLError: the driver refused.
    """
    wanted = pynvml.c_nvmlSetMemoryLimits_v1_t()
    wanted.nameSpace = str(cgroup).encode()
    wanted.softLimit = 0
    wanted.hardLimit = UNLIMITED_BYTES if hard_bytes is None else hard_bytes
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle, wanted)


def cause_of(error: pynvml.NVMLError) -> str:
    """The reason of a refusal, with the remedy."""
    match error.value:
        case pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            version = pynvml.nvmlSystemGetDriverVersion()
            return f"driver {version} has no such limits: install {FIRST_DRIVER} or newer, or use `preload`"
        case pynvml.NVML_ERROR_NOT_SUPPORTED:
            return "the driver does not offer such limits on this GPU (is RmMemacctMode 0?): use `preload`"
        case pynvml.NVML_ERROR_NOT_FOUND:
            return (
                "the driver finds no control group there: enable `dmem` in `cgroup.subtree_control` of all groups "
                "above, or boot with cgroup_disable=dmem"
            )
        case pynvml.NVML_ERROR_NO_PERMISSION:
            return "the driver lets this broker set no limits: run it privileged, or use `preload`"
        case _:
            return f"the driver refuses ({error}): use `preload`"
