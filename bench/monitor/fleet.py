"""A thousand simulated monitors, one real NATS and one real placer: delay, pace, order, and growth of the stream.

A report has the size of a node's with eight GPUs and sixteen tasks. First reports come at a steady pace, that of a
thousand nodes with some life; then as fast as the whole chain takes them.
"""

import asyncio
import random
import time
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import nats
import redis.asyncio as redis
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import Header

from bench.measures.percentile import percentile
from bench.monitor.monitored_node import NODE, Json, start_placer
from bench.monitor.subscriber import read_stream
from bench.placer.objects import node_name, node_state, report_message
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import STREAM
from plimsoll.events import NodeState, Phase, Task
from plimsoll.ids import ContainerName, GpuUuid, PodUid
from plimsoll.placer_api import redis_keys as keys
from plimsoll.quantity import GIB
from plimsoll_cli.demo.cluster import EmulatedGpu, EmulatedNode, LocalCluster

NODES: Final = 1000
TASKS_PER_GPU: Final = 2
STEADY_PER_S: Final = 200
"""A thousand nodes with a heartbeat each minute and two to three starts, loads and exits each in that time."""

WINDOW: Final = 256
"""Events under way before their acknowledgements are awaited, so that no server's buffer is what is measured."""

LOOK_S: Final = 0.001
PATIENCE_S: Final = 60.0
SEED: Final = 7


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to publish."""

    nodes: int
    steady_s: float
    burst: int


FULL: Final = Scale(NODES, 30.0, 20_000)
QUICK: Final = Scale(NODES, 8.0, 4000)


async def measure(folder: Path, scale: Scale) -> Json:
    """Publish at both paces; returns the figures."""
    node = EmulatedNode(NODE, (EmulatedGpu("NVIDIA L4", "24Gi"),))
    async with LocalCluster(folder, (node,)) as cluster:
        await start_placer(cluster)
        client = await nats.connect(cluster.nats.url)
        try:
            async with redis.Redis.from_url(cluster.valkey.url, protocol=2, decode_responses=True) as list_:
                jetstream = client.jetstream()
                await Stream().ensure(jetstream)
                fleet = _Fleet(jetstream, list_, scale.nodes)
                await fleet.announce()
                lags_ms = await fleet.steady(scale.steady_s)
                per_s = await fleet.burst(scale.burst)
            state = (await jetstream.stream_info(STREAM)).state
            found = await _stored(client, fleet)
        finally:
            await client.close()
    return {
        "score_lag_ms_p99": round(percentile(lags_ms, 99), 1),
        "score_lag_ms_p50": round(percentile(lags_ms, 50), 1),
        "events_per_s": round(per_s),
        "fleet_nodes": scale.nodes,
        "fleet_events": fleet.published,
        "fleet_event_bytes": round(state.bytes / max(state.messages, 1)),
        **found,
    }


async def _stored(client: Client, fleet: "_Fleet") -> Json:
    """Counts the reports that are missing in the stream or in the list, and those out of order."""
    last: dict[str, int] = {}
    stored = swapped = 0
    for arrival in await read_stream(client):
        report = arrival.report
        if report is None or report.state.node == NODE:
            continue
        state = report.state
        stored += 1
        swapped += state.seq <= last.get(state.node, 0)
        last[state.node] = state.seq
    return {
        "fleet_lost": fleet.published - stored,
        "fleet_out_of_order": swapped,
        "fleet_not_in_list": fleet.behind_at_end,
    }


class _Fleet:
    """The monitors of all nodes, and what each has published."""

    def __init__(self, jetstream: JetStreamContext, list_: "redis.Redis", nodes: int) -> None:
        self.published = 0
        self.behind_at_end = 0  # nodes whose newest report did not reach the list in time
        self._jetstream = jetstream
        self._list = list_
        self._seqs = dict.fromkeys(range(nodes), 0)
        self._chance = random.Random(SEED)

    async def announce(self) -> None:
        """Have each node report once, and wait until the placer knows all."""
        for number in self._seqs:
            await self._publish(number)
        await self._jetstream.publish_async_completed()
        await self._until_caught_up()

    async def steady(self, seconds: float) -> list[float]:
        """Publish at a steady pace; returns the milliseconds from each event to its node's score in Redis."""
        began_s, count, lags_ms = time.monotonic(), 0, list[float]()
        waiting: dict[int, tuple[int, float]] = {}
        async with _beside(self._look(waiting, lags_ms)):
            while (now_s := time.monotonic()) < began_s + seconds:
                free = [number for number in self._seqs if number not in waiting]
                if not free:
                    await asyncio.sleep(LOOK_S)
                    continue
                number = self._chance.choice(free)
                waiting[number] = (self._seqs[number] + 1, now_s)
                await self._publish(number)
                count += 1
                await asyncio.sleep(max(0.0, began_s + count / STEADY_PER_S - time.monotonic()))
            async with asyncio.timeout(PATIENCE_S):
                while waiting:  # noqa: ASYNC110 - Redis pushes nothing
                    await asyncio.sleep(LOOK_S)
        return lags_ms

    async def burst(self, count: int) -> float:
        """Publish this many events as fast as possible; returns events per second until the last is in the list."""
        began_s = time.monotonic()
        for number in range(count):
            await self._publish(number % len(self._seqs))
            if number % WINDOW == WINDOW - 1:
                await self._jetstream.publish_async_completed()
        await self._jetstream.publish_async_completed()
        await self._until_caught_up()
        return count / (time.monotonic() - began_s)

    async def behind(self) -> list[int]:
        """The nodes whose newest report is not in the list."""
        orders = await self._list.hgetall(keys.ORDER)
        return [number for number, seq in self._seqs.items() if orders.get(node_name(number)) != f"1 {seq}"]

    async def _until_caught_up(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while await self.behind():  # noqa: ASYNC110 - Redis pushes nothing
                    await asyncio.sleep(0.01)
        except TimeoutError:
            self.behind_at_end = len(await self.behind())

    async def _look(self, waiting: dict[int, tuple[int, float]], lags_ms: list[float]) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if not (numbers := list(waiting)):
                continue
            orders = await self._list.hmget(keys.ORDER, [node_name(number) for number in numbers])
            now_s = time.monotonic()
            for number, order in zip(numbers, orders, strict=True):
                if order == f"1 {waiting[number][0]}":
                    lags_ms.append((now_s - waiting.pop(number)[1]) * 1000)

    async def _publish(self, number: int) -> None:
        self._seqs[number] += 1
        self.published += 1
        subject, message, event_id = report_message(populated(number, self._seqs[number]))
        await self._jetstream.publish_async(subject, message, headers={Header.MSG_ID.value: event_id})


@asynccontextmanager
async def _beside(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def populated(number: int, seq: int) -> NodeState:
    """A node's report with tasks on each GPU; the idle average changes with each report, so the score does too."""
    empty = node_state(number, seq)
    gpus = tuple(
        msgspec.structs.replace(
            gpu,
            used_bytes=TASKS_PER_GPU * GIB,
            idle_pct=float(seq % 100),
            tasks=tuple(_task(gpu.uuid, gpu.index * TASKS_PER_GPU + at) for at in range(TASKS_PER_GPU)),
        )
        for gpu in empty.gpus
    )
    return msgspec.structs.replace(empty, gpus=gpus)


def _task(gpu: GpuUuid, number: int) -> Task:
    return Task(
        pid=4_000_000 + number,
        start_ticks=123_456_789,
        gpu=gpu,
        phase=Phase.LOADED,
        used_bytes=GIB,
        peak_bytes=GIB,
        pod=PodUid(str(uuid.UUID(int=number))),
        container=ContainerName("main"),
    )
