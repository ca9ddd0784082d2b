"""Processes that outlived the placer that started them: found by their environment, awaited, ended.

Only processes of the same user can be read; others are not ours. A process is signalled through its pidfd, so that
a number that was given to another process meanwhile is never hit.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from placer.local.process import GRACE_S, POD_VARIABLE
from plimsoll.ids import PodUid


async def until_all_gone(pod: PodUid) -> None:
    """Return once no process carries this pod's uid; cancelling is safe."""
    while pids := await asyncio.to_thread(processes_of, pod):
        await asyncio.gather(*(_until_gone(pid) for pid in pids))


async def end_survivors(pod: PodUid) -> None:
    """End a pod's processes: SIGTERM, and SIGKILL after `GRACE_S`."""
    for what in (signal.SIGTERM, signal.SIGKILL):
        for pid in await asyncio.to_thread(processes_of, pod):
            await asyncio.to_thread(_signal, pid, pod, what)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await until_all_gone(pod)


def processes_of(pod: PodUid) -> tuple[int, ...]:
    """The process ids that carry this pod's uid. Reads all of /proc: call it on a thread."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal())
    return tuple(pid for pid in pids if _carries(pid, pod))


async def _until_gone(pid: int) -> None:
    try:
        watch = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    gone = asyncio.Event()
    loop.add_reader(watch, gone.set)
    try:
        await gone.wait()
    finally:
        loop.remove_reader(watch)
        os.close(watch)


def _signal(pid: int, pod: PodUid, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            # Only now is the number ours to keep: it may have been given away before the handle was opened.
            if _carries(pid, pod):
                signal.pidfd_send_signal(handle, what)
        finally:
            os.close(handle)


def _carries(pid: int, pod: PodUid) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it ended meanwhile, or is another user's
        return False
    return f"{POD_VARIABLE}={pod}".encode() in environment.split(b"\0")
