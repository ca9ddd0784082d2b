"""Nodes of eight GPUs, their reports on the bus, and pods for either scheduler.

A node is a Node object with all resources that kube-scheduler counts, and a monitor's report with its GPUs. The pods
of both schedulers ask for the same: kube-scheduler sees plain extended resources, the placer sees GPUs.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from typing import Final

import nats
from nats.js import JetStreamContext
from nats.js.api import Header

from bench.placer.servers import CONNECTIONS, Json, RefusedError, Servers
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import state_subject
from plimsoll.contract import GPU_COUNT, GPU_MEMORY, GPU_SHARE
from plimsoll.envelope import encode, fact_id
from plimsoll.events import Gpu, NodeState, Report
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.part.times import rfc3339
from plimsoll.quantity import GIB

GPUS: Final = 8
USABLE_BYTES: Final = 80 * GIB
MODEL: Final = "NVIDIA H100 80GB HBM3"
POD_GIB: Final = 8
POD_SHARE_PCT: Final = 20
TOO_MANY_GIB: Final = 200
"""More than any GPU of these nodes has."""
HEARTBEAT_S: Final = 60.0
"""A monitor's default: each node reports once in this time, though nothing changed."""
WINDOW: Final = 512
"""Reports under way before the first acknowledgements are awaited."""


def node_name(number: int) -> NodeName:
    """The name of a node."""
    return NodeName(f"node-{number:05d}")


def node_object(number: int) -> Json:
    """A node as a healthy kubelet and our monitor leave it."""
    name = node_name(number)
    resources = {
        "cpu": "96",
        "memory": "1024Gi",
        "pods": "250",
        "ephemeral-storage": "1000Gi",
        GPU_COUNT: str(GPUS),
        GPU_MEMORY: str(GPUS * USABLE_BYTES),
        GPU_SHARE: str(GPUS * 100),
    }
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
    ready |= {"lastHeartbeatTime": now, "lastTransitionTime": now}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {"capacity": resources, "allocatable": resources, "conditions": [ready]},
    }


def node_state(number: int, seq: int) -> NodeState:
    """A report of idle, empty GPUs."""
    name = node_name(number)
    gpus = tuple(
        Gpu(
            uuid=GpuUuid(f"GPU-{number:08x}-0000-4000-8000-{index:012x}"),
            index=index,
            model=MODEL,
            usable_bytes=USABLE_BYTES,
            used_bytes=0,
            idle_pct=100.0,
        )
        for index in range(GPUS)
    )
    time = rfc3339(datetime.now(UTC))
    return NodeState(node=name, epoch=1, seq=seq, time=time, gpus=gpus, heartbeat_s=HEARTBEAT_S)


def report_message(state: NodeState) -> tuple[str, bytes, str]:
    """A report as published: its subject, the message, and its id."""
    event_id = fact_id("state", state.node, state.epoch, state.seq)
    source = f"/nodes/{state.node}"
    message = encode("node.state", event_id, source, state.time, Report(state=state))
    return state_subject(state.node), message, event_id


def pod_object(name: str, scheduler: str, gib: float = POD_GIB) -> Json:
    """A pod of one container that wants a part of one GPU."""
    resources = {
        "cpu": "500m",
        "memory": "1Gi",
        GPU_MEMORY: str(int(gib * GIB)),
        GPU_SHARE: str(POD_SHARE_PCT),
    }
    container = {"name": "main", "image": "none", "resources": {"limits": resources}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "containers": [container]},
    }


async def at_once(jobs: Iterable[Callable[[], Awaitable[object]]], width: int = CONNECTIONS) -> None:
    """Do all jobs, `width` at a time."""
    waiting = iter(jobs)

    async def work() -> None:
        for job in waiting:
            await job()

    async with asyncio.TaskGroup() as group:
        for _ in range(width):
            group.create_task(work())


async def make_nodes(servers: Servers, count: int) -> None:
    """Make nodes on the API server."""
    objects = [node_object(number) for number in range(count)]
    await at_once(partial(servers.call, "POST", "/api/v1/nodes", node) for node in objects)


async def make_pods(servers: Servers, namespace: str, pods: Iterable[Json]) -> None:
    """Make pods in a namespace, many at once."""
    await at_once(partial(make_pod, servers, namespace, pod) for pod in pods)


async def make_pod(servers: Servers, namespace: str, pod: Json) -> None:
    """Make a pod in a namespace."""
    await servers.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


async def make_namespace(servers: Servers, name: str) -> str:
    """Make a namespace and return its name."""
    await servers.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name


async def delete_pods(servers: Servers, namespace: str) -> None:
    """Delete the pods of a namespace at once, without a kubelet's consent."""
    path = f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0"
    with contextlib.suppress(RefusedError):  # the server may end the request; the second one deletes the rest
        await servers.call("DELETE", path)
        return
    await servers.call("DELETE", path)


def _id_header(event_id: str) -> dict[str, str]:
    return {Header.MSG_ID.value: event_id}


class Monitors:
    """Publishes the reports of all nodes, as their monitors would: one each at the start, then heartbeats."""

    def __init__(self, jetstream: JetStreamContext, nodes: int) -> None:
        self._jetstream = jetstream
        self._nodes = nodes
        self._seq = 0

    async def publish_all(self) -> None:
        """Publish a report of each node and wait until the stream has them."""
        self._seq += 1
        for first in range(0, self._nodes, WINDOW):
            for number in range(first, min(first + WINDOW, self._nodes)):
                subject, message, event_id = report_message(node_state(number, self._seq))
                await self._jetstream.publish_async(subject, message, headers=_id_header(event_id))
            await self._jetstream.publish_async_completed()

    async def beat(self) -> None:
        """Publish each node's heartbeat in turn, evenly over the interval, until cancelled."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            self._seq += 1
            for number in range(self._nodes):
                subject, message, event_id = report_message(node_state(number, self._seq))
                await self._jetstream.publish_async(subject, message, headers=_id_header(event_id))
                due_s += HEARTBEAT_S / self._nodes
                await asyncio.sleep(due_s - loop.time())  # spreads the heartbeats over the interval


@contextlib.asynccontextmanager
async def monitors(servers: Servers, nodes: int) -> AsyncIterator[None]:
    """Have every node report until the context ends."""
    client = await nats.connect(servers.nats.url)
    try:
        jetstream = client.jetstream()
        await Stream().ensure(jetstream)
        all_of_them = Monitors(jetstream, nodes)
        await all_of_them.publish_all()
        beats = asyncio.create_task(all_of_them.beat(), name="heartbeats")
        try:
            yield
        finally:
            beats.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beats
    finally:
        await client.close()
