"""`make chaos`: a long run, its progress on the terminal, and one JSON line at the end."""

import argparse
import asyncio
import json
import secrets
import sys
from pathlib import Path

from tests.chaos.plan import FAULTS
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
    parser.add_argument("--only", default="", help="the faults that come, with commas (default: all)")
    parser.add_argument("--pods-per-s", type=float, default=8.0)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else secrets.randbelow(1_000_000)
    without, only = (
        frozenset(name.strip() for name in text.split(",") if name.strip())
        for text in (given.without, given.only)
    )
    if unknown := sorted(only - FAULTS.keys()):
        parser.error(f"--only: {unknown[0]!r} is no fault; choose of {', '.join(FAULTS)}")
    options = Options(seed, given.seconds, given.placers, without, pods_per_s=given.pods_per_s, only=only)
    print(f"{options.replay()}", flush=True)
    summary = asyncio.run(run(options, Path("build/chaos").absolute() / str(seed)))
    print(json.dumps(summary), flush=True)
    return 1 if summary["findings"] else 0


if __name__ == "__main__":
    sys.exit(main())
