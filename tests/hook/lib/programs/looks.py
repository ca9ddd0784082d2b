"""NVML's answers to a program that never calls CUDA: `python -m tests.hook.lib.programs.looks FUNCTION ARGUMENTS`.

Each function makes one reading. Its arguments and its printed result are JSON.
"""

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

import pynvml as n


def raw(name: str, *arguments: object) -> int:
    """The result of one of NVML's functions."""
    return int(n._nvmlGetFunctionPointer(name)(*arguments))


def tried(call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - what pynvml returns
    """Call a function; returns its result, or the number of its error."""
    try:
        return call(*arguments)
    except n.NVMLError as error:
        return error.value


def gpus() -> list[Any]:
    """All GPUs."""
    return [n.nvmlDeviceGetHandleByIndex(i) for i in range(n.nvmlDeviceGetCount())]


def used(handle: object, name: str = "nvmlDeviceGetComputeRunningProcesses") -> list[list[int]]:
    """The processes on a GPU and what they use."""
    return sorted([p.pid, p.usedGpuMemory] for p in getattr(n, name)(handle))


def names() -> list[object]:
    """The GPUs: UUID, index, size."""
    return [
        [n.nvmlDeviceGetUUID(g), n.nvmlDeviceGetIndex(g), n.nvmlDeviceGetMemoryInfo(g).total] for g in gpus()
    ]


def indices(version: str) -> list[int]:
    """The count of GPUs, and the results of asking for it and for handles by index, with and without a place."""
    count, handle = ctypes.c_uint(), ctypes.c_void_p()
    by_index = f"nvmlDeviceGetHandleByIndex{version}"
    results = [raw(f"nvmlDeviceGetCount{version}", ctypes.byref(count))]
    results += [raw(by_index, i, ctypes.byref(handle)) for i in (0, 1, 2, 4294967295)]
    results += [raw(by_index, 0, None), raw(f"nvmlDeviceGetCount{version}", None)]
    return [count.value, *results]


def addresses() -> list[str]:
    """The GPUs' PCI addresses."""
    return [n.nvmlDeviceGetPciInfo(g).busId for g in gpus()]


def by_name(uuids: list[str], addresses: list[str]) -> list[list[int]]:
    """The indices of GPUs found by their names, or the negative errors; and the results of an older function."""

    def number(call: Callable[[str], Any], name: str) -> int:
        found = tried(call, name)
        return -found if isinstance(found, int) else int(n.nvmlDeviceGetIndex(found))

    first = ctypes.c_void_p()
    return [
        [number(n.nvmlDeviceGetHandleByUUID, uuid) for uuid in uuids],
        [number(n.nvmlDeviceGetHandleByPciBusId, address) for address in addresses],
        [raw("nvmlDeviceGetHandleByPciBusId", a.encode(), ctypes.byref(first)) for a in addresses],
        [number(n.nvmlDeviceGetHandleByUUID, "GPU-nonsense")],
    ]


def processes() -> list[list[list[int]]]:
    """The processes on each GPU."""
    return [used(gpu) for gpu in gpus()]


def sums() -> list[list[int]]:
    """The used memory of each GPU, and the sum of its processes' memory."""
    return [[n.nvmlDeviceGetMemoryInfo(gpu).used, sum(bytes_ for _, bytes_ in used(gpu))] for gpu in gpus()]


def indexed_processes() -> list[list[object]]:
    """The driver's index of each GPU, and the processes there."""
    return [[n.nvmlDeviceGetIndex(gpu), used(gpu)] for gpu in gpus()]


class First(ctypes.Structure):
    """nvmlProcessInfo_v1_t."""

    _fields_ = [("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong)]


def rooms(version: str) -> list[object]:
    """List the processes of the second GPU with too little room, enough, more, and none at all."""
    structure: type[ctypes.Structure] = n.c_nvmlProcessInfo_v2_t if version else First
    function, shared = f"nvmlDeviceGetComputeRunningProcesses{version}", gpus()[1]

    def ask(room: int, size: int) -> list[object]:
        count, infos = ctypes.c_uint(room), (structure * size)() if size else None
        result = raw(function, shared, ctypes.byref(count), infos)
        entries = [] if infos is None else [[i.pid, i.usedGpuMemory] for i in infos]
        return [result, count.value, *entries]

    return [
        *(ask(0, 0), ask(1, 1), ask(2, 2), ask(3, 3), ask(3, 0)),
        raw(function, shared, None, None),
        raw(function, None, ctypes.byref(ctypes.c_uint(0)), None),
    ]


def instances() -> list[list[int]]:
    """The processes on the second GPU with their MIG instances, as two lists have them."""
    shared = gpus()[1]
    details = n.nvmlDeviceGetRunningProcessDetailList(shared, n.nvmlProcessDetailList_v1, 0)
    entries = [*n.nvmlDeviceGetComputeRunningProcesses_v3(shared), *details]
    return [[p.pid, p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId] for p in entries]


def count_of(sort: str, version: str) -> list[int]:
    """The result and the count of another list of processes of the second GPU."""
    count = ctypes.c_uint(0)
    name = f"nvmlDeviceGet{sort}RunningProcesses{version}"
    return [raw(name, gpus()[1], ctypes.byref(count), None), count.value]


def utilization() -> object:
    """The processes that keep the second GPU busy."""
    return tried(n.nvmlDeviceGetProcessUtilization, gpus()[1], 0)


def called(name: str, *arguments: object) -> object:
    """Call one of pynvml's functions."""
    return tried(getattr(n, name), *arguments)


def _memory(handle: object) -> list[int]:
    first = n.nvmlDeviceGetMemoryInfo(handle)
    second = n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2)
    return [first.total, first.free, first.used, second.total, second.reserved, second.free, second.used]


def memory() -> list[list[int]]:
    """The memory of each GPU, as both versions give it."""
    return [_memory(gpu) for gpu in gpus()]


def memory_of_nearest() -> list[list[int]]:
    """The memory of the GPUs that the topology names beside the first."""
    nearest = n.nvmlDeviceGetTopologyNearestGpus(n.nvmlDeviceGetHandleByIndex(0), 50)
    return [_memory(gpu) for gpu in nearest]


if __name__ == "__main__":
    look, given = sys.argv[1:]
    n.nvmlInit()
    sys.stdout.write(json.dumps(globals()[look](*json.loads(given))) + "\n")
