"""`python -m placer.pool`: the pool, which takes GPUs from NVIDIA's device plugin for pods that share them."""

import sys

from placer.pool import settings
from placer.pool.app import run
from plimsoll.part.entry import run_part
from plimsoll.part.settings import usage


def main() -> int:
    """Run the controller. Returns the exit code: 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    help_text = usage(__doc__, settings.Settings, settings.PREFIX)
    return run_part("pool", settings.load, run, help_text)


if __name__ == "__main__":
    sys.exit(main())
