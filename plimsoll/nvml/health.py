"""A GPU's health by the driver's own figures: two calls of NVML for all of them.

`nvmlDeviceGetFieldValues` gives each figure with a result of its own, so a card without ECC memory, or a driver that
knows no advice on recovery, costs nothing else. A power cap that software sets (`SwPowerCap`) is no finding: a busy
GPU runs into it all day.
"""

from typing import Any, Final

import pynvml

from plimsoll.nvml.answers import offered
from plimsoll.nvml.readings import HealthReading

_FIELDS: Final = (
    pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL,
    pynvml.NVML_FI_DEV_RETIRED_PENDING,
    pynvml.NVML_FI_DEV_REMAPPED_PENDING,
    pynvml.NVML_FI_DEV_REMAPPED_FAILURE,
    pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION,
    pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
)

_HOT: Final = pynvml.nvmlClocksEventReasonSwThermalSlowdown | pynvml.nvmlClocksEventReasonHwThermalSlowdown
_BRAKED: Final = pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown

_RECOVERY: Final = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "reset the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "reboot the node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "end all peer-to-peer traffic",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "drain and reset the GPU",
}
"""The driver's advice, by number; that of a newer driver is shown as its number."""


def read(handle: Any) -> HealthReading:  # noqa: ANN401 - pynvml's untyped pointer
    """The health of one GPU.

    Raises:
        NVMLError: the GPU or the driver does not answer.
    """
    ecc, retired, remap, failed, advice, energy_mj = _fields(handle)
    reasons = _clock_reasons(handle)
    return HealthReading(
        uncorrected_ecc=ecc or 0,
        retired_pending=bool(retired),
        remap_pending=bool(remap),
        remap_failed=bool(failed),
        recovery=_RECOVERY.get(advice, f"recovery action {advice}") if advice else "",
        is_hot=bool(reasons & _HOT),
        is_braked=bool(reasons & _BRAKED),
        energy_mj=energy_mj,
    )


def _fields(handle: Any) -> list[int | None]:  # noqa: ANN401 - as above
    values = offered(lambda: pynvml.nvmlDeviceGetFieldValues(handle, list(_FIELDS)), None)
    if values is None:
        return [None] * len(_FIELDS)
    # All integers of the union begin at the same address, and the fields' memory was zero before.
    return [int(value.value.ullVal) if value.nvmlReturn == pynvml.NVML_SUCCESS else None for value in values]


def _clock_reasons(handle: Any) -> int:  # noqa: ANN401 - as above
    return int(offered(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle), 0))
