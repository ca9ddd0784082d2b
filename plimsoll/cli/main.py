"""The commands of `plimsoll`. Heavy imports stay inside the commands, so that `--help` answers at once."""

import asyncio
import os
import sys
from typing import NoReturn

import typer
from rich.console import Console

from plimsoll.errors import PlimsollError

app = typer.Typer(
    help="Share GPUs safely: places pods where GPU memory and compute really are free, and holds them to it.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def plimsoll() -> None:
    """Hold the options that all commands share; there are none yet."""


@app.command()
def demo() -> None:
    """Run a dozen pods on three emulated nodes, live, in under a minute. Needs no GPU and no cluster."""
    from plimsoll.cli.demo import run_demo  # noqa: PLC0415 - keeps --help fast

    try:
        code = asyncio.run(run_demo(Console()))
    except PlimsollError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        code = 130
    raise typer.Exit(code)


@app.command(
    add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def run() -> None:
    """Run one command on a GPU of this machine, held to its line: `run --gpu-memory 2Gi -- CMD`; `run --help`."""
    # Becomes the placer's own program, which parses the options: signals and exit code are the command's. The words
    # come from sys.argv, as the parser here would swallow the `--`.
    words = sys.argv[sys.argv.index("run") + 1 :]
    os.execv(sys.executable, [sys.executable, "-m", "placer.local", *words])  # noqa: S606 - no shell wanted


def _fail(message: str) -> NoReturn:
    Console(stderr=True).print(f"plimsoll: {message}", style="red", soft_wrap=True, markup=False)
    sys.exit(1)
