"""A real terminal of any size: tmux, without its user's settings, and one program in it.

`make test` installs tmux (`tools/debian-packages tmux`). Where it is missing the tests are skipped, but not in CI.
"""

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.placer.local.world import REPOSITORY
from tests.servers.waiting import PATIENCE_S

MISSING = "tmux is missing; remedy: tools/debian-packages tmux"


SIZES = ((80, 24), (200, 50))
"""Those of the snapshots: the terminal that every program is made for, and that of a wide screen."""


def check_snapshot(path: Path, lines: list[str]) -> None:
    """Compare a screen with the one that was stored, but for the time. `PLIMSOLL_UPDATE=1` stores it anew."""
    text = re.sub(r"\d\d:\d\d:\d\d", "hh:mm:ss", "\n".join(lines)) + "\n"
    if os.environ.get("PLIMSOLL_UPDATE"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal with a program in it; `socket` is that of its own tmux."""

    socket: Path

    async def tmux(self, *words: str) -> str:
        """Run a command of tmux; gives its output, which is empty where the server has ended."""
        process = await asyncio.create_subprocess_exec(
            *("tmux", "-S", str(self.socket), "-f", "/dev/null", *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await process.communicate()
        return output.decode()

    async def lines(self) -> list[str]:
        """The lines of the screen, without blanks at their ends."""
        shown = await self.tmux("capture-pane", "-p")
        return [line.rstrip() for line in shown.splitlines()]

    async def press(self, *keys: str) -> None:
        """Press keys, by their names in tmux."""
        await self.tmux("send-keys", *keys)

    async def until(self, holds: Callable[[str], bool]) -> list[str]:
        """Wait until the text of the screen is as wanted; gives its lines."""
        lines: list[str] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    lines = await self.lines()
                    if holds("\n".join(lines)):
                        return lines
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError("the screen never came; the last one:\n" + "\n".join(lines)) from None


@contextlib.asynccontextmanager
async def terminal(folder: Path, width: int, height: int, command: str) -> AsyncIterator[Terminal]:
    """Run a command of the shell in a terminal until the context ends; `plimsoll` is this tree's.

    The shell says `ended N` with the exit code below the command's output.
    """
    if shutil.which("tmux") is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    made = Terminal(folder / "tmux")
    program = f'plimsoll() {{ {shlex.quote(sys.executable)} -m plimsoll "$@"; }}'
    script = f"unset LINES COLUMNS; {program}; {command}; echo ended $?; exec sleep 1000"
    environment = {"PYTHONPATH": str(REPOSITORY), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    words = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
    await made.tmux("new-session", "-d", "-x", str(width), "-y", str(height), *words, "sh", "-c", script)
    try:
        yield made
    finally:
        await made.tmux("kill-server")
