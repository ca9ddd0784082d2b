"""`python -m bench.e2e [--quick]`: pods of ours beside pods of default-scheduler on one real kubelet. As root.

Progress goes to standard error, and the last line of standard output is one JSON line; see bench/results/README.md.
"""

import argparse
import sys

from tests.node.namespaces import run_inside
from tests.node.preparing import BrokenError, NotHereError, prepare


def main() -> int:
    """Prepare what a node needs, measure in namespaces of its own, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, in under five minutes")
    quick = parser.parse_args().quick
    try:
        prepare(images=True)
    except (NotHereError, BrokenError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return run_inside((sys.executable, "-m", "bench.e2e.inside", *(("--quick",) if quick else ())))


if __name__ == "__main__":
    sys.exit(main())
