"""`python -m placer`: the placer as a process; settings come from `PLIMSOLL_…`, see `placer.settings`."""

import os
import sys

from placer import settings
from placer.app import run
from plimsoll.part.entry import run_part


def main() -> int:
    """Run the placer. Returns the exit code: 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    return run_part("placer", settings.load, lambda given, stop: run(given, os.environ, stop))


if __name__ == "__main__":
    sys.exit(main())
