"""Child processes: how Plimsoll starts brokers, monitors, placers, servers and the containers of local pods.

What always holds: a child leads a session of its own, so Ctrl-C in a terminal reaches this process alone. Its output
goes to a file and never to a pipe, which would stop the child while our loop is busy.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

# 1 is PR_SET_PDEATHSIG. The parent is checked afterwards, because it may have died before the call.
_EXEC_AND_DIE_WITH_PARENT: Final = """
import ctypes, os, signal, sys
if ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != int(sys.argv[1]):
    sys.exit("the parent process is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to start.

    Attributes:
        arguments: the program and its arguments.
        environment: all of its variables.
        directory: the working directory; None for ours.
        output: the file to which standard output and error are appended; None for our own.
        output_mode: the mode of a new file.
        first_line: a line of ours in that file, which shows a full disk before the program is started on it.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str | Path | None = None
    output: Path | None = None
    output_mode: int = 0o644
    first_line: bytes = b""


class Child:
    """A child process, since its start."""

    def __init__(self, process: asyncio.subprocess.Process, output: Path | None, output_start: int) -> None:
        self._process = process
        self._output = output
        self._output_start = output_start

    @property
    def pid(self) -> int:
        """The process id, also after the process ended."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.returncode is None

    async def wait(self) -> int:
        """Wait for the exit code; 128 + n after signal n, as in Kubernetes."""
        code = await self._process.wait()
        return code if code >= 0 else 128 - code

    async def kill(self) -> None:
        """End the process by SIGKILL, as a crash would, and return once it is gone; a second call does nothing."""
        if self.is_running:
            self._process.kill()
        await self._process.wait()

    async def end(self, grace_s: float) -> None:
        """End the process and its group: SIGTERM, and SIGKILL after so many seconds. Return once it is gone."""
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            # The group may hold children that the process left behind.
            self._signal(signal.SIGKILL)
        await self._process.wait()

    async def written(self, last_bytes: int | None = None) -> str:
        """What this process has written since its start, or the last bytes of that; empty without a file."""
        return await asyncio.to_thread(self._read, last_bytes)

    def _read(self, last_bytes: int | None) -> str:
        if self._output is None:
            return ""
        start = self._output_start
        with self._output.open("rb") as file:
            if last_bytes is not None:
                start = max(start, file.seek(0, os.SEEK_END) - last_bytes)
            file.seek(start)
            return file.read().decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return  # the whole group is gone


async def start(
    program: Program, stdin: int = asyncio.subprocess.DEVNULL, before: Callable[[], None] | None = None
) -> Child:
    """Start a program.

    Args:
        program: the program.
        stdin: the descriptor of its standard input.
        before: runs in the child before the program does; it makes a few system calls, and takes no lock.

    Raises:
        OSError: the program, its directory or its output does not exist, or cannot be used.
    """
    output = None if program.output is None else await _opened(program)
    output_start = 0 if output is None else output.tell()  # the child shares the file's position later
    try:
        process = await asyncio.create_subprocess_exec(
            *program.arguments,
            env=dict(program.environment),
            cwd=program.directory,
            stdin=stdin,
            stdout=output,
            stderr=None if output is None else asyncio.subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=before,
        )
        return Child(process, program.output, output_start)
    finally:
        if output is not None:
            output.close()


def dying_with_us(*arguments: str) -> tuple[str, ...]:
    """The command line that becomes this one, and dies with this process even when this process is killed.

    A small Python program asks the kernel for that and then becomes the other by `exec`, so the process id stays.
    `preexec_fn` would do the same between fork and exec, which may deadlock in a process with threads. The kernel
    sends the signal when the thread that started the child ends: start it on a lasting thread.
    """
    return (sys.executable, "-I", "-S", "-c", _EXEC_AND_DIE_WITH_PARENT, str(os.getpid()), *arguments)


async def _opened(program: Program) -> FileIO:
    """Open the output in a thread. The file that a cancelled wait leaves behind is closed."""
    opening = asyncio.ensure_future(asyncio.to_thread(_open, program))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        (await opening).close()
        raise


def _open(program: Program) -> FileIO:
    assert program.output is not None
    program.output.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    file = FileIO(os.open(program.output, flags, program.output_mode), "ab")
    try:
        file.write(program.first_line)
    except OSError:
        file.close()
        raise
    return file
