"""Tells what NVML shows of one GPU, fifty times a second: `nvml_look.py [UUID]`, without it the first GPU.

Its first line names the GPU; each other line is one look: the bytes that each session's processes hold together,
and under session 0 what belongs to no process of this PID namespace. It knows nothing of Plimsoll and does not run
under it.
"""

import json
import os
import sys
import time

import pynvml

LOOK_S = 0.02


def session_of(pid: int) -> int:
    """The session that a process belongs to; 0 for one that is gone or of another PID namespace."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def look(gpu: object) -> dict[int, int]:
    """The bytes of each session's processes."""
    used: dict[int, int] = {}
    for process in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu):
        if process.usedGpuMemory is None:
            sys.exit(
                "NVML does not tell what a process holds; this driver (WSL, vGPU, MIG) cannot be measured"
            )
        session = session_of(process.pid)
        used[session] = used.get(session, 0) + process.usedGpuMemory
    return used


def main() -> None:
    """Look until the reader is gone."""
    pynvml.nvmlInit()
    named = sys.argv[1:]
    gpu = pynvml.nvmlDeviceGetHandleByUUID(named[0]) if named else pynvml.nvmlDeviceGetHandleByIndex(0)
    facts = {"uuid": pynvml.nvmlDeviceGetUUID(gpu), "total_bytes": pynvml.nvmlDeviceGetMemoryInfo(gpu).total}
    sys.stdout.write(json.dumps(facts) + "\n")
    while True:
        sys.stdout.write(json.dumps({"used": look(gpu)}) + "\n")
        sys.stdout.flush()
        time.sleep(LOOK_S)


main()
