"""Processes that outlived the placer that started them: found by their environment, awaited, ended.

A process is signalled through its pidfd, so that no other process is hit to which the kernel gave the same number
meanwhile.
"""

import asyncio
import contextlib
import os
import signal

from placer.local.process import GRACE_S
from plimsoll.broker.environment import is_process_of, processes_of
from plimsoll.ids import PodUid


async def until_all_gone(pod: PodUid) -> None:
    """Return once no process carries this pod's uid; cancelling is safe."""
    while pids := await asyncio.to_thread(processes_of, pod):
        await asyncio.gather(*(_until_gone(pid) for pid in pids))


async def end_survivors(pod: PodUid) -> None:
    """End a pod's processes: SIGTERM, and SIGKILL after `GRACE_S`."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in await asyncio.to_thread(processes_of, pod):
            await asyncio.to_thread(_signal, pid, pod, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                await until_all_gone(pod)


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


def _signal(pid: int, pod: PodUid, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            # If the pid names another process by now, the handle's process has ended, and the signal reaches none.
            if is_process_of(pid, pod):
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)
