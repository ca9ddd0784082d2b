"""Runs the tests on a real node: `python -m tests.node [files]`. Without files: builds the images and runs all."""

import os
import sys

from tests.node.namespaces import run_inside
from tests.node.preparing import BrokenError, NotHereError, prepare
from tests.node.progress import say

SKIP_VARIABLE = "SKIP_WITHOUT_NODE"
"""Set where a machine that can run no node is no failure. Packages that cannot be had are one all the same."""


def main() -> int:
    """Run pytest on a node in fresh namespaces; return its exit status, or 1 if this machine cannot run a node."""
    files = sys.argv[1:]
    try:
        prepare(images=not files)
    except NotHereError as error:
        say(f"no node can run here: {error}")
        return 0 if os.environ.get(SKIP_VARIABLE) else 1
    except BrokenError as error:
        say(f"error: {error}")
        return 1
    # Each step prints its time at once; the table in the end has those of the fixtures too, such as the node's start.
    times = ("--durations=0", "--durations-min=1")
    pytest = (sys.executable, "-m", "pytest", "-m", "node", "-s", *times, *(files or ("tests/node",)))
    return run_inside(pytest)


if __name__ == "__main__":
    sys.exit(main())
