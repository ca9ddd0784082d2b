"""Prints NVML's figures of one GPU fifty times a second: `nvml_look.py [UUID]`; the default is the first GPU.

The first output line names the GPU. Each other line has the bytes that the processes of each session hold
together. Session 0 stands for processes outside this PID namespace. The program does not run under Plimsoll.
"""

import json
import os
import sys
import time

import pynvml

LOOK_S = 0.02


def session_of(pid: int) -> int:
    """The session of a process; 0 for a process that is gone or in another PID namespace."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return 0


def look(gpu: object) -> dict[int, int]:
    """The bytes that each session's processes hold."""
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
    """Print readings until the reader is gone."""
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
