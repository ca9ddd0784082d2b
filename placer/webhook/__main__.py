"""`python -m placer.webhook`: the webhook, which checks pods with GPUs at their creation and completes them."""

import sys

from placer.webhook import settings
from placer.webhook.app import run
from plimsoll.part.entry import run_part
from plimsoll.part.settings import usage


def main() -> int:
    """Run the webhook. Returns the exit code: 0 after SIGTERM or SIGINT, 2 for settings that cannot work."""
    help_text = usage(__doc__, settings.Settings, settings.PREFIX)
    return run_part("webhook", settings.load, run, help_text)


if __name__ == "__main__":
    sys.exit(main())
