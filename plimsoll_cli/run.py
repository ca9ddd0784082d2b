"""The work of `plimsoll run`: options become a command of `solo`, and its outcome an exit code."""

import argparse
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
from solo.machine import NoGpuError
from solo.options import RunOptions
from solo.private_broker import PrivateBrokerError
from solo.run import NeverRoomError, NoRoomError, run_command

NO_ROOM: Final = 75
"""EX_TEMPFAIL of sysexits.h: the same command may work later."""


def run(given: argparse.Namespace) -> int:
    """Run a command in this process's place.

    Returns:
        The command's exit code; 2 for bad input, and for what no GPU here ever has; 75 for no room now; 1 for any
        other error.
    """
    log_plainly()
    try:
        return asyncio.run(run_command(_options_of(given)))
    except asyncio.CancelledError:  # a signal before the command was started
        return 128 + signal.SIGTERM
    except (PlimsollError, ExceptionGroup) as error:
        return max(map(_failed, errors_in(error, PlimsollError)))


def _options_of(given: argparse.Namespace) -> RunOptions:
    words = vars(given)
    known = {field.name: words[field.name] for field in fields(RunOptions) if field.name in words}
    known["command"] = tuple(given.command)
    known["broker_root"] = given.broker_root or default_root()
    known["hook_library"] = given.hook_library or HOOK_LIBRARY
    return RunOptions(environment=dict(os.environ), **known)


def _failed(error: PlimsollError) -> int:
    """Write one line, and give the exit code."""
    sys.stderr.write(f"plimsoll run: {error}\n")
    if isinstance(error, NoRoomError):
        return NO_ROOM
    is_input = isinstance(error, InputError | NoGpuError | NeverRoomError) or (
        isinstance(error, PrivateBrokerError) and error.is_input
    )
    return BAD_INPUT if is_input else 1
