"""A command of `plimsoll`: its texts, its options, and its work; and the one parser of all commands.

What always holds: this module and those in `commands/` import nothing slow, so that `--help`, `--version`, completion
and a misspelt option are answered at once. A command's `run` imports what its work needs. argparse is in Python and
starts in 10 ms; Typer builds on pydantic, which takes 300.
"""

import argparse
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

REFUSED: Final = 2
"""The exit code for input that cannot work, whatever the state of the cluster."""

INTERRUPTED: Final = 130
"""The exit code after Ctrl-C: 128 + SIGINT, as of shells."""

WIDEST: Final = 100
"""Columns of help texts at most: longer lines are hard to read."""

OPTION_COLUMNS: Final = 26


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        description: paragraphs for `--help`, wrapped there; the first sentence stands in the list of commands.
        declare: adds arguments and options to the command's parser.
        run: does the work; gives the exit code.
        exits: the meaning of each exit code.
        passes: another program parses the words after the command.
        remedy: the remedy for unknown options, after a semicolon.
    """

    description: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    exits: Mapping[str, str] = field(default_factory=dict)
    passes: bool = False
    remedy: str = ""


def parsed(command: Command, program: str, words: list[str]) -> argparse.Namespace:
    """The options of a command line, and its words themselves in `words`; exits with 2 where it has mistakes."""
    given = argparse.Namespace(words=words)
    if command.passes:
        return given
    parser = parser_of(command, program)
    _, unknown = parser.parse_known_args(words, given)
    if unknown:
        kind = "options" if any(word.startswith("-") for word in unknown) else "arguments"
        parser.error(f"unknown {kind}: {' '.join(unknown)}{command.remedy and '; '}{command.remedy}")
    return given


def parser_of(command: Command, program: str) -> argparse.ArgumentParser:
    """The parser of one command; `program` is the command line up to it, such as `kubectl plimsoll gpus`."""
    parser = _Parser(
        prog=program,
        description=command.description,
        epilog=exits_shown(command.exits),
        formatter_class=_Formatter,
        allow_abbrev=False,
        add_help=False,
    )
    command.declare(parser)
    parser.add_argument("-h", "--help", action="help", help="show this help")
    return parser


def exits_shown(exits: Mapping[str, str]) -> str:
    """The paragraph of `--help` about exit codes, a line each."""
    return "\n".join(("exit codes:", *(f"  {code:<3} {meaning}" for code, meaning in exits.items())))


class _Parser(argparse.ArgumentParser):
    """Answers a wrong command line in two lines, as a whole usage hides what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(REFUSED, f"{self.prog}: {message}\nSee `{self.prog} --help`.\n")


class _Formatter(argparse.HelpFormatter):
    """Keeps paragraphs apart, and starts with the first column of texts at `OPTION_COLUMNS`."""

    def __init__(self, prog: str) -> None:
        width = min(shutil.get_terminal_size().columns, WIDEST)
        super().__init__(prog, max_help_position=OPTION_COLUMNS, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip().split("\n\n")
        return "\n\n".join(
            one if "\n  " in one else super(_Formatter, self)._fill_text(one, width, indent)
            for one in paragraphs
        )


def listing(program: str, summaries: Mapping[str, str], about: str) -> Sequence[str]:
    """The lines of `plimsoll --help`."""
    widest = max(map(len, summaries))
    commands = [f"  {name:<{widest}}  {summary}" for name, summary in summaries.items()]
    return [
        f"usage: {program} [-h] [--version] COMMAND ...",
        "",
        about,
        "",
        *commands,
        "",
        f"`{program} COMMAND --help` has a command's options and exit codes.",
        f"`{program} completion --help` says how a shell completes them.",
    ]
