"""`python -m monitor`: the monitor, which publishes the GPUs of a node and the tasks on them as events."""

import sys

from monitor import settings
from monitor.app import run
from plimsoll.part.entry import run_part
from plimsoll.part.processes import allow_many_files
from plimsoll.part.settings import usage


def main() -> int:
    """Run the monitor; 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    allow_many_files()
    return run_part("monitor", settings.load, run, usage(__doc__, settings.Settings))


if __name__ == "__main__":
    sys.exit(main())
