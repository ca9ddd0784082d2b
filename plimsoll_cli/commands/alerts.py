"""`plimsoll alerts`: this process becomes the service, which reads variables and no options."""

import argparse
import os
import sys

from plimsoll_cli.command import Command


def _run(given: argparse.Namespace) -> int:
    from plimsoll.part.program import program_of  # noqa: PLC0415 - keeps the list of commands fast

    os.execv(sys.executable, [*program_of("plimsoll_alerts"), *given.words])  # noqa: S606 - no shell wanted


COMMAND = Command(description="", declare=lambda _: None, run=_run, passes=True)
