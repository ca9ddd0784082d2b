"""Best-effort pods are placed by what their workload needed before, also after a restart of the placer.

Real placers over a real API server, NATS and Valkey; the tests publish reports as a monitor does.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import msgspec
import pytest
import redis.asyncio as redis
from nats.js import JetStreamContext
from nats.js.api import Header

from plimsoll.bus.subjects import state_subject, task_subject
from plimsoll.contract import BEST_EFFORT
from plimsoll.envelope import encode, fact_id
from plimsoll.events import Phase, Report, Task
from plimsoll.ids import GpuUuid
from plimsoll.placer_api.http import State
from plimsoll.placer_api.redis_keys import LEARNED
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.arrivals import bus, report
from tests.placer.core.worlds import gpu, task
from tests.placer.kube.world import condition
from tests.placer.placers import Placer, Placers, free_lease, placers
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node, create_pod, get_pod, pod_manifest
from tests.servers.waiting import until

NODE, GPU = "n1", "GPU-n1"


@dataclass(slots=True)
class Site:
    """One node with one GPU of 24 GiB, and placers."""

    api: ApiServer
    namespace: str
    jetstream: JetStreamContext
    starts: Placers
    seq: int = 0
    started: list[Placer] = field(default_factory=list)

    async def placer(self) -> Placer:
        """Start the next placer under the same name, in place of the one before."""
        for one in self.started:
            one.process.kill()
            await one.ended()
        await free_lease(self.api)
        self.started.append(await self.starts.start("placer"))
        return self.started[-1]

    async def tell(self, what: str, *tasks: Task, other_gib: int = 0, about: Task | None = None) -> None:
        """Publish a report of the node, and wait until the placer that runs decides by it."""
        self.seq += 1
        state = report(NODE, self.seq, gpus=(gpu(GPU, *tasks, other_bytes=other_gib * GIB),))
        middle = "node.state" if what == "state" else f"task.{what}"
        event_id = fact_id(what, state.node, state.epoch, state.seq)
        body = encode(middle, event_id, f"/nodes/{NODE}", state.time, Report(state=state, task=about))
        subject = state_subject(state.node) if what == "state" else task_subject(what, state.node)
        await self.jetstream.publish(subject, body, headers={Header.MSG_ID.value: event_id})
        port = (await self.started[-1].until("http ready")).port

        async def is_taken_in() -> bool:
            async with aiohttp.request("GET", f"http://127.0.0.1:{port}/v1/state") as response:
                shown = msgspec.json.decode(await response.read(), type=State)
            return [node.seq for node in shown.nodes] == [self.seq]

        await until(is_taken_in)

    async def replica(self, name: str, deployment: str) -> Object:
        """Create a best-effort pod, as a Deployment's ReplicaSet does."""
        manifest = pod_manifest(name, {"plimsoll.dev/gpu": "1"}, annotations={BEST_EFFORT: "true"})
        manifest["metadata"]["labels"] = {"pod-template-hash": "abc"}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{deployment}-abc", "uid": "u"}
        manifest["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        return await create_pod(self.api, self.namespace, manifest)

    async def bound(self, name: str) -> Object:
        """Wait until the pod has a node."""

        async def look() -> Object | None:
            pod = await get_pod(self.api, self.namespace, name)
            return pod if pod["spec"].get("nodeName") else None

        pod = await until(look)
        assert pod is not None
        return pod

    async def refused(self, name: str) -> str:
        """Wait until the pod's condition says why it waits."""

        async def look() -> str:
            return str(condition(await get_pod(self.api, self.namespace, name)).get("message", ""))

        return await until(look)


@pytest.fixture
async def site(
    tmp_path: Path, nats: EmbeddedServer, valkey: EmbeddedServer, apiserver: ApiServer, namespace: str
) -> AsyncIterator[Site]:
    """A node with an idle GPU; no placer runs yet."""
    settings = {"nats_url": nats.url, "redis_url": valkey.url, "kubeconfig": str(apiserver.kubeconfig())}
    async with bus(nats) as jetstream, placers(tmp_path, **settings) as starts:
        await create_node(apiserver, NODE)
        yield Site(apiserver, namespace, jetstream, starts)


async def test_a_replica_is_not_put_where_its_workload_did_not_fit_before(
    site: Site, valkey: EmbeddedServer
) -> None:
    """After a first replica that reached 6 GiB, no other goes where 3 GiB are free, also after a restart."""
    owner = f"Deployment {site.namespace}/trainer"
    await site.placer()
    await site.tell("state")
    first = await site.replica("first", "trainer")
    placed = await site.bound("first")
    assumed = msgspec.json.decode(placed["metadata"]["annotations"]["plimsoll.dev/decision"])["expected"]
    assert assumed == (
        f"The pod declares no memory, and 1Gi on a GPU is assumed, as no pod of {owner} was measured yet."
    )
    loaded = task(first["metadata"]["uid"], GPU, 6 * GIB)
    await site.tell("state", loaded)
    ended = msgspec.structs.replace(loaded, phase=Phase.EXITED, gpu=GpuUuid(GPU))
    await site.tell("exited", other_gib=21, about=ended)
    pods = f"/api/v1/namespaces/{site.namespace}/pods"
    await site.api.call("DELETE", f"{pods}/first?gracePeriodSeconds=0")
    learned = (
        f"The pod declares no memory, and 6Gi on a GPU is expected, as earlier pods of {owner} needed that."
    )
    await site.replica("second", "trainer")
    assert learned in await site.refused("second")

    async with redis.Redis.from_url(valkey.url, protocol=2) as client:

        async def is_stored() -> bool:
            return bool(await client.hexists(LEARNED, owner))

        await until(is_stored)
    await site.placer()
    await site.replica("third", "trainer")
    assert learned in await site.refused("third")
    await site.replica("other", "small")
    await site.bound("other")
    assert not (await get_pod(site.api, site.namespace, "second"))["spec"].get("nodeName")

    await site.tell("state", other_gib=10)
    again = [await site.bound(name) for name in ("second", "third")]
    decided = again[0]["metadata"]["annotations"]["plimsoll.dev/decision"]
    assert msgspec.json.decode(decided)["expected"] == learned


async def test_a_placer_without_redis_places_best_effort_pods(site: Site) -> None:
    """Learning waits for Redis, and nothing else does."""
    site.starts.settings["redis_url"] = "redis://127.0.0.1:1/0"
    await site.placer()
    await site.tell("state")
    await site.replica("first", "trainer")
    await site.bound("first")
