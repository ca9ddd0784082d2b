"""`make chaos`: a long run, its progress on the terminal, and one JSON line at the end."""

import argparse
import asyncio
import json
import secrets
import sys
from pathlib import Path

from tests.chaos.run import Options, run


def main() -> int:
    """Run; 0 if nothing was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long things break")
    parser.add_argument("--seed", type=int, default=None, help="default: another one each time")
    parser.add_argument("--placers", type=int, default=2)
    parser.add_argument(
        "--without", default="", help="faults to leave out, with commas; `edits` for tenants' edits"
    )
    parser.add_argument("--pods-per-s", type=float, default=8.0)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    without = frozenset(name.strip() for name in given.without.split(",") if name.strip())
    options = Options(seed, given.seconds, given.placers, without, pods_per_s=given.pods_per_s)
    print(f"{options.replay()}", flush=True)
    summary = asyncio.run(run(options, Path("build/chaos").absolute() / str(seed)))
    print(json.dumps(summary), flush=True)
    return 1 if summary["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
