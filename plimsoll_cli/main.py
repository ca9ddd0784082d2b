"""The entry of `plimsoll` and of `kubectl plimsoll`: finds the command, and turns its outcome into an exit code."""

import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from plimsoll.part.errors import InputError, PlimsollError
from plimsoll.part.limits import limit_of
from plimsoll.part.program import leave_current_folder
from plimsoll.part.variables import unknown_variables
from plimsoll_cli import output
from plimsoll_cli.command import INTERRUPTED, REFUSED, listing, parsed
from plimsoll_cli.commands import COMMANDS

ABOUT: Final = (
    "Share GPUs safely: places pods where GPU memory and compute really are free, and holds them to it."
)
COMPLETE: Final = "__complete"
"""The word by which a shell's completion asks for candidates."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Returns the exit code."""
    leave_current_folder()
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="replace")  # type: ignore[union-attr] # both are text files
    try:
        return _run(program(), words)
    except output.OutputClosedError as error:
        return error.code
    except PlimsollError as error:
        return output.fail(str(error), REFUSED if isinstance(error, InputError) else 1)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if (limit := limit_of(error)) is None:
            raise
        _silence()
        return output.fail(limit)


def _silence() -> None:
    """Let nothing follow our line: an event loop that met a limit cannot clean up, and says so in three ways."""
    if (logging := sys.modules.get("logging")) is not None:
        logging.disable()
    sys.unraisablehook = lambda _: None
    warnings.simplefilter("ignore")


def program() -> str:
    """The command as the user typed it."""
    return "kubectl plimsoll" if Path(sys.argv[0]).name.startswith("kubectl") else "plimsoll"


def _run(program: str, words: list[str]) -> int:
    name = words[0] if words else "--help"
    if name == COMPLETE:
        from plimsoll_cli.completion import candidates  # noqa: PLC0415 - only at a Tab

        output.lines(*candidates(words[1:]))
        return 0
    if name in ("-h", "--help", "help"):
        output.lines(*listing(program, COMMANDS, ABOUT))
        return 0
    if name == "--version":
        output.lines(f"plimsoll {_version()}")
        return 0
    if name not in COMMANDS:
        return _unknown(program, name)
    if problems := list(unknown_variables(os.environ)):
        return output.fail("\nplimsoll: ".join(map(str, problems)), REFUSED)
    command = COMMANDS[name]
    return command.run(parsed(command, f"{program} {name}", words[1:]))


def _unknown(program: str, name: str) -> int:
    import difflib  # noqa: PLC0415 - only after a mistake

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"did you mean `{program} {near[0]}`?" if near else f"see `{program} --help`"
    kind = "option" if name.startswith("-") else "command"
    return output.fail(f"{name!r} is no {kind}; {hint}", REFUSED)


def _version() -> str:
    import importlib.metadata  # noqa: PLC0415 - takes 20 ms

    try:
        return importlib.metadata.version("plimsoll")
    except importlib.metadata.PackageNotFoundError:
        return "(from a source tree that is not installed)"
