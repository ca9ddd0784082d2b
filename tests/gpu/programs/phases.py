"""How the programs here speak with the test that runs them: a JSON line per phase, and a line of input to go on."""

import json
import sys


def tell(phase: str, **facts: object) -> None:
    """Say where the program is."""
    sys.stdout.write(json.dumps({"phase": phase, **facts}) + "\n")
    sys.stdout.flush()


def wait() -> None:
    """Stand still until the test says to go on; its end is the program's end."""
    if not sys.stdin.readline():
        sys.exit(0)
