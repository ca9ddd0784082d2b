"""One container of a local pod as a process: its command line, its environment, its start and its end.

What always holds: the hook's variables are set last, so that a manifest cannot point the library elsewhere. Each
process leads a session of its own, and ending the process ends its group. A process outlives a placer that is killed,
and carries the pod's uid (`plimsoll.broker.environment`), by which the next placer finds the process.
"""

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from plimsoll.broker.environment import Enforcement, pod_variables
from plimsoll.ids import PodUid
from plimsoll.kube.models import Container

GRACE_S: Final = 10.0
"""The time between SIGTERM and SIGKILL."""

TAIL_BYTES: Final = 4096
"""How much of a container's output is searched for its last line."""

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class ProcessCommand:
    """A process to start.

    Attributes:
        arguments: the program and its arguments.
        environment: all variables of the process.
        directory: the working directory; None for the placer's.
        output: the file for standard output and error; None for the placer's own.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str | None = None
    output: Path | None = None


def command_of(
    pod: PodUid, container: Container, base: Mapping[str, str], enforcement: Enforcement | None
) -> ProcessCommand:
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
    return ProcessCommand(arguments, environment, container.workingDir)


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` → the variable's value, if it has one; `$$` → `$`, so that `$$(NAME)` stays."""
    return _REFERENCE.sub(
        lambda found: "$" if found[1] is None else environment.get(found[1], found[0]), text
    )


class RunningProcess:
    """A process of a container, since its start."""

    def __init__(self, process: asyncio.subprocess.Process, output: Path | None) -> None:
        self._process = process
        self._output = output

    @property
    def pid(self) -> int:
        """The process id, also after the process ended."""
        return self._process.pid

    async def wait(self) -> int:
        """Wait for the exit code; 128 + n after signal n, as in Kubernetes."""
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def end(self) -> None:
        """End the process and its group: SIGTERM, and SIGKILL after `GRACE_S`. Return once the process is gone."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            # The group may hold children that the process left behind.
            self._signal(signal.SIGKILL)
        await self._process.wait()

    async def last_line(self) -> str:
        """The last line of the process's output; empty where the output is the placer's own."""
        if self._output is None:
            return ""
        lines = (await asyncio.to_thread(_tail, self._output)).strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return  # the whole group is gone


async def start(command: ProcessCommand) -> RunningProcess:
    """Start a process.

    Raises:
        OSError: the command or the directory does not exist, or cannot be used.
    """
    output = await _opened(command.output) if command.output else None
    try:
        process = await asyncio.create_subprocess_exec(
            *command.arguments,
            env=dict(command.environment),
            cwd=command.directory,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT if output else None,
            start_new_session=True,
        )
    finally:
        if output is not None:
            output.close()
    return RunningProcess(process, command.output)


async def _opened(path: Path) -> BinaryIO:
    """Open the output in a thread. The file that a cancelled wait leaves behind is closed."""
    opening = asyncio.ensure_future(asyncio.to_thread(_open, path))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        (await opening).close()
        raise


def _open(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        return file.read().decode(errors="replace")
