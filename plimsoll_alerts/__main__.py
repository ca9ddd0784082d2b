"""`plimsoll alerts`: what goes wrong with GPUs, as alerts of Alertmanager that fire until it has ended.

Reads the events from NATS (PLIMSOLL_NATS_URL, PLIMSOLL_NATS_CA and so on, as all parts do).
"""

import sys

from plimsoll.part.entry import run_part
from plimsoll.part.settings import usage
from plimsoll_alerts import settings
from plimsoll_alerts.app import run


def main() -> int:
    """Run the service. Returns the exit code: 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    help_text = usage(__doc__, settings.Settings, settings.PREFIX)
    return run_part("alerts", settings.load, run, help_text)


if __name__ == "__main__":
    sys.exit(main())
