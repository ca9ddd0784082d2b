"""`python -m placer`: the placer, which chooses a node and its GPUs for each pod."""

import os
import sys

from placer import settings
from placer.app import run
from plimsoll.part.entry import run_part
from plimsoll.part.settings import usage


def main() -> int:
    """Run the placer. Returns the exit code: 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    help_text = usage(__doc__, settings.Settings)
    return run_part("placer", settings.load, lambda given, stop: run(given, os.environ, stop), help_text)


if __name__ == "__main__":
    sys.exit(main())
