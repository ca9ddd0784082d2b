"""A node whose GPU has a fatal condition: pods wait with a reason, and are placed once the GPU is healthy."""

import pytest

from plimsoll.contract import GPU_COUNT
from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import GpuUuid, NodeName
from plimsoll_cli.demo.servers import EmbeddedServer
from tests.placer.kube.objects import MEMORY
from tests.placer.kube.world import gpu_of, scheduler
from tests.placer.states import read, reader_of
from tests.servers.apiserver import ApiServer
from tests.servers.objects import create_node, create_pod, pod_manifest

N1, GPU = NodeName("n1"), GpuUuid("GPU-n1-0")
FELL = Condition(
    what="xid", health=HealthClass.FATAL, since="2026-01-01T00:00:00Z", text="XID 79: it fell", xid=79
)
HEALTH = GpuHealth(
    gpu=GPU,
    index=0,
    model="NVIDIA L4",
    health=HealthClass.FATAL,
    since="2026-01-01T00:00:00Z",
    conditions=(FELL,),
)


@pytest.mark.parametrize("limits", [{MEMORY: "10Gi"}, {GPU_COUNT: "1"}])
async def test_a_pod_waits_for_an_unhealthy_gpu_and_gets_it_when_it_is_healthy(
    apiserver: ApiServer, valkey: EmbeddedServer, namespace: str, limits: dict[str, str]
) -> None:
    """The refusal names the XID, the state shows it, and the report without it brings the pod to the GPU."""
    async with scheduler(apiserver, valkey, namespace) as world:
        await create_node(apiserver, N1)
        await world.report(N1, 24, health=(HEALTH,))
        await create_pod(apiserver, namespace, pod_manifest("p", limits))
        await world.until_refused("p", "0/1 nodes are available: 1 node(s) had unhealthy GPUs (XID 79).")
        [row] = (await read(reader_of(world.parts.context.decider))).nodes
        assert row.health == (HEALTH,)
        assert [gpu.free_bytes for gpu in row.gpus] == [0]
        await world.report(N1, 24)
        assert gpu_of(await world.until_bound("p")) == (N1, GPU)
