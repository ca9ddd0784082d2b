"""Completion: the candidates for the word at the cursor, and a shell's script that asks for them.

What always holds: the candidates come from the parsers themselves, so no list can be out of date.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import Final

from plimsoll_cli.command import parser_of
from plimsoll_cli.commands import SUMMARIES, command_of

SCRIPTS: Final = {
    "bash": """\
_plimsoll() {
  local IFS=$'\\n'
  COMPREPLY=($("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _plimsoll plimsoll
""",
    "zsh": """\
_plimsoll() {
  local -a found
  found=(${(f)"$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
compdef _plimsoll plimsoll
""",
    "fish": """\
complete -c plimsoll -a '(plimsoll __complete (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
""",
}
"""The script of each shell. Without a candidate, the shell completes names of files."""

KUBECTL_FILES, KUBECTL_NO_FILES = ":0", ":4"
"""The last line for kubectl, in the protocol of its library cobra: whether names of files are candidates."""


def candidates(words: Sequence[str]) -> Iterator[str]:
    """The candidates for the last of the words after `plimsoll`, which may be empty; none for names of files."""
    *before, current = words or [""]
    if not before:
        yield from (one for one in (*SUMMARIES, "--help", "--version") if one.startswith(current))
    elif before[0] in SUMMARIES and "--" not in before:
        yield from _of_command(before[0], before[1:], current)


def _of_command(name: str, before: list[str], current: str) -> Iterator[str]:
    actions = parser_of(command_of(name), name)._actions  # noqa: SLF001 - argparse has no public list of them
    options = {text: action for action in actions for text in action.option_strings}
    taking = options.get(before[-1]) if before else None
    option, equals, value = current.partition("=")
    if taking is not None and taking.nargs != 0:
        yield from _values(taking, current)
    elif equals and option in options:
        yield from (f"{option}={one}" for one in _values(options[option], value))
    elif current.startswith("-"):
        yield from (text for text in options if text.startswith(current))
    else:
        yield from (
            one for action in actions if not action.option_strings for one in _values(action, current)
        )


def _values(action: argparse.Action, current: str) -> Iterator[str]:
    yield from (str(one) for one in action.choices or () if str(one).startswith(current))


def kubectl() -> int:
    """The program `kubectl_complete-plimsoll`, which kubectl asks for candidates. Returns the exit code."""
    import sys  # noqa: PLC0415 - the only use

    from plimsoll_cli import output  # noqa: PLC0415 - likewise

    found = list(candidates(sys.argv[1:]))
    output.lines(*found, KUBECTL_NO_FILES if found else KUBECTL_FILES)
    return 0
