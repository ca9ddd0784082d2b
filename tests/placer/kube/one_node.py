"""A ledger with one node of two GPUs, and pods that are bound to it."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.reasons import Reason
from placer.core.room import misfit, room_on
from placer.core.view import node_view
from placer.scheduler.cache.cache import Cache
from placer.scheduler.profile import Profile
from plimsoll.demand import ContainerDemand
from plimsoll.events import Gpu, NodeState
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.locality import NO_LABELS
from plimsoll.quantity import GIB

N1, GPUS = NodeName("n1"), (GpuUuid("GPU-1"), GpuUuid("GPU-2"))
MAIN, UID = ContainerName("main"), PodUid("a")
WHOLE = ContainerDemand(MAIN, 1, None, 0, 100, whole=True)


def sized(gib: int, share_pct: int = 0) -> ContainerDemand:
    """The demand of a container for one GPU."""
    return ContainerDemand(MAIN, 1, gib * GIB, share_pct, 100, whole=False)


@dataclass
class Node:
    """A ledger with one node, whose GPUs have 24 GiB each.

    Attributes:
        doubts: each booking that was reported to be in doubt.
    """

    ledger: Ledger = field(default_factory=Ledger)
    doubts: list[Booking] = field(default_factory=list)
    cluster: Cache = field(init=False)

    def __post_init__(self) -> None:
        self.cluster = Profile(self.ledger, self.doubts.append).cache

    def report(self, *gpus: GpuUuid) -> None:
        """Take a report of idle GPUs."""
        self.cluster.bookings.observe(state(*gpus))

    def why_not(self, demand: ContainerDemand) -> dict[GpuUuid, Reason | None]:
        """The reason why a container does not fit, by GPU."""
        view = node_view(state(*GPUS))
        return {
            gpu.uuid: misfit(room_on(N1, gpu, self.ledger), demand, demand.memory_bytes or 0, NO_LABELS)
            for gpu in view.gpus
        }

    def counted(self, uid: PodUid = UID) -> tuple[int, int, int]:
        """GiB, share and limit of the pod's only grant."""
        booking = self.ledger.booking(uid)
        assert booking is not None
        [grant] = booking.grants
        return grant.line_bytes // GIB, grant.share_pct, grant.limit_pct


def state(*gpus: GpuUuid) -> NodeState:
    """A report of idle GPUs of 24 GiB."""
    seen = (
        Gpu(uuid=uuid, index=i, model="L4", usable_bytes=24 * GIB, used_bytes=0, idle_pct=100.0)
        for i, uuid in enumerate(gpus)
    )
    return NodeState(node=N1, epoch=1, seq=1, time="t", gpus=tuple(seen))


def bound(
    annotations: dict[str, str] | None = None,
    limits: dict[str, str] | None = None,
    uid: str = "a",
    version: str = "10",
    **spec: object,
) -> Pod:
    """A pod on n1 that requests 4 GiB by default."""
    asked = {"plimsoll.dev/gpu-memory": "4Gi"} if limits is None else limits
    document: dict[str, Any] = {
        "metadata": {
            "name": uid,
            "namespace": "ns",
            "uid": uid,
            "annotations": annotations or {},
            "resourceVersion": version,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": asked}}], **spec},
    }
    return msgspec.json.decode(msgspec.json.encode(document), type=Pod)
