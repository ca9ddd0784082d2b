"""The keys that a terminal sends, and the terminal's settings while it sends them one by one."""

import contextlib
import os
import re
import sys
import termios
import tty
from collections.abc import Iterator
from typing import Final

SUSPEND: Final = "suspend"
"""Ctrl-Z, which a terminal in this mode does not turn into a signal."""

_SEQUENCES: Final = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[5~": "pageup", "\x1b[6~": "pagedown",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home", "\x1b[F": "end", "\x1bOF": "end", "\x1b[4~": "end",
    "\x1b": "escape", "\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\x08": "backspace",
    "\x03": "quit", "\x04": "quit", "\x1a": SUSPEND,
}  # fmt: skip
_KEY: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)


def keys_in(text: str) -> Iterator[str]:
    """The names of the keys in what a terminal sent: letters as they are, others as `up`, `enter`, `escape`."""
    for found in _KEY.findall(text):
        key = _SEQUENCES.get(found, found)
        if len(found) == 1 or key != found:  # other sequences, such as a mouse's, are no key of ours
            yield key


@contextlib.contextmanager
def single_keys() -> Iterator[int | None]:
    """Let standard input give each key at once, without an echo, until the context ends.

    Gives its file descriptor, or None where it is no terminal.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSANOW)
        # Output is processed as before: a bare line feed would not return to the first column.
        now = termios.tcgetattr(descriptor)
        now[1] = before[1]
        termios.tcsetattr(descriptor, termios.TCSANOW, now)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


def read(descriptor: int) -> list[str]:
    """The keys that wait; `quit` where the terminal is gone."""
    try:
        data = os.read(descriptor, 1024)
    except OSError:
        return ["quit"]
    return list(keys_in(data.decode(errors="replace"))) if data else ["quit"]
