"""Small clusters for the core's tests: nodes, GPUs, pods and demands in one line each."""

from collections.abc import Sequence
from dataclasses import replace

from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import Policy
from placer.core.policy_context import Request
from placer.core.refusal import Refusal, together
from placer.core.view import NodeView
from placer.decide import NodeFit
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.events import Gpu, NodeState, Phase, Task
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.lifespan import Lifespan
from plimsoll.quantity import GIB


def gpu(
    uuid: str,
    *tasks: Task,
    idle_pct: float = 100.0,
    usable_gib: int = 24,
    other_bytes: int = 0,
    ratio: float = 1.0,
) -> Gpu:
    """A GPU holding these tasks, and `other_bytes` of unknown processes."""
    return Gpu(
        uuid=GpuUuid(uuid),
        index=0,
        model="NVIDIA L4",
        usable_bytes=usable_gib * GIB,
        used_bytes=sum(task.used_bytes for task in tasks) + other_bytes,
        idle_pct=idle_pct,
        overcommit_ratio=ratio,
        tasks=tasks,
    )


def task(pod: str | None, gpu_uuid: str, used_bytes: int, peak_bytes: int | None = None) -> Task:
    """A loaded task of a pod."""
    return Task(
        pid=1,
        start_ticks=1,
        gpu=GpuUuid(gpu_uuid),
        phase=Phase.LOADED,
        used_bytes=used_bytes,
        peak_bytes=used_bytes if peak_bytes is None else peak_bytes,
        pod=PodUid(pod) if pod else None,
    )


def state(node: str, *gpus: Gpu, seq: int = 1) -> NodeState:
    """A node's report."""
    return NodeState(node=NodeName(node), epoch=1, seq=seq, time="2026-01-01T00:00:00Z", gpus=gpus)


def declared(name: str, memory_gib: float, share_pct: int = 0, gpus: int = 1) -> ContainerDemand:
    """A container that declares its memory."""
    return ContainerDemand(ContainerName(name), gpus, int(memory_gib * GIB), share_pct, 100, whole=False)


def percent(name: str, memory_pct: int, share_pct: int = 0, gpus: int = 1) -> ContainerDemand:
    """A container that declares its memory in percent of each GPU."""
    name_of = ContainerName(name)
    return ContainerDemand(name_of, gpus, None, share_pct, 100, whole=False, memory_pct=memory_pct)


def init(demand: ContainerDemand, place: int, *, sidecar: bool = False) -> ContainerDemand:
    """The demand as that of an init container, or of a sidecar."""
    return replace(demand, lifespan=Lifespan(place, sidecar))


def best_effort(name: str = "main") -> ContainerDemand:
    """A container that declares no memory."""
    return ContainerDemand(ContainerName(name), 1, None, 0, 100, whole=False)


def whole(name: str = "main", gpus: int = 1) -> ContainerDemand:
    """A container that wants whole GPUs."""
    return ContainerDemand(ContainerName(name), gpus, None, 0, 100, whole=True)


def request(pod: str, *containers: ContainerDemand, owner: str | None = None) -> Request:
    """The request to place this pod."""
    return Request(PodUid(pod), PodDemand(containers), owner)


def plan(
    request: Request, nodes: Sequence[NodeView], ledger: Ledger, policy: Policy, fit: NodeFit = lambda _: ()
) -> Plan | Refusal:
    """Find the best place among these nodes.

    Every given node is considered. Among equal scores the earlier node wins.

    Args:
        request: the pod.
        nodes: the nodes in order of preference.
        ledger: the bookings of all pods; not changed.
        policy: the order among GPUs that fit.
        fit: the front end's own filter (CPU, taints, …); its reasons join the refusal.
    """
    best: Plan | None = None
    refusals: list[Refusal] = []
    for node in nodes:
        unfit = fit(node.node)
        tried = Refusal({node.node: unfit}) if unfit else plan_on(request, node, ledger, policy)
        if isinstance(tried, Refusal):
            refusals.append(tried)
        elif best is None or tried.score > best.score:
            best = tried
    return together(refusals) if best is None else best
