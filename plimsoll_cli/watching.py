"""Shows the text of a command once, or, with `--watch`, again and again."""

import argparse
import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Final

from plimsoll.part.errors import PlimsollError
from plimsoll_cli.columns import shortened, terminal_columns
from plimsoll_cli.output import write

Text = Callable[[int | None], Awaitable[str]]
"""Makes the text, with lines of this many columns at most; None cuts nothing."""

ENTER: Final = "\x1b[?1049h\x1b[?25l"
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
"""Switch to the terminal's alternate screen without a cursor, and back, so that the earlier content returns."""


def shown(text: Text, given: argparse.Namespace) -> int:
    """Show a text as the options `-o` and `-w` say. Returns the exit code.

    Raises:
        PlimsollError: the text cannot be made; while watching only at the start.
    """
    asyncio.run(_once(text, given.output) if given.watch_s is None else _watch(text, given))
    return 0


async def _once(text: Text, form: str) -> None:
    write(await text(_width(form)))


async def _watch(text: Text, given: argparse.Namespace) -> None:
    last = await text(_width(given.output))
    if terminal_columns() is None:
        while True:
            write(last + "\n")
            await asyncio.sleep(given.watch_s)
            last, _ = await _next(text, given.output, last)
    problem = ""

    loop = asyncio.get_running_loop()

    def suspend() -> None:
        """Give the terminal back until the shell's `fg`. Where no shell could continue the process, it goes on."""
        write(LEAVE + last)
        loop.remove_signal_handler(signal.SIGTSTP)
        os.kill(os.getpid(), signal.SIGTSTP)
        loop.add_signal_handler(signal.SIGTSTP, suspend)
        write(ENTER + _screen(last, problem, given.watch_s))

    loop.add_signal_handler(signal.SIGTSTP, suspend)
    write(ENTER)
    try:
        while True:
            write(_screen(last, problem, given.watch_s))
            await asyncio.sleep(given.watch_s)
            last, problem = await _next(text, given.output, last)
    finally:
        write(LEAVE + last)


async def _next(text: Text, form: str, last: str) -> tuple[str, str]:
    """The new text, or the last one and what went wrong."""
    try:
        return await text(_width(form)), ""
    except PlimsollError as error:
        return last, str(error)


def _screen(text: str, problem: str, every_s: float) -> str:
    """The text from the top of the screen on, as much of it as has room."""
    columns, lines = shutil.get_terminal_size()
    now = datetime.now(UTC).astimezone()
    head = f"{now:%H:%M:%S}  every {every_s:g} s, Ctrl-C ends" + (f"  {problem}" if problem else "")
    rows = [shortened(row, columns) for row in (head, "", *text.splitlines())]
    if len(rows) > lines:
        rows[lines - 1 :] = [f"… {len(rows) - lines + 1} more lines"]
    return "\x1b[H" + "\r\n".join(row + "\x1b[K" for row in rows) + "\x1b[J"


def _width(form: str) -> int | None:
    return None if form == "wide" else terminal_columns()
