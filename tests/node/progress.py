"""Lines for people about a run on a real node: its times, and what each pod saw."""

import json
import sys


def say(text: str, **facts: object) -> None:
    """Write a line on standard output, where `make e2e-kube` shows it, with facts as JSON."""
    shown = f" {json.dumps(facts, default=str)}" if facts else ""
    sys.stdout.write(f"\nnode: {text}{shown}\n")
    sys.stdout.flush()
