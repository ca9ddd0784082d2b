"""`python -m bench.e2e.inside`: the measurements in the namespaces of a node, where `python -m bench.e2e` runs it."""

import asyncio
import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from bench.e2e import program
from bench.e2e.creation import Comparison, settle
from bench.e2e.parts import CREATION, NEW_VGPU, PROGRAM, Selection, selection
from bench.e2e.pod_kinds import WHOLE_CARD
from bench.e2e.timeline import watching
from tests.node.node import Node, running_node
from tests.node.places import directory
from tests.node.pool import NAMESPACE, running_plugin
from tests.node.release import installed

Json = dict[str, Any]

ROUNDS = {1: 20, 5: 8, 10: 5, 20: 4}
QUICK_ROUNDS = {1: 6, 5: 2, 10: 1, 20: 1}
"""Rounds by the number of pods that are created at once."""
NEW_VGPU_ROUNDS, QUICK_NEW_VGPU_ROUNDS = 8, 3
PAIRS, QUICK_PAIRS = 40, 8
"""Runs of the program on each side."""


async def main(place: Path, chosen: Selection) -> Json:
    """Start the node, measure the chosen parts, and return the figures."""
    began_s = time.monotonic()
    found: Json = {}
    async with running_node(place) as node:
        print(f"node after {time.monotonic() - began_s:.0f} s", file=sys.stderr)
        if chosen.parts & {CREATION, PROGRAM}:
            async with installed(node, monitor={}, broker={}):
                found |= await _without_pool(node, chosen)
        if NEW_VGPU in chosen.parts:
            found |= await _new_vgpu(node, chosen)
    return {
        **found,
        "parts": sorted(chosen.parts),
        "quick": chosen.is_quick,
        "took_s": round(time.monotonic() - began_s),
        "load": round(os.getloadavg()[0], 2),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


async def _without_pool(node: Node, chosen: Selection) -> Json:
    found: Json = {}
    async with _namespace(node) as namespace:
        if CREATION in chosen.parts:
            async with watching(node, namespace) as timeline:
                comparison = Comparison(node, namespace, timeline)
                await comparison.compare(1, 1)  # warms up
                for count, rounds in (QUICK_ROUNDS if chosen.is_quick else ROUNDS).items():
                    if count in chosen.counts:
                        figures = await comparison.compare(count, rounds)
                        found[f"create_ratio_{count}"] = figures.pop("ratio")
                        found[f"create_{count}"] = figures
        if PROGRAM in chosen.parts:
            figures = await program.compare(node, namespace, QUICK_PAIRS if chosen.is_quick else PAIRS)
            found["program_overhead_pct"] = figures.pop("overhead_pct")
            found["program"] = figures
    return found


async def _new_vgpu(node: Node, chosen: Selection) -> Json:
    """Pods of ours for which the pool takes a GPU from the device plugin, beside pods that ask it for a whole card.

    Each pod is alone, and the GPU goes back before the next one.
    """
    values: Json = {"pool": {"enabled": True, "namespace": NAMESPACE}, "monitor": {}, "broker": {}}
    async with (
        running_plugin(node) as pool,
        installed(node, **values),
        _namespace(node) as namespace,
        watching(node, namespace) as timeline,
    ):

        async def settled() -> None:
            await pool.until_cards()
            await settle()

        comparison = Comparison(node, namespace, timeline, WHOLE_CARD, settled)
        await comparison.compare(1, 1)  # warms up
        figures = await comparison.compare(1, QUICK_NEW_VGPU_ROUNDS if chosen.is_quick else NEW_VGPU_ROUNDS)
    return {"create_ratio_new_vgpu": figures.pop("ratio"), "create_new_vgpu": figures}


@contextlib.asynccontextmanager
async def _namespace(node: Node) -> AsyncIterator[str]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    await node.api.must("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await node.until_account(name)
    yield name
    await node.remove_namespace(name)


if __name__ == "__main__":
    place = directory()
    assert place is not None, "run `make bench-e2e`: it makes the node's namespaces"
    print(json.dumps(asyncio.run(main(place, selection(sys.argv[1:])))))
