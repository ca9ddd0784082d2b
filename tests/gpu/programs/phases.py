"""The programs here print a JSON line per phase, and wait for a line of input before they go on."""

import json
import sys


def tell(phase: str, **facts: object) -> None:
    """Report a phase to the test."""
    sys.stdout.write(json.dumps({"phase": phase, **facts}) + "\n")
    sys.stdout.flush()


def wait() -> None:
    """Wait until the test sends a line. The program ends if the test does."""
    if not sys.stdin.readline():
        sys.exit(0)
