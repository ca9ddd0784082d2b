"""NVML's answers about one GPU: its memory, its processes, their utilisation, its health.

A GPU on one chip with the CPU (GB10, Jetson) has no memory of its own: it allocates from the machine's. NVML answers
its query for memory with "Not Supported". What its programs can have is then what Linux can give: NVIDIA's own advice
for these machines.

Health takes two calls of NVML. `nvmlDeviceGetFieldValues` gives each figure with a result of its own, so a card
without ECC memory, or a driver that knows no advice on recovery, costs nothing else. A power cap that software sets
(`SwPowerCap`) is no finding: a busy GPU runs into it all day.

Graphics process lists are not read. Others measured 4.5 ms a call, forty times the compute list's, and graphics
processes hold no CUDA context. Their memory is in the GPU's used bytes all the same.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import pynvml

from plimsoll.nvml.calls import offered
from plimsoll.nvml.devices import Device
from plimsoll.nvml.readings import GpuReading, HealthReading, ProcessUsage
from plimsoll.part.processes import PROC

_KIB: Final = 1024

_LISTS: Final = 3
"""Attempts to read a list of processes that grows between the two calls that read it."""

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


def memory(device: Device) -> GpuReading:
    """The memory by the second version of the call, which reports the driver's own part; else by the first.

    Raises:
        NVMLError: the GPU or the driver does not answer.
    """
    info = offered(
        lambda: device.calls.nvmlDeviceGetMemoryInfo(device.handle, version=pynvml.nvmlMemory_v2), None
    )
    try:
        memory = info if info is not None else device.calls.nvmlDeviceGetMemoryInfo(device.handle)
    except pynvml.NVMLError_NotSupported:
        total_bytes, used_bytes = _of_machine()
    else:
        total_bytes, used_bytes = int(memory.total), int(memory.used)
    return GpuReading(
        uuid=device.uuid,
        index=device.index,
        model=device.model,
        total_bytes=total_bytes,
        reserved_bytes=int(info.reserved) if info is not None else 0,
        used_bytes=used_bytes,
        mig_parent=device.mig_parent,
    )


def _of_machine() -> tuple[int, int]:
    """Total and used bytes of the machine's memory. Caches, which Linux can give at once, are not used."""
    rows = (line.split() for line in (PROC / "meminfo").read_text().splitlines())
    sizes = {row[0]: int(row[1]) * _KIB for row in rows}
    return sizes["MemTotal:"], sizes["MemTotal:"] - sizes["MemAvailable:"]


def processes(device: Device) -> dict[int, int | None] | None:
    """Bytes per pid, of compute processes and of processes under MPS, which some drivers list apart.

    None where the driver lists no processes of this GPU.

    A pid in both lists is one process, and its larger amount counts, not the sum.
    """
    computing = offered(lambda: device.calls.nvmlDeviceGetComputeRunningProcesses_v3(device.handle), None)
    if computing is None:
        return None
    listed = [
        *computing,
        *offered(lambda: device.calls.nvmlDeviceGetMPSComputeRunningProcesses_v3(device.handle), []),
    ]
    used: dict[int, int | None] = {}
    for each in listed:
        known, listed_bytes = used.get(each.pid), each.usedGpuMemory
        used[each.pid] = known if listed_bytes is None else max(int(listed_bytes), known or 0)
    return used


def utilisation(device: Device, since_us: int) -> tuple[tuple[int, float], ...]:
    """The driver's buffered samples since then; without a buffer, its one current figure, as of now.

    The driver dates samples by the wall clock. A sample that lies ahead is from before the clock was set back.
    """
    return _sampled(device, pynvml.NVML_GPU_UTILIZATION_SAMPLES, since_us, lambda rates: float(rates.gpu))


def memory_traffic(device: Device, since_us: int) -> tuple[tuple[int, float], ...]:
    """Likewise, the percentage of time in which the GPU's memory was read or written."""
    kind = pynvml.NVML_MEMORY_UTILIZATION_SAMPLES
    return _sampled(device, kind, since_us, lambda rates: float(rates.memory))


def _sampled(
    device: Device, kind: int, since_us: int, current: Callable[[Any], float]
) -> tuple[tuple[int, float], ...]:
    since_us = since_us if since_us <= now_us() else 0
    buffered = offered(lambda: device.calls.nvmlDeviceGetSamples(device.handle, kind, since_us), None)
    if buffered is not None:
        value_type, samples = buffered
        pairs = ((int(each.timeStamp), _number(value_type, each.sampleValue)) for each in samples)
        latest_us = now_us()
        return tuple(sorted(pair for pair in pairs if since_us < pair[0] <= latest_us))
    rates = offered(lambda: device.calls.nvmlDeviceGetUtilizationRates(device.handle), None)
    return () if rates is None else ((now_us(), current(rates)),)


def now_us() -> int:
    """Microseconds since the epoch, as the driver dates its samples."""
    return time.time_ns() // 1000


def usage(device: Device, since_us: int) -> tuple[ProcessUsage, ...]:
    """The time in which each process kept a multiprocessor busy, in percent of the span since then.

    Some drivers list entries with pid 0, entries before `since_us`, and percentages above 100. These are dropped, and
    so are entries from before the wall clock was set back.
    """
    found: dict[int, ProcessUsage] = {}
    for each in _listed(lambda: device.calls.nvmlDeviceGetProcessUtilization(device.handle, since_us)):
        pid, ended_us, busy_pct = int(each.pid), int(each.timeStamp), int(each.smUtil)
        if pid and since_us < ended_us <= now_us() and busy_pct <= 100:
            known = found.get(pid)
            if known is None or known.ended_us < ended_us:
                found[pid] = ProcessUsage(pid, busy_pct, since_us, ended_us)
    return tuple(found.values())


def _listed(call: Callable[[], list[Any]]) -> list[Any]:
    """A list that `pynvml` reads by two calls, the first for its length; the list may grow between them."""
    for _ in range(_LISTS):
        try:
            return offered(call, [])
        except pynvml.NVMLError_InsufficientSize:
            continue
    return []


def _number(value_type: int, value: Any) -> float:  # noqa: ANN401 - pynvml's untyped union
    if value_type == pynvml.NVML_VALUE_TYPE_DOUBLE:
        return float(value.dVal)
    if value_type == pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG:
        return float(value.sllVal)
    # All unsigned members of the union begin at the same address and hold small numbers in little-endian order.
    return float(value.uiVal)


def health(handle: Any) -> HealthReading:  # noqa: ANN401 - pynvml's untyped pointer
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
