"""`python -m bench.e2e.inside`: the measurements in the namespaces of a node, where `python -m bench.e2e` runs it."""

import argparse
import asyncio
import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from bench.e2e import creation, program
from bench.e2e.timeline import watching
from tests.node.node import Node, running_node
from tests.node.places import directory
from tests.node.release import installed

Json = dict[str, Any]

ROUNDS = {1: 20, 5: 8, 10: 5, 20: 4}
QUICK_ROUNDS = {1: 6, 5: 2, 10: 1, 20: 1}
"""Rounds by the number of pods that are created at once."""
PAIRS, QUICK_PAIRS = 40, 8
"""Runs of the program on each side."""


async def main(place: Path, *, quick: bool) -> Json:
    """Start the node, install the chart, measure, and return the figures."""
    began_s = time.monotonic()
    async with running_node(place) as node, installed(node, monitor={}, broker={}):
        print(f"node and release after {time.monotonic() - began_s:.0f} s", file=sys.stderr)
        namespace = await _namespace(node)
        found: Json = {}
        async with watching(node, namespace) as timeline:
            await creation.compare(node, namespace, timeline, 1, 1)  # warms up
            for count, rounds in (QUICK_ROUNDS if quick else ROUNDS).items():
                figures = await creation.compare(node, namespace, timeline, count, rounds)
                found[f"create_ratio_{count}"] = figures.pop("ratio")
                found[f"create_{count}"] = figures
        figures = await program.compare(node, namespace, QUICK_PAIRS if quick else PAIRS)
        found["program_overhead_pct"] = figures.pop("overhead_pct")
        found["program"] = figures
        await node.remove_namespace(namespace)
    return {
        **found,
        "quick": quick,
        "took_s": round(time.monotonic() - began_s),
        "load": round(os.getloadavg()[0], 2),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


async def _namespace(node: Node) -> str:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await node.until_account(name)
    return name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    place = directory()
    assert place is not None, "run `make bench-e2e`: it makes the node's namespaces"
    print(json.dumps(asyncio.run(main(place, quick=parser.parse_args().quick))))
