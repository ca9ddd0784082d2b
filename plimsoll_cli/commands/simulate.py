"""`plimsoll simulate`: this process becomes the simulator, which reads its own options."""

import argparse
import os
import signal
import sys

from plimsoll_cli.command import Command


def _run(given: argparse.Namespace) -> int:
    from plimsoll.part.program import program_of  # noqa: PLC0415 - keeps the list of commands fast

    # Until the simulator can end silently, Ctrl-C waits: an interpreter that starts would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    os.execv(sys.executable, [*program_of("simulator"), "--as", "plimsoll simulate", *given.words])  # noqa: S606 - no shell wanted


COMMAND = Command(description="", declare=lambda _: None, run=_run, passes=True)
