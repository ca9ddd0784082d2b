"""The commands of `plimsoll`: texts, options, and the way from options to the work.

What always holds: a module here imports nothing slow, so help is shown at once. The work of a command is in a module
of `plimsoll_cli` with the command's name, or in the program of another part.
"""

from typing import Final

from plimsoll_cli.commands import changes, cluster, local

COMMANDS: Final = {**cluster.COMMANDS, **changes.COMMANDS, **local.COMMANDS}
"""By their names, in the order of `plimsoll --help`."""
