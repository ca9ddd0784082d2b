"""A scheduler on a real API server and a real Valkey.

The tests feed reports in directly, as monitors have their own tests.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from placer.core.ledger import Ledger
from placer.core.policies import POLICIES
from placer.decide import Decider
from placer.intake.reports import ReportView
from placer.kube.evictions import EvictionRules
from placer.kube.frontend import KubeFrontEnd
from placer.kube.options import KubeOptions
from placer.kube.parts import KubeContext, KubeParts
from placer.metrics import Metrics
from placer.relocation.rules import RelocationRules
from placer.scheduler.cache.comparer import CacheComparer
from placer.stores.list_writer import ListWriter
from placer.stores.scores import ScoreList
from plimsoll.events import Gpu, Placement, PoolChange, Task
from plimsoll.gpu_events import GpuHealth
from plimsoll.ids import GpuUuid, PodUid
from plimsoll.kube.client import connect
from plimsoll.kube.models import Pod, decode_pod
from plimsoll.kube.transport import Transport
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import CHECK_S
from tests.placer.core.worlds import state
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import get_pod
from tests.servers.tasks import running
from tests.servers.waiting import until, until_true

GPU_KEY = "gpus.plimsoll.dev/main"


@dataclass(slots=True)
class Published:
    """Collects the events that the scheduler published, in order."""

    bound: list[Placement] = field(default_factory=list)
    refused: list[Placement] = field(default_factory=list)
    strangers: list[Placement] = field(default_factory=list)
    victims: list[Placement] = field(default_factory=list)
    moved: list[Placement] = field(default_factory=list)
    pool: list[tuple[str, PoolChange]] = field(default_factory=list)

    def placed(self, placement: Placement) -> None:
        """See `PlacementEvents`."""
        self.bound.append(placement)

    def unplaceable(self, placement: Placement) -> None:
        """See `PlacementEvents`."""
        self.refused.append(placement)

    def foreign(self, placement: Placement) -> None:
        """See `PlacementEvents`."""
        self.strangers.append(placement)

    def preempted(self, placement: Placement) -> None:
        """See `PlacementEvents`."""
        self.victims.append(placement)

    def relocated(self, placement: Placement) -> None:
        """See `PlacementEvents`."""
        self.moved.append(placement)

    def acquired(self, change: PoolChange) -> None:
        """See `PoolEvents`."""
        self.pool.append(("acquired", change))

    def released(self, change: PoolChange) -> None:
        """See `PoolEvents`."""
        self.pool.append(("released", change))

    def lost(self, change: PoolChange) -> None:
        """See `PoolEvents`."""
        self.pool.append(("lost", change))


@dataclass(slots=True)
class World:
    """One running scheduler and its surroundings.

    Attributes:
        ledger: the running scheduler's ledger, for checks.
        published: the placement events that the scheduler published.
        metrics: its metrics.
        ready: set once its reports are loaded.
    """

    api: ApiServer
    namespace: str
    ledger: Ledger
    scores: ScoreList
    reports: ReportView
    published: Published
    metrics: Metrics
    ready: asyncio.Event
    parts: KubeParts
    seqs: dict[str, int] = field(default_factory=dict)

    async def report(
        self,
        node: str,
        *free_gib: int,
        total_gib: int = 24,
        health: tuple[GpuHealth, ...] = (),
        tasks: tuple[Task, ...] = (),
    ) -> None:
        """Report idle GPUs `GPU-<node>-<n>` for a node, each with this much free memory, as a monitor does.

        A node that the API server has is in the placer's watch then. A pod that is made afterwards has a watch of its
        own, and could be tried before.
        """
        stored = await self.api.call("GET", f"/api/v1/nodes/{node}")
        if stored.status == 200:
            await self._until_watched(stored.body)
        self.seqs[node] = self.seqs.get(node, 0) + 1
        gpus = tuple(
            Gpu(
                uuid=GpuUuid(f"GPU-{node}-{index}"),
                index=index,
                model="NVIDIA L4",
                usable_bytes=total_gib * GIB,
                used_bytes=(total_gib - free) * GIB,
                idle_pct=100.0,
                tasks=tuple(task for task in tasks if task.gpu == f"GPU-{node}-{index}"),
            )
            for index, free in enumerate(free_gib)
        )
        reported = state(node, *gpus, seq=self.seqs[node])
        self.reports.apply(msgspec.structs.replace(reported, health=health))

    async def change_node(self, name: str, change: Object) -> None:
        """Change a node, and wait until the placer's watch has shown that: pods have a watch of their own."""
        await self._until_watched(await self.api.must("PATCH", f"/api/v1/nodes/{name}", change))

    async def _until_watched(self, node: Object) -> None:
        version, nodes = int(node["metadata"]["resourceVersion"]), self.parts.watches.nodes
        await until_true(lambda: int(nodes._version or 0) >= version)

    async def pod(self, name: str) -> Object:
        """The pod as stored on the API server."""
        return await get_pod(self.api, self.namespace, name)

    async def until(self, name: str, holds: Callable[[Object], bool]) -> Object:
        """Wait until a claim holds for the pod, and return it. The pod may be made only later, or made anew."""

        async def look() -> Object | None:
            answer = await self.api.call("GET", f"/api/v1/namespaces/{self.namespace}/pods/{name}")
            return answer.body if answer.status == 200 and holds(answer.body) else None

        pod = await until(look)
        assert pod is not None
        return pod

    async def until_bound(self, name: str) -> Object:
        """Wait until the pod has a node, also in the placer's watch if the placer bound it, and return it."""
        pod = await self.until(name, lambda pod: bool(pod["spec"].get("nodeName")))
        await until_true(lambda: not self.parts.core.profile.cache.is_assumed(PodUid(pod["metadata"]["uid"])))
        return pod

    async def until_refused(self, name: str, text: str) -> Object:
        """Wait until the pod's condition says why it waits, with this text in the message."""
        return await self.until(name, lambda pod: text in condition(pod).get("message", ""))

    async def events(self, name: str, reason: str) -> list[Object]:
        """Wait for events of one reason about a pod, and return them."""

        async def look() -> list[Object]:
            items = (await self.api.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"))[
                "items"
            ]
            return [one for one in items if one["regarding"]["name"] == name and one["reason"] == reason]

        return await until(look)


