"""A node whose monitor is silent gets no GPU pod, says so, and keeps what is promised there."""

import contextlib
from collections.abc import AsyncIterator

from plimsoll.ids import NodeName
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import World, gpu_of, scheduler
from tests.placer.states import read, reader_of
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest

N1 = NodeName("n1")
REASON = "0/1 nodes are available: 1 node(s) had not reported for too long."


@contextlib.asynccontextmanager
async def with_node(apiserver: ApiServer, valkey: EmbeddedServer, namespace: str) -> AsyncIterator[World]:
    """A scheduler with one node, whose only GPU has been reported."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, N1)
        await world.report(N1, 24)
        yield world


async def test_silent_node_gets_no_pod_until_it_reports(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """The refusal has a reason of its own, and the next report alone brings the pod to the node."""
    async with with_node(apiserver, valkey, namespace) as world:
        reader = reader_of(world.parts.context.decider)
        world.reports.set_silent(N1)
        await create_pod(apiserver, namespace, pod_manifest("p", {MEMORY: "10Gi"}))
        await world.until_refused("p", REASON)
        [row] = (await read(reader)).nodes
        assert row.silent
        await world.report(N1, 24)
        assert gpu_of(await world.until_bound("p")) == (N1, "GPU-n1-0")
        [row] = (await read(reader)).nodes
        assert not row.silent


async def test_pod_without_gpu_goes_to_a_silent_node(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str
) -> None:
    """A pod that needs no GPU needs no report: the kubelet's own readiness decides."""
    async with with_node(apiserver, valkey, namespace) as world:
        world.reports.set_silent(N1)
        await create_pod(apiserver, namespace, pod_manifest("p", {"cpu": "1"}))
        await world.until_bound("p")
