"""Compute shares from the manifest to the GPU, for real hooked programs that want all of the emulated GPU."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from plimsoll.native import EMULATOR
from tests.e2e.cluster import ALPHA, KubeCluster, kube_cluster
from tests.e2e.test_resize import PLACE, change, placed
from tests.servers.apiserver import ApiServer
from tests.servers.waiting import until

SPAN_MS = 2000
TOLERANCE_PCT = 8.0
"""Wide, as the machine does other work meanwhile.

The test proves which pod has which share; the bench is accurate.
"""

Json = dict[str, Any]


async def greedy(cluster: KubeCluster, name: str) -> int:
    """Start a program in a pod that wants all of its GPU; returns its pid."""
    program = await cluster.start_in(name, PLACE, "256Mi", "--kernel-ms", "1", "--seconds", "600")
    return program.pid


async def two_looks(cluster: KubeCluster) -> tuple[Json, Json]:
    """Two readings of the emulator's book for alpha's first GPU, a span apart."""
    watcher = await asyncio.create_subprocess_exec(
        *(str(EMULATOR / "book"), "watch", "0", str(SPAN_MS)),
        env={**os.environ, **cluster.local.node_environment(ALPHA)},
        stdout=asyncio.subprocess.PIPE,
    )
    assert watcher.stdout is not None
    try:
        first, second = [json.loads(await watcher.stdout.readline()) for _ in range(2)]
    finally:
        watcher.kill()
        await watcher.wait()
    return first, second


async def used_pct(cluster: KubeCluster, *pids: int) -> list[float]:
    """The percentage of the time in which the GPU executed the work of each of these processes."""
    before, after = await two_looks(cluster)
    span_ns = after["time_ns"] - before["time_ns"]
    spent_ns = [
        {process["pid"]: process["busy_ns"] for process in look["processes"]} for look in (before, after)
    ]
    return [100 * (spent_ns[1].get(pid, 0) - spent_ns[0].get(pid, 0)) / span_ns for pid in pids]


async def until_used(cluster: KubeCluster, wanted: dict[int, float]) -> None:
    """Wait until every process has its share over a whole span."""
    seen: list[list[float]] = []

    async def look() -> bool:
        used = await used_pct(cluster, *wanted)
        seen.append(used)
        return all(
            abs(one - other) <= TOLERANCE_PCT for one, other in zip(used, wanted.values(), strict=True)
        )

    try:
        await until(look)
    except BaseException as error:
        error.add_note(f"wanted {list(wanted.values())}, seen {seen}")
        raise


async def test_shares_hold_as_declared_and_as_changed(
    tmp_path: Path, apiserver: ApiServer, namespace: str
) -> None:
    """Two programs that want all of the GPU get the shares of their pods, and the new ones after a change."""
    async with kube_cluster(tmp_path, apiserver, namespace, names=(ALPHA,)) as cluster:
        await placed(cluster, "small", "1Gi", 30)
        await placed(cluster, "large", "1Gi", 70)
        small, large = await greedy(cluster, "small"), await greedy(cluster, "large")
        await until_used(cluster, {small: 30, large: 70})
        assert (await change(cluster, "large", "--gpu-share", "40"))[0] == 0
        assert (await change(cluster, "small", "--gpu-share", "60"))[0] == 0
        await until_used(cluster, {small: 60, large: 40})
        code, output = await change(cluster, "small", "--gpu-share", "10", "--gpu-share-limit", "20")
        assert code == 0, output
        await until_used(cluster, {small: 20, large: 80})
        assert (await change(cluster, "large", "--gpu-share-limit", "50"))[0] == 0
        await until_used(cluster, {small: 20, large: 50})
