"""One node with one GPU under a real API server, with pods that the tests resize."""

import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Final, NamedTuple

from plimsoll.ids import PodUid
from plimsoll.kube.transport import Transport
from plimsoll.placer_api.rpc import Resize, Resizing
from plimsoll.quantity import GIB
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY, SHARE
from tests.placer.kube.world import World, scheduler
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest

GPU: Final = "GPU-n1-0"


class Counted(NamedTuple):
    """The memory, share and limit that the ledger counts for a pod."""

    line_gib: float
    share_pct: int
    limit_pct: int


@contextlib.asynccontextmanager
async def one_gpu(
    api: ApiServer,
    valkey: EmbeddedServer,
    namespace: str,
    wrap: Callable[[Transport], Transport] = lambda transport: transport,
) -> AsyncIterator[World]:
    """A scheduler whose only node has a GPU of 24 GiB, all of it free."""
    async with scheduler(api, valkey, namespace, wrap=wrap) as world:
        await create_node(api, "n1")
        await world.report("n1", 24)
        yield world


async def placed(world: World, name: str, size: str = "4Gi", share: int = 0, **annotations: str) -> None:
    """Create a pod with this memory and share, and wait until it is on the only GPU."""
    limits = {MEMORY: size, **({SHARE: str(share)} if share else {})}
    named = {f"plimsoll.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    await create_pod(world.api, world.namespace, pod_manifest(name, limits, annotations=named))
    await world.until_bound(name)


async def resize(
    world: World, name: str, size: str | None = None, share: str | None = None, limit: str | None = None
) -> Resizing:
    """Request a resize as an operator does."""
    asked = Resize(
        pod=name, namespace=world.namespace, gpu_memory=size, gpu_share=share, gpu_share_limit=limit
    )
    return await world.parts.doors.resizer.resize(asked)


async def written(world: World, name: str) -> Counted:
    """The memory, share and limit that the pod's decision states."""
    annotations = (await world.pod(name))["metadata"]["annotations"]
    [grant] = json.loads(annotations["plimsoll.dev/decision"])["containers"]["main"]
    return Counted(grant["line_bytes"] / GIB, grant.get("share_pct", 0), grant.get("limit_pct", 100))


async def counted(world: World, name: str) -> Counted:
    """The values that the ledger counts for the pod on its GPU."""
    booking = world.ledger.booking(PodUid((await world.pod(name))["metadata"]["uid"]))
    assert booking is not None
    grant = booking.grants[0]
    return Counted(grant.line_bytes / GIB, grant.share_pct, grant.limit_pct)
