"""`python -m solo --gpu-memory 2Gi --gpu-share 30 -- CMD`: what `plimsoll run` executes."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

from plimsoll.broker.root import default_root
from plimsoll.native import HOOK_LIBRARY
from plimsoll.part.errors import InputError, PlimsollError, errors_in
from plimsoll.part.settings import raise_all
from plimsoll.part.variables import unknown_variables
from solo.machine import NoGpuError
from solo.options import MEMORY_VARIABLE, RunOptions, default_shown
from solo.private_broker import PrivateBrokerError
from solo.run import NoRoomError, run_command

NO_ROOM: Final = 75
"""EX_TEMPFAIL of sysexits.h: the same command may work later."""
BAD_INPUT: Final = 2


def options_of(arguments: list[str]) -> RunOptions:
    """Read a command line; exits with code 2 and a message where the options cannot be read."""
    parser = argparse.ArgumentParser(
        prog="plimsoll run",
        description="Run a command on a GPU of this machine, held to what it declares. Needs no Kubernetes, no bus "
        "and no placer; where no broker answers, one is started for as long as commands use it.",
        epilog="Exit code: the command's (128 + n after signal n); 2: bad input, or a command that cannot be "
        "started; 75: no GPU has room now; 1: any other error.",
    )
    parser.add_argument(
        "--gpu-memory",
        help="GPU memory in total, for instance 2Gi. By precedence: this option; the environment's "
        f"{MEMORY_VARIABLE}; {default_shown()} per GPU. (The label of a container image cannot be "
        "read here: there is no container runtime to ask)",
    )
    parser.add_argument(
        "--gpu-share",
        help="percent of one GPU's compute time guaranteed, in total, for instance 30; "
        "commands' shares of a GPU never pass 100 together",
    )
    parser.add_argument(
        "--gpu", help="the number of GPUs (default: 1); whole GPUs if neither memory nor a share is given"
    )
    parser.add_argument(
        "--gpu-share-limit",
        help="the most compute time on each GPU, in percent (default: 100), even if others leave more",
    )
    parser.add_argument("--gpu-id", help="the UUID of the GPU to use")
    parser.add_argument("--gpu-model", help="acceptable GPU models, separated by commas")
    parser.add_argument(
        "--best-effort", action="store_true", help="declare no memory: use the memory that is left"
    )
    parser.add_argument("--policy", help="the policy that chooses among GPUs that fit")
    parser.add_argument("--name", help="the name for `plimsoll resize` (default: the program's name)")
    parser.add_argument(
        "--broker-root", type=Path, default=default_root(), help="the broker's directory (%(default)s)"
    )
    parser.add_argument(
        "--hook-library", type=Path, default=HOOK_LIBRARY, help="libplimsoll.so (default: %(default)s)"
    )
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="program and arguments, after --")
    known, unknown = parser.parse_known_args(arguments)
    if unknown:
        parser.error(f"unknown options: {' '.join(unknown)}; put -- before a command that has options")
    given = vars(known)
    return RunOptions(environment=dict(os.environ), **{**given, "command": tuple(given["command"])})


def main(arguments: list[str] | None = None) -> int:
    """Run a command.

    Returns:
        The command's exit code; 2 for bad input, 75 for no room, 1 for any other error.
    """
    try:
        options = options_of(sys.argv[1:] if arguments is None else arguments)
        raise_all(unknown_variables(options.environment))
        return asyncio.run(run_command(options))
    except asyncio.CancelledError:  # a signal before the command was started
        return 128 + signal.SIGTERM
    except (PlimsollError, ExceptionGroup) as error:
        return max(map(_failed, errors_in(error, PlimsollError)))


def _failed(error: PlimsollError) -> int:
    """Write one line, and give the exit code."""
    sys.stderr.write(f"plimsoll run: {error}\n")
    if isinstance(error, NoRoomError):
        return NO_ROOM
    is_input = isinstance(error, InputError | NoGpuError) or (
        isinstance(error, PrivateBrokerError) and error.is_input
    )
    return BAD_INPUT if is_input else 1


if __name__ == "__main__":
    sys.exit(main())
