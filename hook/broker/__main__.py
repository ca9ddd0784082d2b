"""`python -m hook.broker`: the broker, which holds the containers of a node to their GPU memory and compute time."""

import sys

from hook.broker.app import run
from hook.broker.settings import PREFIX, Settings, load
from plimsoll.part.entry import run_part
from plimsoll.part.processes import allow_many_files
from plimsoll.part.settings import usage


def main() -> int:
    """Run the broker; 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    allow_many_files()
    help_text = usage(__doc__, Settings, PREFIX)
    return run_part("broker", load, run, help_text)


if __name__ == "__main__":
    sys.exit(main())
