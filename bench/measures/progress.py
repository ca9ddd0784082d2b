"""Progress on standard error, with the time of day: standard output is for results."""

import sys
import time


def say(text: str) -> None:
    """Report progress."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
