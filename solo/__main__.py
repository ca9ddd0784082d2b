"""`python -m solo --gpu-memory 2Gi --gpu-share 30 -- CMD`: what `plimsoll run` executes."""

import asyncio
import os
import signal
import sys
from dataclasses import fields
from typing import Final

from plimsoll.broker.root import default_root
from plimsoll.native import HOOK_LIBRARY
from plimsoll.part.errors import BAD_INPUT, InputError, PlimsollError, errors_in
from plimsoll.part.log import log_plainly
from plimsoll.part.settings import raise_all
from plimsoll.part.variables import unknown_variables
from plimsoll_cli.command import parsed
from plimsoll_cli.commands.run import COMMAND
from solo.machine import NoGpuError
from solo.options import RunOptions
from solo.private_broker import PrivateBrokerError
from solo.run import NeverRoomError, NoRoomError, run_command

NO_ROOM: Final = 75
"""EX_TEMPFAIL of sysexits.h: the same command may work later."""


def options_of(arguments: list[str]) -> RunOptions:
    """Read a command line as `plimsoll run` does; exits with code 2 and a message where it has mistakes."""
    given = vars(parsed(COMMAND, "plimsoll run", arguments))
    known = {field.name: given[field.name] for field in fields(RunOptions) if field.name in given}
    known["command"] = tuple(given["command"])
    known["broker_root"] = given["broker_root"] or default_root()
    known["hook_library"] = given["hook_library"] or HOOK_LIBRARY
    return RunOptions(environment=dict(os.environ), **known)


def main(arguments: list[str] | None = None) -> int:
    """Run a command.

    Returns:
        The command's exit code; 2 for bad input, and for what no GPU here ever has; 75 for no room now; 1 for any
        other error.
    """
    log_plainly()
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
    is_input = isinstance(error, InputError | NoGpuError | NeverRoomError) or (
        isinstance(error, PrivateBrokerError) and error.is_input
    )
    return BAD_INPUT if is_input else 1


if __name__ == "__main__":
    sys.exit(main())
