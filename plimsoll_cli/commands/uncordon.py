"""`plimsoll uncordon`."""

import argparse

from plimsoll_cli.command import Command
from plimsoll_cli.commands.cordon import EXITS, RIGHTS, declare_gpu, run


def _run(given: argparse.Namespace) -> int:
    from plimsoll_cli import cordon  # noqa: PLC0415 - keeps --help fast

    return run(given, cordon.uncordon)


COMMAND = Command(
    description=f"""Let a cordoned GPU take pods again.

The UUID of a card that was taken out can be named too, which ends its cordon. {RIGHTS}""",
    declare=declare_gpu,
    run=_run,
    exits=EXITS,
)
