"""Watches pods and nodes, and carries the planner's steps out, one after another.

What always holds: a step is written only while this process holds the Lease, and over the version that it was planned
for. A step that fails is planned anew from what the watches show then. Each change wakes the controller; nothing is
polled.
"""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

from placer.pool.core.facts import Facts
from placer.pool.core.planner import Planner
from placer.pool.core.steps import Drop, Give, Keep, Learn, Reserve, Step
from placer.pool.events import EventRecorder
from placer.pool.metrics import PoolMetrics
from placer.pool.reservations import Template
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.lease import Lease, LeasedTransport
from plimsoll.kube.models import Node, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Reflector, Synced
from plimsoll.kube.transport import ApiError, ConflictError, NotFoundError, PatchKind, RefusedError, Transport
from plimsoll.part.backoff import Pauses
from plimsoll.part.ending import heed_cancellation
from plimsoll.part.log import get_logger
from plimsoll.pool import GPU, RELEASE, Release, Reservation

GATHER_S: Final = 0.05
"""The time for which changes are gathered before a round: a round reads all nodes that the pool concerns."""

log = get_logger()


@dataclass(slots=True)
class Controller:
    """Keeps the pool while `run` runs.

    Attributes:
        transport: the transport to the API server.
        lease: steps are taken only while it is held.
        template: the template of the reservations.
        planner: plans the steps.
        events: for people.
        metrics: the metrics of this process.
    """

    transport: Transport
    lease: Lease
    template: Template
    planner: Planner
    events: EventRecorder
    metrics: PoolMetrics
    synced: asyncio.Event = field(default_factory=asyncio.Event)
    facts: Facts = field(init=False)
    _writing: Transport = field(init=False)
    _work: asyncio.Event = field(default_factory=asyncio.Event)
    _reserved_s: dict[str, float] = field(default_factory=dict)  # by name, when it was made here
    _pauses: Pauses = field(default_factory=Pauses)  # between rounds with failures
    _pods_synced: bool = False
    _nodes_synced: bool = False
    _watches: "tuple[Reflector[Pod], Reflector[Node]] | None" = None

    def __post_init__(self) -> None:
        self.facts = Facts(self.template.namespace)
        self._writing = LeasedTransport(self.transport, self.lease)

    async def run(self) -> NoReturn:
        """Watch, and once the Lease is held, take and give GPUs; until cancelled."""
        pods = Reflector(self.transport, "/api/v1/pods", Pod, self._on_pod)
        nodes = Reflector(self.transport, "/api/v1/nodes", Node, self._on_node)
        self._watches = pods, nodes
        async with asyncio.TaskGroup() as group:
            group.create_task(nodes.run(), name="pool: watch nodes")
            group.create_task(pods.run(), name="pool: watch pods")
            await self.synced.wait()
            await self.lease.held.wait()
            log.info("pool ready", nodes=len(self.facts.nodes))
            while True:
                heed_cancellation()
                await self._round()

    def broken_s(self) -> float:
        """The longest time for which a watch has been broken; infinite before the first lists."""
        return math.inf if self._watches is None else max(watch.broken_s() for watch in self._watches)

    def _on_pod(self, change: Change[Pod]) -> None:
        match change:
            case Added(pod) | Modified(pod):
                if self.facts.put_pod(pod):
                    self._work.set()
            case Deleted(pod):
                if self.facts.remove_pod(PodUid(pod.metadata.uid)):
                    self._work.set()
            case Synced():
                self._pods_synced = True
                self._note_synced()

    def _on_node(self, change: Change[Node]) -> None:
        match change:
            case Added(node) | Modified(node):
                if self.facts.put_node(node):
                    self._work.set()
            case Deleted(node):
                self.facts.remove_node(NodeName(node.metadata.name))
                self._work.set()
            case Synced():
                self._nodes_synced = True
                self._note_synced()

    def _note_synced(self) -> None:
        if self._pods_synced and self._nodes_synced:
            self.synced.set()
            self._work.set()

    async def _round(self) -> None:
        """Carry one round out, and wait until something changes, or is due."""
        self._work.clear()
        loop = asyncio.get_running_loop()
        planned = self.planner.plan(self.facts, loop.time())
        for phase, count in planned.phases.items():
            self.metrics.gpus.phases.labels(phase).set(count)
        self.metrics.gpus.lost.set(len(planned.lost))
        due_s = planned.due_s
        if await self._do_all(planned.steps):
            self._pauses.reset()
        else:
            due_s = min(due_s, loop.time() + self._pauses.next_s())
        if self.lease.is_held():
            self.metrics.gpus.losses.inc(await self.events.losses(planned.lost))
        await asyncio.sleep(GATHER_S)  # changes of many pods come together
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(None if due_s == math.inf else due_s):
                await self._work.wait()

    async def _do_all(self, steps: Sequence[Step]) -> bool:
        """Carry steps out, in order; returns whether none failed. A step that was overtaken is no failure."""
        done = True
        for step in steps:
            try:
                await self._do(step)
            except (ConflictError, NotFoundError):
                continue  # the watch shows what changed, and the next round reads it
            except (ApiError, TimeoutError) as error:
                done = False
                self.metrics.write_failures.inc()
                log.warning("a step waits", step=type(step).__name__, error=str(error) or "no answer in time")
                if not isinstance(error, RefusedError):
                    break  # the API server is away; a refusal concerns one step alone
        return done

    async def _do(self, step: Step) -> None:
        match step:
            case Reserve(node, name):
                await self._writing.post(self._path(), self.template.pod(name, node))
                self._reserved_s[name] = asyncio.get_running_loop().time()
            case Learn(reservation, gpu):
                await self._annotate(reservation, GPU, gpu)
                began_s = self._reserved_s.pop(reservation.name, None)
                if began_s is not None:
                    self.metrics.reservations.acquire_seconds.observe(
                        asyncio.get_running_loop().time() - began_s
                    )
                await self.events.acquired(reservation, gpu)
            case Give(reservation):
                await self._annotate(reservation, RELEASE, Release.ASKED.value)
            case Keep(reservation):
                await self._annotate(reservation, RELEASE, None)
            case Drop(reservation, why):
                if why:
                    self.metrics.reservations.failures.inc()
                preconditions = {"uid": reservation.uid, "resourceVersion": reservation.version}
                await self._writing.delete(self._path(reservation.name), {"preconditions": preconditions})
                self._reserved_s.pop(reservation.name, None)
                await self.events.ended(reservation, why)
        self.metrics.reservations.steps.labels(type(step).__name__.lower()).inc()
        log.info("pool step", step=step)

    async def _annotate(self, reservation: Reservation, name: str, value: str | None) -> None:
        body = {
            "metadata": {
                "uid": reservation.uid,
                "resourceVersion": reservation.version,
                "annotations": {name: value},
            }
        }
        await self._writing.patch(self._path(reservation.name), body, PatchKind.MERGE)

    def _path(self, name: str = "") -> str:
        collection = f"/api/v1/namespaces/{self.template.namespace}/pods"
        return f"{collection}/{name}" if name else collection
