"""The leaders of NATS and Redis die under load: no report and no event is lost, and no pod is placed twice.

Monitors' own publishers report, a real API server has the pods, and the placer is a process of its own. Each test
kills one leader by SIGKILL while reports and pods go on arriving. Every card is full at the end, so a pod that was
placed twice, or beside its booking, would leave another pod without room.
"""

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import aiohttp
import msgspec
import nats as nats_client
import pytest
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig
from nats.js.errors import APIError

from monitor.core.entries import NodeSnapshot, state_entry
from monitor.core.observation import JOURNAL_START
from monitor.core.tasks import Tasks
from monitor.outbox.database import Checkpoint
from monitor.outbox.store import Store, open_store
from monitor.publisher import Publisher, PublisherListeners, StreamTarget
from placer.stores.scores import ScoreList, ScoresAwayError
from plimsoll.bus.stream import Stream
from plimsoll.bus.subjects import STREAM, pod_subject
from plimsoll.envelope import CloudEvent, decode_event
from plimsoll.events import Gpu, Placement
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.placer_api.http import STATE_PATH, State
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer, ServerKind, running
from tests.e2e.cluster import PLACER_CONSUMER
from tests.placer.placers import free_lease
from tests.servers.apiserver import ApiServer, Object
from tests.servers.clusters import NatsCluster, nats_cluster, sentinel_valkey
from tests.servers.objects import create_node, create_pod, pod_manifest
from tests.servers.stores import ignore
from tests.servers.waiting import until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NODES = tuple(NodeName(f"n{number}") for number in range(5))
CARD_GIB, POD_GIB = 24, 8
PODS = tuple(f"pod-{number}" for number in range(len(NODES) * CARD_GIB // POD_GIB))
REPORT_S, POD_S = 0.2, 0.25
"""The pauses between two reports of a node and between two new pods: both go on while a leader is killed."""


@dataclass(slots=True)
class Reporter:
    """A node's monitor without a GPU: it stores reports again and again, and its publisher publishes them."""

    node: NodeName
    store: Store
    publisher: Publisher
    seq: int = 0

    async def run(self, enough: asyncio.Event) -> None:
        """Report until there is enough, and return once the bus has every report."""
        publishing = asyncio.create_task(self.publisher.run(), name=f"publish for {self.node}")
        try:
            while not enough.is_set():
                await self._report()
                await asyncio.sleep(REPORT_S)
            await until(self._is_published)
        finally:
            publishing.cancel()
            await asyncio.wait([publishing])

    async def _report(self) -> None:
        gpu = Gpu(
            uuid=GpuUuid(f"GPU-{self.node}"),
            index=0,
            model="NVIDIA L4",
            usable_bytes=CARD_GIB * GIB,
            used_bytes=0,
            idle_pct=100.0,
        )
        self.seq += 1
        snapshot = NodeSnapshot(self.node, "boot", 1, 0, "2026-01-01T00:00:00Z", (gpu,))
        await self.store.keep([state_entry(snapshot, self.seq)], Tasks(), Checkpoint("boot", JOURNAL_START))
        self.publisher.wake()

    async def _is_published(self) -> bool:
        return self.store.waiting_count == 0


@dataclass(slots=True)
class Load:
    """Reports and pods that keep arriving at a placer, until `settle`."""

    api: ApiServer
    namespace: str
    placer: EmbeddedServer
    scores: ScoreList
    jetstream: JetStreamContext
    reporters: list[Reporter]
    enough: asyncio.Event = field(default_factory=asyncio.Event)

    async def bound(self) -> dict[str, Object]:
        """The bound pods by name, as the API server has them."""
        listed = await self.api.get(f"/api/v1/namespaces/{self.namespace}/pods")
        return {pod["metadata"]["name"]: pod for pod in listed["items"] if pod["spec"].get("nodeName")}

    async def until_bound(self, count: int) -> None:
        """Wait until this many pods are bound."""

        async def look() -> bool:
            return len(await self.bound()) >= count

        await until(look)

    async def until_leader(self, leader: Callable[[], Awaitable[str | None]], other_than: str) -> None:
        """Wait until another server leads."""

        async def look() -> bool:
            with contextlib.suppress(TimeoutError, APIError):
                return (await leader()) not in {None, other_than}
            return False

        await until(look)

    async def stream_leader(self) -> str | None:
        """The server that leads the stream."""
        cluster = (await self.jetstream.stream_info(STREAM)).cluster
        return cluster.leader if cluster else None

    async def consumer_leader(self) -> str | None:
        """The server that leads the placer's consumer."""
        cluster = (await self.jetstream.consumer_info(STREAM, PLACER_CONSUMER)).cluster
        return cluster.leader if cluster else None

    async def check_nothing_lost(self) -> None:
        """Check that placer and Redis have every node's last report, and that each pod has a place and one event."""
        last = {reporter.node: (1, reporter.seq) for reporter in self.reporters}

        async def known() -> tuple[object, object]:
            in_list = None
            with contextlib.suppress(ScoresAwayError):
                in_list = await self.scores.orders()
            return await self._view(), in_list

        async def look() -> bool:
            return await known() == (last, last)

        try:
            await until(look)
        except AssertionError:
            raise AssertionError(f"expected {last}, saw {await known()}") from None
        await self.until_bound(len(PODS))
        await self._check_placements()

    async def _view(self) -> dict[NodeName, tuple[int, int]]:
        async with aiohttp.ClientSession() as http, http.get(self.placer.url + STATE_PATH) as answer:
            state = msgspec.json.decode(await answer.read(), type=State)
        return {row.node: (row.epoch, row.seq) for row in state.nodes}

    async def _check_placements(self) -> None:
        pods = await self.bound()
        stands = {
            (pod["metadata"]["uid"], pod["spec"]["nodeName"], pod["metadata"]["annotations"][GPU_KEY])
            for pod in pods.values()
        }
        assert Counter(node for _, node, _ in stands) == dict.fromkeys(NODES, CARD_GIB // POD_GIB)

        async def look() -> list[CloudEvent]:
            events = [decode_event(message) for message in await self._placed()]
            return events if len(events) >= len(PODS) else []

        events = await until(look)
        told = [msgspec.json.decode(event.data, type=Placement) for event in events]
        assert len(told) == len({event.id for event in events}) == len(PODS)
        assert {(one.pod, one.node, one.gpus["main"][0]) for one in told} == stands

    async def _placed(self) -> list[bytes]:
        """Every `pod.placed` event in the stream."""
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=60)
        events = await self.jetstream.pull_subscribe(pod_subject("placed"), stream=STREAM, config=config)
        found: list[bytes] = []
        try:
            waiting = (await events.consumer_info()).num_pending or 0
            while len(found) < waiting:
                found += [message.data for message in await events.fetch(waiting, timeout=5)]
        finally:
            await events.unsubscribe()
        return found


GPU_KEY = "gpus.plimsoll.dev/main"


@contextlib.asynccontextmanager
async def loaded(
    directory: Path, api: ApiServer, namespace: str, cluster: NatsCluster, redis_url: str
) -> AsyncIterator[Load]:
    """A placer that runs under load until the context ends."""
    settings = {
        "NATS_URL": cluster.url,
        "STREAM_REPLICAS": "3",
        "REDIS_URL": redis_url,
        "LEASE_S": "15",
        "KUBECONFIG": str(api.kubeconfig()),
    }
    async with contextlib.AsyncExitStack() as stack:
        await free_lease(api)
        for node in NODES:
            await create_node(api, node)
        client = await nats_client.connect(
            cluster.url.split(","), max_reconnect_attempts=-1, reconnect_time_wait=0, error_cb=ignore
        )
        stack.push_async_callback(client.close)
        placer = await stack.enter_async_context(running(_placer_kind(settings), directory / "placer"))
        scores = ScoreList(redis_url)
        stack.push_async_callback(scores.close)
        reporters = [await _reporter(stack, directory / node, cluster.url, node) for node in NODES]
        load = Load(api, namespace, placer, scores, client.jetstream(), reporters)
        async with asyncio.TaskGroup() as tasks:
            for reporter in reporters:
                tasks.create_task(reporter.run(load.enough), name=f"report {reporter.node}")
            tasks.create_task(_create_pods(api, namespace), name="create pods")
            try:
                yield load
            finally:
                load.enough.set()
        await load.check_nothing_lost()


async def _create_pods(api: ApiServer, namespace: str) -> None:
    for name in PODS:
        await create_pod(api, namespace, pod_manifest(name, {"plimsoll.dev/gpu-memory": f"{POD_GIB}Gi"}))
        await asyncio.sleep(POD_S)


async def _reporter(stack: contextlib.AsyncExitStack, directory: Path, url: str, node: NodeName) -> Reporter:
    async def known(epoch: int) -> None:
        assert epoch <= 1

    await asyncio.to_thread(directory.mkdir, parents=True)
    store = await open_store(directory)
    stack.push_async_callback(store.close)
    listeners = PublisherListeners(lambda: 1, known, lambda _: None)
    return Reporter(node, store, Publisher(StreamTarget(url, node, Stream(replicas=3)), store, listeners))


def _placer_kind(settings: dict[str, str]) -> ServerKind:
    environment = {f"PLIMSOLL_{name}": value for name, value in settings.items()}

    def arguments(port: int, _: Path) -> tuple[str, ...]:
        environment["PLIMSOLL_HTTP_PORT"] = str(port)
        return ("-m", "placer")

    environment |= {"PYTHONPATH": str(ROOT), "PLIMSOLL_UNHELD_PODS": "place"}
    return ServerKind("placer", "http", "placer ready", lambda: Path(sys.executable), arguments, environment)


@pytest.mark.parametrize("leader", [Load.stream_leader, Load.consumer_leader], ids=["stream", "consumer"])
async def test_a_leader_of_nats_dies(
    tmp_path: Path,
    apiserver: ApiServer,
    namespace: str,
    valkey: EmbeddedServer,
    leader: Callable[[Load], Awaitable[str | None]],
) -> None:
    """After SIGKILL of the NATS server that leads the stream, or the placer's consumer, the other two go on."""
    async with (
        nats_cluster(tmp_path / "nats") as cluster,
        loaded(tmp_path, apiserver, namespace, cluster, valkey.url) as load,
    ):
        await load.until_bound(3)
        before = await leader(load)
        assert before is not None
        await cluster.servers[before].kill()
        await load.until_leader(partial(leader, load), before)


async def test_the_master_of_redis_dies(tmp_path: Path, apiserver: ApiServer, namespace: str) -> None:
    """After SIGKILL of the Redis master, the list is complete at the replica that the sentinels made the master."""
    async with (
        nats_cluster(tmp_path / "nats") as cluster,
        sentinel_valkey(tmp_path / "valkey") as valkey,
        loaded(tmp_path, apiserver, namespace, cluster, valkey.url) as load,
    ):
        await load.until_bound(3)
        await valkey.fail_over()