def condition(pod: Object) -> dict[str, Any]:
    """A pod's `PodScheduled` condition; empty while there is none."""
    conditions = pod.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


def read_pod(stored: Object) -> Pod:
    """A pod, decoded as the placer decodes it."""
    return decode_pod(json.dumps(stored))


def gpu_of(pod: Object) -> tuple[str, str]:
    """Node and GPU of a bound pod's container `main`."""
    return pod["spec"]["nodeName"], pod["metadata"]["annotations"][GPU_KEY]


async def until_in_step(transport: Transport, parts: KubeParts) -> None:
    """Wait until the ledger counts each pod as its decision on the API server says: no test leaves a drift."""
    decider, cluster = parts.context.decider, parts.core.profile.cache
    drift = CacheComparer(transport, cluster, decider.ledger, decider.metrics, every_s=1)

    async def is_in_step() -> bool:
        apart = await drift.apart()
        return not apart or not parts.synced.is_set()

    await until(is_in_step)


@contextlib.asynccontextmanager
async def scheduler(
    api: ApiServer,
    valkey: EmbeddedServer,
    namespace: str,
    *,
    wrap: Callable[[Transport], Transport] = lambda transport: transport,
    loaded: bool = True,
    kubeconfig: Path | None = None,
    drift_s: float = 300.0,
    binds_at_once: int = 16,
    volumes_s: float = 600.0,
    evictions: EvictionRules = EvictionRules(),  # noqa: B008 - frozen
    relocation: RelocationRules = RelocationRules(),  # noqa: B008 - frozen
    places_unheld: bool = True,
) -> AsyncIterator[World]:
    """A running scheduler.

    Args:
        api: the server whose pods it schedules.
        valkey: the server of the sorted list.
        namespace: the namespace of the test's pods.
        wrap: wraps its transport, to lose answers on purpose.
        loaded: False: the reports are loaded only once the test says so.
        kubeconfig: the account that it authenticates as; the administrator by default.
        drift_s: the pause between two comparisons of its ledger with the API server.
        binds_at_once: see `KubeOptions`.
        volumes_s: see `KubeOptions`.
        evictions: likewise.
        relocation: likewise.
        places_unheld: likewise; most tests have neither a webhook nor brokers.
    """
    ledger, reports, published, metrics = Ledger(), ReportView(), Published(), Metrics()
    decider = Decider(reports, ledger, metrics)
    scores = ScoreList(valkey.url, rooms_of=decider.candidates.rooms_of)
    ready = asyncio.Event()
    if loaded:
        ready.set()
    try:
        async with connect(kubeconfig or api.kubeconfig()) as client:
            parts = KubeParts(
                KubeContext(
                    transport=wrap(client),
                    decider=decider,
                    bus=published,
                    options=KubeOptions(
                        POLICIES["headroom"],
                        binds_at_once=binds_at_once,
                        drift_s=drift_s,
                        volumes_s=volumes_s,
                        evictions=evictions,
                        relocation=relocation,
                        namespace=namespace,
                        places_unheld=places_unheld,
                    ),
                )
            )
            writer = ListWriter(scores, decider, CHECK_S)
            async with (
                running(KubeFrontEnd(parts, ready).run(), "scheduler"),
                running(writer.run(), "list writer"),
            ):
                yield World(api, namespace, ledger, scores, reports, published, metrics, ready, parts)
                await until_in_step(client, parts)
    finally:
        await scores.close()
