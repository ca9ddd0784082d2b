"""`python -m monitor`: the monitor as a process; settings come from `PLIMSOLL_…`."""

import sys

from monitor import settings
from monitor.app import run
from plimsoll.part.entry import run_part
from plimsoll.part.processes import allow_many_files


def main() -> int:
    """Run the monitor; 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    allow_many_files()
    return run_part("monitor", settings.load, run)


if __name__ == "__main__":
    sys.exit(main())
