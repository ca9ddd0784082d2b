"""The memory of a GPU: its own, or the machine's where a GPU has none of its own.

A GPU on one chip with the CPU (GB10, Jetson) allocates from the machine's memory. NVML answers its query for memory
with "Not Supported". What its programs can have is then what Linux can give: NVIDIA's own advice for these machines.
"""

from typing import Final

import pynvml

from plimsoll.nvml.answers import offered
from plimsoll.nvml.devices import Device
from plimsoll.nvml.readings import GpuReading
from plimsoll.part.processes import PROC

_KIB: Final = 1024


def read(device: Device) -> GpuReading:
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
