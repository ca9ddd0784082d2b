"""`plimsoll completion`."""

import argparse

from plimsoll_cli import output
from plimsoll_cli.command import Command


def _declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="your shell")


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli.completion import SCRIPTS  # noqa: PLC0415 - keeps --help fast

    output.write(SCRIPTS[given.shell])
    return 0


COMMAND = Command(
    description="""Print the script by which a shell completes commands, options and their values.

bash: `source <(plimsoll completion bash)`, in ~/.bashrc to keep it. zsh: `source <(plimsoll completion zsh)`, after
compinit. fish: `plimsoll completion fish | source`.""",
    declare=_declare,
    run=_run,
    exits={"0": "printed"},
)
