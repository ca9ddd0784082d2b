"""A small cluster in every state that `plimsoll top` and the tables show, behind a real server."""

from msgspec.structs import replace

from placer.core.schedulability import Schedulability
from plimsoll.events import Phase
from plimsoll.gpu_events import Condition, GpuHealth, HealthClass
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.placer_api.live import WaitingPod
from tests.placer.live.test_news import denied
from tests.placer.live.world import World, card, loading, state, world

NOW = "2026-01-01T00:00:00Z"


async def fleet() -> World:
    """Pods that load, have loaded and have no process, one past its promise, and two that wait, on two nodes.

    One GPU is lost, one cordoned, and so was one that was replaced since. The second node is cordoned and tainted.
    """
    lost = GpuHealth(
        gpu=GpuUuid("GPU-7"),
        index=2,
        model="NVIDIA L4",
        health=HealthClass.FATAL,
        since=NOW,
        conditions=(
            Condition(what="lost", health=HealthClass.FATAL, since=NOW, text="NVML does not list it"),
        ),
    )
    first = state(
        "gpu-pool-a-9",
        card("GPU-9", loading("a", "GPU-9", 3), loading("b", "GPU-9", 6, Phase.LOADING)),
        card("GPU-8", index=1, ratio=1.25),
    )
    made = await world(
        replace(first, health=(lost,)), state("gpu-pool-a-10", card("GPU-10", loading("d", "GPU-10", 9)))
    )
    made.book("a", "gpu-pool-a-9", "GPU-9", 8, share_pct=30, name="trainer")
    made.book("b", "gpu-pool-a-9", "GPU-9", 10, share_pct=20, name="loader-模型")
    made.book("c", "gpu-pool-a-9", "GPU-8", 26, share_pct=70, name="server")
    made.book("d", "gpu-pool-a-10", "GPU-10", 4, name="a-pod-with-quite-a-long-name-7d9f8c6b5-x2x9z")
    for name, reason in (
        ("big", "0/2 nodes are available: 2 no GPU has enough memory"),
        ("hostile\x1b[2J", "\x1b]0;title\x07tenants choose texts"),
    ):
        made.pods.without_node.append(
            WaitingPod(pod=PodUid(name), namespace="team", name=name, asks="80Gi on 1 GPU", reason=reason)
        )
    cordoned = frozenset(("GPU-8", "GPU-replaced"))
    made.decider.pool.put_schedulability(NodeName("gpu-pool-a-9"), Schedulability(cordoned=cordoned))
    made.decider.pool.put_schedulability(
        NodeName("gpu-pool-a-10"), Schedulability(("cordoned",), ("dedicated=ml:NoSchedule",))
    )
    made.page.news.note(denied())
    return made
