"""The containers of local pods as processes: command lines, and the ends of those that outlived their placer.

What always holds: the hook's variables are set last, so that a manifest cannot point the library elsewhere. A process
outlives a placer that is killed, and carries the pod's uid (`plimsoll.broker.environment`), by which the next placer
finds the process. It is signalled through its pidfd, so no other process is hit that has its number by then.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Mapping
from typing import Final

from plimsoll.broker.environment import Enforcement, is_process_of, pod_variables, processes_of
from plimsoll.ids import PodUid
from plimsoll.kube.models import Container
from plimsoll.part.child import Program

GRACE_S: Final = 10.0
"""The time between SIGTERM and SIGKILL."""

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


def command_of(
    pod: PodUid, container: Container, base: Mapping[str, str], enforcement: Enforcement | None
) -> Program:
    """The process of one container.

    Args:
        pod: the pod of the container.
        container: has a command; `$(NAME)` in command, args and values is replaced as in Kubernetes.
        base: variables that the container's own replace.
        enforcement: None for a container without a GPU, which sees none.
    """
    environment = dict(base)
    for variable in container.env or ():
        environment[variable.name] = _expanded(variable.value or "", environment)
    words = (*(container.command or ()), *(container.args or ()))
    arguments = tuple(_expanded(word, environment) for word in words)
    environment.update(pod_variables(pod, environment, enforcement))
    return Program(arguments, environment, container.workingDir)


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` → the variable's value, if it has one; `$$` → `$`, so that `$$(NAME)` stays."""
    return _REFERENCE.sub(
        lambda found: "$" if found[1] is None else environment.get(found[1], found[0]), text
    )


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
