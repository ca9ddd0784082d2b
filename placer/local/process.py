"""One container of a local pod as a process: its command line, its environment, its start and its end.

What always holds: the hook's variables are set last, so that a manifest cannot point the library elsewhere; each
process leads a session of its own, and ending it ends its group. A process outlives a placer that is killed, and
carries `POD_VARIABLE` by which the next one finds it.
"""

import asyncio
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import Directories
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.kube.models import Container

POD_VARIABLE: Final = "PLIMSOLL_POD_UID"
GRACE_S: Final = 10.0
"""Between SIGTERM and SIGKILL."""

LAST_WORDS_BYTES: Final = 4096

_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


@dataclass(frozen=True, slots=True)
class Enforcement:
    """What puts a process under the hook: the library, the container's directories, its GPUs."""

    library: Path
    directories: Directories
    gpus: tuple[GpuUuid, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A process to start. `output` is the file for its output, None for our own."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str | None = None
    output: Path | None = None


def command_of(
    pod: PodUid, container: Container, base: Mapping[str, str], enforcement: Enforcement | None
) -> Command:
    """The process of one container.

    Args:
        pod: whose container it is.
        container: has a command; `$(NAME)` in command, args and values is replaced as in Kubernetes.
        base: the environment beneath the container's own.
        enforcement: None for a container without a GPU: it gets to see none.
    """
    environment = dict(base)
    for variable in container.env or ():
        environment[variable.name] = _expanded(variable.value or "", environment)
    words = (*(container.command or ()), *(container.args or ()))
    arguments = tuple(_expanded(word, environment) for word in words)
    environment.update(marks_of(pod, environment, enforcement))
    return Command(arguments, environment, container.workingDir)


def marks_of(pod: PodUid, environment: Mapping[str, str], enforcement: Enforcement | None) -> dict[str, str]:
    """The variables that make a process a pod's own, and put it under the hook where it has a GPU."""
    if enforcement is None:
        return {POD_VARIABLE: pod, "NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": ""}
    visible = ",".join(enforcement.gpus)
    preloads = (str(enforcement.library), environment.get("LD_PRELOAD", ""))
    return {
        POD_VARIABLE: pod,
        "NVIDIA_VISIBLE_DEVICES": visible,
        "CUDA_VISIBLE_DEVICES": visible,
        "LD_PRELOAD": ":".join(preload for preload in preloads if preload),
        LIMITS_DIR_VARIABLE: enforcement.directories.limits_dir,
        COUNTS_DIR_VARIABLE: enforcement.directories.counts_dir,
    }


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """`$(NAME)` → its value, if it has one; `$$` → `$`, so that `$$(NAME)` stays."""
    return _REFERENCE.sub(
        lambda found: "$" if found[1] is None else environment.get(found[1], found[0]), text
    )


class RunningProcess:
    """A started process."""

    def __init__(self, process: asyncio.subprocess.Process, output: Path | None) -> None:
        self._process = process
        self._output = output

    @property
    def pid(self) -> int:
        """Its process id, also after its end."""
        return self._process.pid

    async def wait(self) -> int:
        """Its exit code, once it ended; 128 + n after signal n, as in Kubernetes."""
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def end(self) -> None:
        """End its group: SIGTERM, and SIGKILL after `GRACE_S`; returns once the process is gone."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(GRACE_S):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            # Also whatever the process left behind in its group.
            self._signal(signal.SIGKILL)
        await self._process.wait()

    async def last_words(self) -> str:
        """The last line of its output, or nothing where its output is ours."""
        if self._output is None:
            return ""
        lines = (await asyncio.to_thread(_tail, self._output)).strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _signal(self, what: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, what)
        except ProcessLookupError:
            return  # the whole group is gone


async def start(command: Command) -> RunningProcess:
    """Start a process.

    Raises:
        OSError: the command or its directory does not exist or cannot be used.
    """
    output = await asyncio.to_thread(_open, command.output) if command.output else None
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


def _open(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - LAST_WORDS_BYTES, 0))
        return file.read().decode(errors="replace")
