"""`python -m hook.broker`: the broker as a process; settings come from `PLIMSOLL_BROKER_…`."""

import sys

from hook.broker.app import run
from hook.broker.settings import PREFIX, Settings
from plimsoll.part.entry import run_part
from plimsoll.part.processes import allow_many_files
from plimsoll.part.settings import load


def main() -> int:
    """Run the broker; 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    allow_many_files()
    return run_part("broker", lambda environment: load(Settings, environment, PREFIX), run)


if __name__ == "__main__":
    sys.exit(main())
