"""Standard output and standard error of the commands.

What always holds: a reader that goes away early (`| head`) ends a command silently. A disk that is full ends it with
one line. Colours go to terminals alone, and never where NO_COLOR is set. No text from elsewhere reaches a terminal
with its control characters: names and reasons come from tenants.
"""

import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console, RenderableType

PIPE_BROKEN: Final = 141
"""The exit code once nobody reads: 128 + SIGPIPE, as of programs that the signal ends."""

DOCUMENTS: Final = ("json", "yaml")
"""The forms of output for programs."""

WHOLE_LINES: Final = 100_000
"""The columns of an output that is no terminal: more than any line has."""

SLOW_S: Final = 3.0
"""Seconds without an answer after which standard error says who gave none: longer than a busy cluster takes, and
shorter than a person waits before pressing Ctrl-C."""

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


class OutputClosedError(Exception):
    """Standard output takes nothing more.

    Attributes:
        code: the exit code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def write(text: str) -> None:
    """Write all of a text to standard output.

    Raises:
        OutputClosedError: it takes nothing more; the reason was written to standard error.
    """
    if sys.stdout is None:  # as after `>&-`
        fail("standard output is closed; open it, for instance by `> FILE`")
        raise OutputClosedError(1)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # The rest of the buffer would fail once more at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise OutputClosedError(PIPE_BROKEN) from error
        fail(f"standard output cannot be written ({error.strerror}); give it a place that has room")
        raise OutputClosedError(1) from error


def lines(*texts: str) -> None:
    """Write lines to standard output, as `write` does."""
    if texts:
        write("\n".join(texts) + "\n")


def note(text: str, style: str = "") -> None:
    """Write a line to standard error; nothing where that is closed."""
    if sys.stderr is not None:
        try:
            shown = "\n".join(map(printable, text.split("\n")))
            sys.stderr.write(f"{style}{shown}{_PLAIN if style else ''}\n")
        except OSError:
            return


def fail(text: str, code: int = 1) -> int:
    """Write why the command failed to standard error; gives the exit code."""
    note(f"plimsoll: {text}", _RED if has_colours(sys.stderr) else "")
    return code


@contextmanager
def named_if_slow(who: str) -> "Iterator[None]":
    """Write a line to standard error if the context lasts for `SLOW_S`, so that no command is silent for long.

    Args:
        who: the name of the server or program that is asked.
    """
    import asyncio  # noqa: PLC0415 - keeps --help fast

    text = f"plimsoll: {who} has not answered for {SLOW_S:g} s; waiting on"
    timer = asyncio.get_running_loop().call_later(SLOW_S, note, text)
    try:
        yield
    finally:
        timer.cancel()


def has_colours(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal that shows colours (https://no-color.org)."""
    return (
        stream is not None
        and stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") != "dumb"
    )


def printable(text: str) -> str:
    """The text without control characters, which may move the cursor or change the terminal's settings."""
    return text if text.isprintable() else "".join(map(_shown, text))


def _shown(letter: str) -> str:
    return letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}"


def document(value: object, form: str) -> str:
    """A value of msgspec's in JSON or YAML, with a line's end."""
    import msgspec  # noqa: PLC0415 - tables do without

    if form == "json":
        return msgspec.json.encode(value).decode() + "\n"
    import yaml  # noqa: PLC0415 - likewise

    return yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True)


def console() -> "Console":
    """A console of rich on standard output; it raises as `write` does.

    In a pipe or a file nothing is folded or cut: names and UUIDs stay whole for `grep` and `awk`.
    """
    from rich.console import Console  # noqa: PLC0415 - plain tables do without

    stream = _StandardOutput()
    width = None if stream.isatty() else WHOLE_LINES
    return Console(file=cast("TextIO", stream), width=width, highlight=False, markup=False)


def answer(found: bytes, form: str, shown: "Callable[[bytes], Iterable[RenderableType]]") -> None:
    """Write a part's answer to standard output, as `write` does.

    Args:
        found: the answer in JSON.
        form: `json` and `yaml` give it as it is; any other form is for people.
        shown: the answer for people, in paragraphs and tables.
    """
    import msgspec  # noqa: PLC0415 - as in `document`

    if form == "json":
        write(found.decode() + "\n")
    elif form == "yaml":
        write(document(msgspec.json.decode(found), "yaml"))
    else:
        screen = console()
        for part in shown(found):
            screen.print(part)


class _StandardOutput:
    """The part of a text file that rich uses, over `write`."""

    encoding: Final = "utf-8"

    def write(self, text: str) -> int:
        if text:
            write(text)
        return len(text)

    def flush(self) -> None:
        """Nothing waits: `write` flushes."""

    def isatty(self) -> bool:
        return sys.stdout is not None and sys.stdout.isatty()

    def fileno(self) -> int:
        return sys.stdout.fileno()
