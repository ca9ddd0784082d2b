"""`python -m bench.webhook [--quick]`: the webhook's answers at 200 reviews a second over TLS.

The webhook runs as its own process, with a certificate of its own in a real API server. Reviews of realistic pods
go to it at a fixed rate, whether or not earlier ones were answered, over connections that are kept, as API servers
do. A time counts from the moment at which its review was due, so a stop of the webhook costs every review that it
delays. Reviews that need no change, refusals, and pods in another scheduler's way are among them. Every answer is
checked.
"""

import argparse
import asyncio
import gc
import json
import os
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from bench.measures.percentile import percentile
from bench.measures.process_cost import CpuMeter, resident_mib
from bench.placer.servers import session
from bench.webhook.load import RATE_PER_S, measure
from bench.webhook.process import Webhook, webhook
from bench.webhook.reviews import Json, ReviewCase, cases
from tests.cluster import assets
from tests.cluster.build import ensure
from tests.servers.control_plane import control_plane

CONNECTIONS: Final = 16
"""An API server opens a connection for each review that none is free for, and keeps a hundred."""
WARM_UP: Final = 200
"""Reviews before the first round: connections are opened, and code is loaded."""


@dataclass(slots=True)
class Rounds:
    """The times of all answers in ms, and the webhook's CPU time."""

    took_ms: list[float] = field(default_factory=list)
    used_s: float = 0.0


async def run(rounds: int, seconds: float) -> Json:
    """All rounds; returns the figures."""
    given = cases()
    with tempfile.TemporaryDirectory(prefix="plimsoll-webhook-") as folder:
        async with (
            control_plane(Path(folder)) as plane,
            session(plane) as api,
            webhook(plane, api) as process,
        ):
            found = await _measured(process, given, rounds, seconds)
            return {
                "p50_ms": round(statistics.median(found.took_ms), 2),
                "p99_ms": round(percentile(found.took_ms, 99), 2),
                "max_ms": round(max(found.took_ms), 2),
                "reviews": len(found.took_ms),
                "rate_per_s": RATE_PER_S,
                "review_bytes": round(statistics.mean(len(case.body) for case in given)),
                "cpu_ms_per_review": round(found.used_s * 1000 / len(found.took_ms), 3),
                "resident_mib": round(resident_mib(process.pid), 1),
                "load": round(os.getloadavg()[0], 2),
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }


async def _measured(process: Webhook, given: Sequence[ReviewCase], rounds: int, seconds: float) -> Rounds:
    """Send the reviews, in rounds of this length."""
    context = ssl.create_default_context(cadata=process.authority)
    connector = aiohttp.TCPConnector(ssl=context, limit=CONNECTIONS)
    url, found = f"https://127.0.0.1:{process.port}/review", Rounds()
    async with aiohttp.ClientSession(connector=connector) as http:
        await measure(http, url, given, WARM_UP / RATE_PER_S)
        for at in range(rounds):
            gc.collect()
            gc.freeze()  # else this program's own collections would count
            cpu_meter = CpuMeter(process.pid)
            now_ms = await measure(http, url, given, seconds)
            found.used_s += cpu_meter.cpu_s()
            found.took_ms += now_ms
            line = f"p50 {statistics.median(now_ms):.2f} ms, p99 {percentile(now_ms, 99):.2f} ms"
            print(
                f"round {at + 1}: {len(now_ms)} reviews, {line}, most {max(now_ms):.2f} ms", file=sys.stderr
            )
    return found


def main() -> int:
    """Measure, print progress to standard error, and end with one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m bench.webhook", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round of 5 s in place of three of 30 s")
    quick = parser.parse_args().quick
    ensure(assets.NEEDED)
    print(json.dumps(asyncio.run(run(1, 5.0) if quick else run(3, 30.0))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
