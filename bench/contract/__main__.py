"""`python -m bench.contract`: does the placer allow what kube-scheduler allows, on 500 random clusters?

Progress and each difference go to standard error. Standard output gets one JSON line at last, with the number of
questions by result. The exit status is 1 if the two differ.
"""

import argparse
import asyncio
import json
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp

from bench.measures.progress import say
from tests.cluster import assets
from tests.cluster.build import ensure
from tests.placer.kube.differential import draw
from tests.placer.kube.differential.compare import Tally, compare
from tests.placer.kube.differential.features import ALL
from tests.placer.kube.differential.ground import ground
from tests.placer.kube.differential.shrink import report, shrunk
from tests.servers.apiserver import ApiServer, RefusedError
from tests.servers.control_plane import control_plane

SEEDS: Final = range(1000, 1500)
"""Other seeds than those of `make test`."""
QUICK: Final = range(1000, 1060)
MOST_SHRUNK: Final = 3
"""The differences that are made small; each takes up to a minute."""
TOLD_EVERY_S: Final = 5.0


async def run(seeds: Iterable[int], folder: Path) -> dict[str, Any]:
    """Compare on all seeds; returns the figures."""
    await asyncio.to_thread(ensure, assets.NEEDED)
    tally, began_s, told_s, done = Tally(), time.monotonic(), 0.0, 0
    async with server(folder / "cluster") as api, ground(api, folder) as both:
        for seed in seeds:
            before = len(tally.differences)
            try:
                await compare(both, draw.scenario(seed, ALL), tally)
            except RefusedError as error:
                tally.counts["invalid"] += 1
                say(f"seed {seed} draws what the API server refuses: {error}")
            for found in tally.differences[before:]:
                small = await shrunk(both, found) if len(tally.differences) <= MOST_SHRUNK else found
                say(report(small))
            done += 1
            if time.monotonic() - told_s > TOLD_EVERY_S:
                told_s = time.monotonic()
                say(f"{done} seeds: {dict(tally.counts)}")
    return {
        "seeds": done,
        "questions": tally.counts.total(),
        **{f"{name}_count": tally.counts[name] for name in RESULTS},
        "different_seeds": [found.scenario.seed for found in tally.differences],
        "seconds": round(time.monotonic() - began_s, 1),
    }


RESULTS: Final = ("placed", "unschedulable", "different", "invalid")


@asynccontextmanager
async def server(folder: Path) -> AsyncIterator[ApiServer]:
    """An API server of its own."""
    async with control_plane(folder) as plane:
        context = await asyncio.to_thread(ssl.create_default_context, cafile=plane.ca_file)
        async with aiohttp.ClientSession(plane.url, connector=aiohttp.TCPConnector(ssl=context)) as http:
            yield ApiServer(plane, http)


def main() -> int:
    """Compare, and end with one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m bench.contract", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="60 seeds instead of 500")
    parser.add_argument(
        "--seed", type=int, action="append", help="only this seed; may be given several times"
    )
    given = parser.parse_args()
    seeds = given.seed or (QUICK if given.quick else SEEDS)
    with tempfile.TemporaryDirectory(prefix="plimsoll-contract-") as folder:
        found = asyncio.run(run(seeds, Path(folder)))
    print(json.dumps(found))
    failed = found["different_count"] or found["invalid_count"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
