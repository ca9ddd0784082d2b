"""The delay from a program's first context to the new score in the placer's list in Redis.

The event passes the preload library, the broker, the monitor's reading of NVML, its outbox on disk, NATS, the
placer's intake, and Redis. Programs start one after another under the library on one emulated node. The clock
starts when a program reports its context, and stops when the node's order in Redis has moved on. A monitor that
polls every 30 s, as others do, needs 15 s on average.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final

import redis.asyncio as redis

from plimsoll.broker.client import BrokerClient
from plimsoll.broker.pages import COUNTS_DIR_VARIABLE, LIMITS_DIR_VARIABLE
from plimsoll.broker.wire import ContainerLines, Line, Register
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.native import HOOK_LIBRARY, PROGRAMS
from plimsoll.placer_api import redis_keys as keys
from plimsoll.quantity import GIB
from plimsoll_cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster, gpu_uuid

STARTS: Final = 60
LOOK_S: Final = 0.0002
PATIENCE_S: Final = 30.0
NODE: Final = NodeName("alpha")
GPU: Final = GpuUuid(gpu_uuid(NODE, 0))


async def order_of(list_: "redis.Redis") -> str:
    """Epoch and seq of the node's last report in Redis."""
    return str(await list_.hget(keys.ORDER, NODE))


async def one_start(cluster: LocalCluster, broker: BrokerClient, list_: "redis.Redis") -> float:
    """Milliseconds from a program's first context to its report in Redis."""
    pod = PodUid(str(uuid.uuid4()))
    lines = ContainerLines(name=ContainerName("main"), lines=(Line(gpu=GPU, line_bytes=4 * GIB),))
    laid_out = await broker.register(Register(pod=pod, namespace="bench", name="start", containers=(lines,)))
    environment = {
        **os.environ,
        **cluster.node_environment(NODE),
        "LD_PRELOAD": str(HOOK_LIBRARY),
        LIMITS_DIR_VARIABLE: laid_out.containers[0].limits_dir,
        COUNTS_DIR_VARIABLE: laid_out.containers[0].counts_dir,
    }
    before = await order_of(list_)
    program = await asyncio.create_subprocess_exec(
        *(str(PROGRAMS / "busy"), "--memory", "1Gi", "--hold-seconds", "60"),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert program.stdout is not None
        said = json.loads(await program.stdout.readline())
        began = time.perf_counter()
        assert said["phase"] == "started", said
        async with asyncio.timeout(PATIENCE_S):
            while await order_of(list_) == before:  # noqa: ASYNC110 - Redis pushes nothing
                await asyncio.sleep(LOOK_S)
        return (time.perf_counter() - began) * 1000
    finally:
        program.kill()
        await program.communicate()
        await broker.unregister(pod)
        await settled(list_)


async def settled(list_: "redis.Redis") -> None:
    """Wait until the reports of a start and an exit are in, so that the next start is alone."""
    last, since = "", time.monotonic()
    while time.monotonic() - since < 0.5:
        if (now := await order_of(list_)) != last:
            last, since = now, time.monotonic()
        await asyncio.sleep(0.05)


async def main() -> int:
    """Measure, print the results, and end with one JSON line."""
    # Without heartbeat and reconcile, nothing else publishes during the measurement.
    quiet = {"heartbeat_s": "3600", "reconcile_s": "3600", "idle_period_s": "3600"}
    node = EmulatedNode(NODE, (EmulatedGpu("NVIDIA L4", "24Gi"),), quiet)
    with tempfile.TemporaryDirectory(prefix="plimsoll-events-") as folder:
        async with LocalCluster(Path(folder), (node,)) as cluster:
            await cluster.placer(
                local_nodes=str(await cluster.write_local_nodes()),
            )
            async with (
                BrokerClient(cluster.broker_root(NODE)) as broker,
                redis.Redis.from_url(cluster.valkey.url, protocol=2, decode_responses=True) as list_,
            ):
                took_ms = [await one_start(cluster, broker, list_) for _ in range(STARTS)]
    took_ms.sort()
    result = {
        "start_to_list_ms_p50": round(statistics.median(took_ms), 2),
        "start_to_list_ms_p99": round(took_ms[int(len(took_ms) * 0.99) - 1], 2),
        "starts": len(took_ms),
        "load": round(os.getloadavg()[0], 2),
    }
    print(f"from a program's first context to its node's new score in Redis, {STARTS} starts, ms:")
    print("  ".join(f"{value:.1f}" for value in took_ms))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
