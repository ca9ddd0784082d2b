"""One pod's place, with the part of each GPU that its containers were given.

A placed pod is written to the API server as a decision (`plimsoll.decision`), and `booking_of` reads that decision
back. Nothing else of a bound pod says what it was given.
"""

from dataclasses import dataclass, replace

from placer.core.owners import owner_of
from plimsoll.decision import Decision, GpuGrant, decision_of
from plimsoll.demand import ContainerDemand, gpu_name_of
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.lifespan import MAIN, Lifespan, StartOrder, longer, start_order
from plimsoll.locality import NO_LABELS, Locality, locality_of
from plimsoll.part.errors import InputError


@dataclass(frozen=True, slots=True)
class Grant:
    """The part of one GPU that one container was given.

    Attributes:
        memory_bytes: the declared size, or the one of the last resize; None for best-effort and whole GPUs.
        share_pct: the guaranteed share, declared or resized; 100 for whole GPUs.
        limit_pct: the share limit, declared or resized.
        whole: the container owns the GPU alone.
        line_bytes: the line that the broker enforces here: `memory_bytes`, or the bytes that promises left free.
        lifespan: the part of the pod's life in which the container runs.
    """

    container: ContainerName
    gpu: GpuUuid
    memory_bytes: int | None
    share_pct: int
    limit_pct: int
    whole: bool
    line_bytes: int
    lifespan: Lifespan = MAIN


@dataclass(frozen=True, slots=True)
class Doubt:
    """The reason why a bound pod counts otherwise than its decision on the API server says.

    Attributes:
        namespace, name: the pod's.
        reason: a text for people.
        foreign: the placer's decision is missing or was never readable, so the pod counts against every GPU of its
            node. False: somebody else changed the decision, so the larger of the placer's decision and the changed
            one counts on each GPU.
        unheld: nothing holds the pod to what counts: it has neither pages nor library.
    """

    namespace: str
    name: str
    reason: str
    foreign: bool
    unheld: bool = False


@dataclass(frozen=True, slots=True)
class Booking:
    """One pod's place: a node and grants on its GPUs.

    Attributes:
        owner: the workload whose pods do the same work, see `placer.core.owners`; None if nothing shows it.
        doubt: None for a pod that counts as its decision says.
        gpu_name: the name of its GPU, see `plimsoll.demand.PodDemand`; None for a pod without one.
        locality: its labels, which its GPUs have while it is booked.
    """

    pod: PodUid
    node: NodeName
    grants: tuple[Grant, ...]
    owner: str | None = None
    doubt: Doubt | None = None
    gpu_name: str | None = None
    locality: Locality = NO_LABELS


def shares_a_whole_gpu(booking: Booking, gpu: GpuUuid) -> bool:
    """Whether another container of the pod runs on a GPU at the same time as one that owns it alone."""
    on = [grant for grant in booking.grants if grant.gpu == gpu]
    return any(
        owner.whole and other is not owner and owner.lifespan.meets(other.lifespan)
        for owner in on
        for other in on
    )


def learns(grant: Grant) -> bool:
    """Whether the expected bytes of a grant are learned from its owner's pods."""
    return grant.memory_bytes is None and not grant.whole


def booking_of(pod: Pod) -> Booking | None:
    """The booking that a bound pod's decision states, resizes included; None for a pod without a decision.

    Raises:
        InputError: the decision cannot be read.
    """
    decision = decision_of(pod)
    if decision is None or not pod.spec.nodeName:
        return None
    return Booking(
        PodUid(pod.metadata.uid),
        NodeName(pod.spec.nodeName),
        _grants_in(decision),
        owner_of(pod),
        gpu_name=_name_of(pod),
        locality=locality_of(pod.metadata.namespace, decision.labels),
    )


def _grants_in(decision: Decision) -> tuple[Grant, ...]:
    return tuple(
        Grant(
            container=container,
            gpu=one.gpu,
            memory_bytes=one.memory_bytes,
            share_pct=one.share_pct,
            limit_pct=one.limit_pct,
            whole=one.whole,
            line_bytes=one.line_bytes,
            lifespan=decision.start.lifespan(container),
        )
        for container, given in decision.containers.items()
        for one in given
    )


def _name_of(pod: Pod) -> str | None:
    """The name of a bound pod's GPU. A name that cannot be read does not count: the pod's grants do."""
    try:
        return gpu_name_of(pod)
    except InputError:
        return None


def decided(booking: Booking) -> dict[ContainerName, tuple[GpuGrant, ...]]:
    """The grants of a booking as its pod's decision states them; `booking_of` reads them back."""
    containers: dict[ContainerName, tuple[GpuGrant, ...]] = {}
    for grant in booking.grants:
        given = GpuGrant(
            gpu=grant.gpu,
            memory_bytes=grant.memory_bytes,
            line_bytes=grant.line_bytes,
            share_pct=grant.share_pct,
            limit_pct=grant.limit_pct,
            whole=grant.whole,
        )
        containers[grant.container] = (*containers.get(grant.container, ()), given)
    return containers


def start_of(booking: Booking) -> StartOrder:
    """The order in which the init containers of a booking begin, as its pod's decision states it."""
    return start_order({grant.container: grant.lifespan for grant in booking.grants})


def larger(one: Booking, other: Booking) -> Booking:
    """The booking that counts while either may be in force: `other`, with the larger of both on each GPU."""
    grants = {(grant.container, grant.gpu): grant for grant in other.grants}
    for grant in one.grants:
        found = grants.get((grant.container, grant.gpu))
        grants[grant.container, grant.gpu] = grant if found is None else _larger(grant, found)
    return replace(other, grants=tuple(grants.values()))


def _larger(one: Grant, other: Grant) -> Grant:
    declared = [size for size in (one.memory_bytes, other.memory_bytes) if size is not None]
    return replace(
        other,
        memory_bytes=max(declared, default=None),
        share_pct=max(one.share_pct, other.share_pct),
        limit_pct=max(one.limit_pct, other.limit_pct),
        whole=one.whole or other.whole,
        line_bytes=max(one.line_bytes, other.line_bytes),
        lifespan=longer(one.lifespan, other.lifespan),
    )


def grant_of(demand: ContainerDemand, gpu: GpuUuid, free_bytes: int) -> Grant:
    """The grant of a container on a GPU that has `free_bytes` free for it; a percentage must stand in bytes."""
    assert demand.memory_pct is None, "the demand is that on this GPU, see ContainerDemand.on"
    return Grant(
        container=demand.container,
        gpu=gpu,
        memory_bytes=demand.memory_bytes,
        share_pct=100 if demand.whole else demand.share_pct,
        limit_pct=demand.limit_pct,
        whole=demand.whole,
        line_bytes=max(free_bytes, 0) if demand.memory_bytes is None else demand.memory_bytes,
        lifespan=demand.lifespan,
    )
