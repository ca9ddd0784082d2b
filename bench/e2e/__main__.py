"""`python -m bench.e2e [--quick]`: pods of ours beside pods of default-scheduler on one real kubelet. As root.

Progress goes to standard error, and the last line of standard output is one JSON line; see bench/results/README.md.
"""

import sys

from bench.e2e.parts import selection
from tests.node.namespaces import run_inside
from tests.node.preparing import BrokenError, NotHereError, prepare


def main() -> int:
    """Prepare what a node needs, measure in namespaces of its own, and return the exit status."""
    selection(sys.argv[1:], __doc__)
    try:
        prepare(images=True)
    except (NotHereError, BrokenError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return run_inside((sys.executable, "-m", "bench.e2e.inside", *sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
