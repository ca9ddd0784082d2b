"""Many pods with claims at once, while answers are lost, claims are deleted, and the placer is restarted."""

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from plimsoll.kube.transport import Body, PatchKind, Query, TransientError, Transport
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.world import World, scheduler
from tests.placer.scheduler.plugins.volumes.storage import (
    CORE,
    DRIVER,
    HOSTNAME,
    ZONE,
    Provisioner,
    binding_controllers,
    claims_path,
    create_claim,
    create_class,
    create_user,
    create_volume,
)
from tests.servers.apiserver import ApiServer, Object
from tests.servers.objects import create_node
from tests.servers.waiting import until

NODES, PODS = 6, 40


@dataclass(slots=True)
class LostAnswers:
    """A transport that loses some writes of volumes, or their answers."""

    real: Transport
    chance: random.Random

    async def get(self, path: str, query: Query = ()) -> bytes:
        """See `Transport`."""
        return await self.real.get(path, query)

    async def post(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        return await self.real.post(path, body)

    async def patch(self, path: str, body: Body, kind: PatchKind) -> bytes:
        """See `Transport`."""
        draw = self.chance.random() if "/persistentvolume" in path else 1.0
        if draw < 0.15:
            raise TransientError("the request was lost")
        answer = await self.real.patch(path, body, kind)
        if draw < 0.3:
            raise TransientError("the answer was lost")
        return answer

    async def delete(self, path: str, body: Body) -> bytes:
        """See `Transport`."""
        return await self.real.delete(path, body)

    def stream(
        self, path: str, query: Query, read_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """See `Transport`."""
        return self.real.stream(path, query, read_timeout_s)


async def test_all_pods_get_volumes_that_their_nodes_reach(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, tmp_path: Path
) -> None:
    """Whatever is lost or restarted, each pod is bound in the end, with its own volumes, on a node of them."""
    chance = random.Random(7)  # noqa: S311 - a draw that can be repeated

    def lossy(transport: Transport) -> Transport:
        return LostAnswers(transport, chance)

    claims = [f"data-{number}" for number in range(PODS)]
    failing = set(chance.sample(claims[PODS // 2 :], 5))
    provisioner = Provisioner(apiserver, namespace, fails=failing)
    async with binding_controllers(apiserver, tmp_path / "controllers"):
        async with scheduler(apiserver, valkey, namespace, wrap=lossy, volumes_s=20) as world:
            await make(world, claims)
            for number in chance.sample(range(PODS), PODS // 2):
                await create_user(apiserver, namespace, f"web-{number}", claims[number])
            for name in chance.sample(claims[PODS // 2 :], 5):
                await apiserver.must("DELETE", f"{claims_path(namespace)}/{name}")
                await until(partial(is_gone, apiserver, f"{claims_path(namespace)}/{name}"))
        async with (
            scheduler(apiserver, valkey, namespace, wrap=lossy, volumes_s=20) as world,
            provisioner.running(),
        ):
            await report(world)
            for number, name in enumerate(claims):
                if await is_gone(apiserver, f"{claims_path(namespace)}/{name}"):
                    await create_claim(apiserver, namespace, name, "zonal")
                if await is_gone(apiserver, f"{CORE}/namespaces/{namespace}/pods/web-{number}"):
                    await create_user(apiserver, namespace, f"web-{number}", name)
            for number in range(PODS):
                await world.until_bound(f"web-{number}")
            await check(world)


async def make(world: World, claims: list[str]) -> None:
    """Make nodes, local volumes for half of the claims, and all claims."""
    for number in range(NODES):
        zone = "ab"[number % 2]
        await create_node(world.api, f"n{number}", labels={ZONE: f"z{zone}"})
    await report(world)
    await create_class(world.api, "local")
    await create_class(world.api, "zonal", DRIVER)
    for number, name in enumerate(claims):
        if number < PODS // 2:
            label = HOSTNAME, f"n{number % NODES}"
            await create_volume(world.api, f"local-{number}", "local", label=label)
        await create_claim(world.api, world.namespace, name, "local" if number < PODS // 2 else "zonal")


async def report(world: World) -> None:
    """Report the GPU of each node."""
    for number in range(NODES):
        await world.report(f"n{number}", 24)


async def is_gone(api: ApiServer, path: str) -> bool:
    """Whether there is no object at a path."""
    return (await api.call("GET", path)).status == 404


async def check(world: World) -> None:
    """Check that each pod has its own volume, and a node that reaches it."""

    async def are_all_bound() -> list[Object]:
        claims = (await world.api.get(claims_path(world.namespace)))["items"]
        bound: list[Object] = [one for one in claims if one["status"]["phase"] == "Bound"]
        return bound if len(bound) == PODS else []

    claims = {one["metadata"]["name"]: one["spec"]["volumeName"] for one in await until(are_all_bound)}
    assert len(set(claims.values())) == PODS
    nodes = {one["metadata"]["name"]: one["metadata"]["labels"] for one in await items(world, "nodes")}
    volumes = {one["metadata"]["name"]: one["spec"] for one in await items(world, "persistentvolumes")}
    for number in range(PODS):
        node = (await world.pod(f"web-{number}"))["spec"]["nodeName"]
        terms = volumes[claims[f"data-{number}"]]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        (rule,) = terms[0]["matchExpressions"]
        assert nodes[node][rule["key"]] in rule["values"]


async def items(world: World, kind: str) -> list[Object]:
    """All objects of a kind."""
    found: list[Object] = (await world.api.get(f"{CORE}/{kind}"))["items"]
    return found
