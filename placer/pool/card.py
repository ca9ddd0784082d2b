"""`python -m placer.pool.card`: writes the UUID of the container's only GPU to its termination message.

NVML says what the container has, however the device plugin brings GPUs into containers: by the variable
`NVIDIA_VISIBLE_DEVICES`, by mounts, or by CDI, which sets no variable.

A pod waits for this program, so it imports nothing but `ctypes`: the monitor's way to NVML costs a quarter of a
second of CPU more. The names of functions and the sizes are those of `nvml.h`.
"""

import ctypes
import sys
from pathlib import Path
from typing import Final

MESSAGE: Final = Path("/dev/termination-log")
FAILED: Final = 1
LIBRARY: Final = "libnvidia-ml.so.1"
UUID_BYTES: Final = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE."""


class AwayError(Exception):
    """The driver gives no answer; the message says why."""


def main(path: Path = MESSAGE) -> int:
    """Write the UUID, or the reason why there is none; returns the exit code."""
    try:
        gpus = uuids()
    except AwayError as error:
        path.write_text(f"{error}; remedy: give runtimeClass the runtime class of NVIDIA's runtime")
        return FAILED
    if len(gpus) != 1:
        path.write_text(
            f"the container sees {len(gpus)} GPUs and should see 1; is the device plugin NVIDIA's?"
        )
        return FAILED
    path.write_text(gpus[0])
    return 0


def uuids() -> list[str]:
    """The UUIDs of the GPUs that NVML shows.

    Raises:
        AwayError: the library is missing, or NVML fails.
    """
    try:
        nvml = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise AwayError(f"NVML cannot be loaded ({error})") from error
    count, device, uuid = ctypes.c_uint(), ctypes.c_void_p(), ctypes.create_string_buffer(UUID_BYTES)
    _ask(nvml, "nvmlInit_v2")
    _ask(nvml, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    found = []
    for index in range(count.value):
        _ask(nvml, "nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        _ask(nvml, "nvmlDeviceGetUUID", device, uuid, ctypes.c_uint(UUID_BYTES))
        found.append(uuid.value.decode())
    return found


def _ask(nvml: ctypes.CDLL, name: str, *arguments: object) -> None:
    status = getattr(nvml, name)(*arguments)
    if status != 0:
        explain = nvml.nvmlErrorString
        explain.restype = ctypes.c_char_p
        raise AwayError(f"{name} failed: {explain(status).decode()}")


if __name__ == "__main__":
    sys.exit(main())
