"""Nodes and GPUs as last reported, in the form that a decision reads: frozen, and indexed by pod."""

from collections.abc import Mapping
from dataclasses import dataclass

from placer.core.topology.hardware import Hardware
from plimsoll.events import Gpu, NodeState
from plimsoll.gpu_events import GpuHealth, HealthClass
from plimsoll.ids import GpuUuid, NodeName, PodUid


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU as last reported.

    Attributes:
        usable_bytes: NVML's total less the driver's reserve.
        used_bytes: the memory of all processes together.
        idle_pct: the decayed idle average, 0–100.
        overcommit_ratio: bytes that may be promised on this node per usable byte.
        measured_bytes: the memory of each pod's processes; a process whose pod is unknown is in `used_bytes` alone.
        mig_parent: the card of a MIG instance; None for a card.
        memory_busy_pct: the time in which its memory was read or written, 0–100, a decayed average; None if it was
            not measured.
    """

    uuid: GpuUuid
    model: str
    usable_bytes: int
    used_bytes: int
    idle_pct: float
    overcommit_ratio: float
    measured_bytes: Mapping[PodUid, int]
    mig_parent: GpuUuid | None = None
    memory_busy_pct: float | None = None

    @property
    def is_instance(self) -> bool:
        """Whether it is a MIG instance."""
        return self.mig_parent is not None


@dataclass(frozen=True, slots=True)
class Fault:
    """A GPU that takes no pod until it is healthy again, or no longer cordoned.

    Attributes:
        reason: its gravest condition in a few words; empty for a GPU that is cordoned alone.
    """

    gpu: GpuUuid
    model: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node as last reported.

    Attributes:
        order: the report's (epoch, seq).
        gpus: the GPUs that pods may be placed on.
        is_silent: the node has not reported for too long, so it is no candidate.
        outside: its GPUs outside of the pool, see `placer.core.pool`. They have no room.
        acquirable: the number of these that may join the pool.
        faults: its GPUs with a fatal condition, and those that are cordoned. They are in neither list.
        faulty: those of them that can be read. They have no room.
        hardware: links and near CPUs of its GPUs; None before the node's first `node.info`.
    """

    node: NodeName
    order: tuple[int, int]
    gpus: tuple[GpuView, ...]
    is_silent: bool = False
    outside: tuple[GpuView, ...] = ()
    acquirable: int = 0
    faults: tuple[Fault, ...] = ()
    faulty: tuple[GpuView, ...] = ()
    hardware: Hardware | None = None


def node_view(state: NodeState, *, silent: bool = False, hardware: Hardware | None = None) -> NodeView:
    """Index a report for planning."""
    faults = tuple(_fault(one) for one in state.health if one.health is HealthClass.FATAL)
    unfit = {one.gpu for one in faults}
    return NodeView(
        node=state.node,
        order=state.order,
        gpus=tuple(_gpu_view(gpu) for gpu in state.gpus if gpu.uuid not in unfit),
        is_silent=silent,
        faults=faults,
        faulty=tuple(_gpu_view(gpu) for gpu in state.gpus if gpu.uuid in unfit),
        hardware=hardware,
    )


def _fault(health: GpuHealth) -> Fault:
    """A fault in few words, so that equal faults of many nodes count as one reason."""
    gravest = next(iter(health.conditions), None)
    if gravest is None:
        return Fault(health.gpu, health.model, health.health.value)
    number = "XID " + str(gravest.xid) if gravest.xid is not None else gravest.what
    return Fault(health.gpu, health.model, number)


def _gpu_view(gpu: Gpu) -> GpuView:
    measured: dict[PodUid, int] = {}
    for task in gpu.tasks:
        if task.pod is not None:
            measured[task.pod] = measured.get(task.pod, 0) + task.used_bytes
    return GpuView(
        uuid=gpu.uuid,
        model=gpu.model,
        usable_bytes=gpu.usable_bytes,
        used_bytes=gpu.used_bytes,
        idle_pct=gpu.idle_pct,
        overcommit_ratio=gpu.overcommit_ratio,
        measured_bytes=measured,
        mig_parent=gpu.mig_parent,
        memory_busy_pct=gpu.memory_busy_pct,
    )
