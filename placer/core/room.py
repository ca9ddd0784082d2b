"""The room on a GPU: the one formula for headroom, and the check that a container fits.

    headroom = usable − Σ over booked pods of max(expected, measured) − unattributed

`expected` is the declaration or, for best-effort pods, the peak learned from their owner's earlier tasks. It counts
from placement on. If containers never run at the same time, only the largest counts (`plimsoll.lifespan`).
`unattributed` is measured memory that belongs to no booked pod: memory of unmanaged processes, and of pods that ended
but whose processes still hold it.

On a node that overcommits (its ratio is above 1), declarations may pass the headroom, up to usable × ratio. An
allocation that does not fit yet waits at the node's broker. Best-effort containers get none of that surplus. No pod
is promised more of a GPU than the card has, because its own allocations would then wait for each other.
"""

from dataclasses import dataclass, replace
from typing import Final

from placer.core.booking import Booking, Grant
from placer.core.ledger import Ledger
from placer.core.locality import IDLE, GpuLabels, gpu_labels
from placer.core.reasons import Reason
from placer.core.view import GpuView
from plimsoll.demand import ContainerDemand
from plimsoll.ids import NodeName
from plimsoll.locality import Locality
from plimsoll.quantity import MIB

SHARERS_PER_GPU: Final = 30
"""Containers that may share one GPU: the monitor's default count for each GPU (Kang et al. use 30 as well). Each
container costs a context of some 300 MiB, so more rarely fit."""

WHOLE_TOLERANCE_BYTES: Final = 512 * MIB
"""Unattributed memory that a GPU may have and still be given whole: a display or a monitoring agent holds some."""


@dataclass(frozen=True, slots=True)
class Room:
    """The room on one GPU.

    Attributes:
        free_bytes: the headroom; negative where measured use, or promises of an overcommitting node, pass usable.
        promisable_bytes: the bytes that may still be declared: the headroom with the node's overcommit ratio.
        pending_bytes: the bytes that the plan under way has declared here already.
        free_share_pct: the share not yet promised, 0–100.
        sharers: the number of containers that may run on the GPU at the same time.
        unattributed_bytes: measured memory that belongs to no booked pod.
        taken_whole: one container owns the GPU alone.
        labels: the locality labels of the booked pods.
    """

    gpu: GpuView
    free_bytes: int
    promisable_bytes: int
    pending_bytes: int
    free_share_pct: int
    sharers: int
    unattributed_bytes: int
    taken_whole: bool
    labels: GpuLabels = IDLE

    def open_to(self, demand: ContainerDemand) -> int:
        """The most bytes that a container may be expected to need here."""
        return self.undeclared_bytes if demand.best_effort or demand.whole else self.declarable_bytes

    @property
    def declarable_bytes(self) -> int:
        """The most bytes that a container may declare here."""
        return min(self.promisable_bytes, self.gpu.usable_bytes - self.pending_bytes)

    @property
    def undeclared_bytes(self) -> int:
        """The most bytes that a container which declares no memory may be expected to need here."""
        return min(self.free_bytes, self.promisable_bytes)

    def after(self, grant: Grant, expected_bytes: int) -> "Room":
        """The room that is left after a grant of the plan under way, as `room_on` with the plan gives it.

        Args:
            grant: a grant on this GPU to a pod without measured memory on it.
            expected_bytes: the bytes that the container is expected to need.
        """
        return replace(
            self,
            free_bytes=self.free_bytes - expected_bytes,
            promisable_bytes=self.promisable_bytes - expected_bytes,
            pending_bytes=self.pending_bytes + (grant.memory_bytes or 0),
            free_share_pct=self.free_share_pct - grant.share_pct,
            sharers=self.sharers + 1,
            taken_whole=self.taken_whole or grant.whole,
        )

    def within(self, other: "Room") -> "Room":
        """The room for a container that runs both while this room is left on the GPU and while the other is."""
        return replace(
            self,
            free_bytes=min(self.free_bytes, other.free_bytes),
            promisable_bytes=min(self.promisable_bytes, other.promisable_bytes),
            pending_bytes=max(self.pending_bytes, other.pending_bytes),
            free_share_pct=min(self.free_share_pct, other.free_share_pct),
            sharers=max(self.sharers, other.sharers),
            taken_whole=self.taken_whole or other.taken_whole,
        )

    @property
    def is_empty(self) -> bool:
        """Whether the GPU can be given whole."""
        unused = self.sharers == 0 and self.unattributed_bytes <= WHOLE_TOLERANCE_BYTES
        return unused and not self.taken_whole

    @property
    def free_ratio(self) -> float:
        """Headroom ÷ usable memory, 0–1."""
        ratio = self.free_bytes / self.gpu.usable_bytes
        return ratio if 0.0 <= ratio <= 1.0 else float(ratio > 1.0)  # `min` and `max` take twice as long


def closed_room(room: Room) -> Room:
    """The room on a GPU that takes no pod: none, beside what its pods were promised."""
    return replace(room, free_bytes=0, promisable_bytes=0, free_share_pct=0)


def room_on(node: NodeName, gpu: GpuView, ledger: Ledger, pending: Booking | None = None) -> Room:
    """The room on one GPU.

    Args:
        node: the node of the GPU.
        gpu: the GPU as last reported.
        ledger: the bookings of all pods.
        pending: the part of a plan that is made but not booked, or None.
    """
    booked = ledger.on_gpu(node, gpu.uuid)
    sharers = booked if pending is None else (*booked, pending)
    promises = [ledger.promise(booking, gpu.uuid) for booking in sharers]
    promised = sum(
        max(promise.expected_bytes, gpu.measured_bytes.get(booking.pod, 0))
        for booking, promise in zip(sharers, promises, strict=True)
    )
    attributed = sum(gpu.measured_bytes.get(booking.pod, 0) for booking in booked)
    unattributed = max(gpu.used_bytes - attributed, 0)
    # Memory that was measured of the pod under plan is in its promise already.
    own = 0 if pending is None else gpu.measured_bytes.get(pending.pod, 0)
    taken = promised + max(unattributed - own, 0)
    return Room(
        gpu=gpu,
        free_bytes=gpu.usable_bytes - taken,
        promisable_bytes=int(gpu.usable_bytes * gpu.overcommit_ratio) - taken,
        pending_bytes=promises[-1].declared_bytes if pending is not None else 0,
        free_share_pct=100 - sum(promise.share_pct for promise in promises),
        sharers=sum(promise.sharers for promise in promises),
        unattributed_bytes=unattributed,
        taken_whole=any(promise.whole for promise in promises),
        labels=gpu_labels([booking.locality for booking in booked]),
    )


def misfit(room: Room, demand: ContainerDemand, expected_bytes: int, locality: Locality) -> Reason | None:
    """The reason why a container does not fit on a GPU, or None if it fits.

    Affinity is not considered here, see `placer.core.ledger.Ledger.joined`.

    Args:
        room: the room on the GPU.
        demand: the container's demand per GPU.
        expected_bytes: the container's expected need here if it declares none: the learned peak of its owner.
        locality: the labels of its pod.
    """
    if room.gpu.is_instance and demand.gpus > 1:
        return Reason.MIG_ALONE
    if room.taken_whole:
        return Reason.GPU_TAKEN_WHOLE
    if demand.whole:
        return None if room.is_empty else Reason.GPU_NOT_EMPTY
    kept_out = room.labels.refuse(locality)
    if kept_out is not None or room.sharers >= SHARERS_PER_GPU:
        return kept_out or Reason.GPU_SHARERS
    if room.open_to(demand) < max(demand.on(room.gpu.usable_bytes).memory_bytes or expected_bytes, 1):
        return Reason.GPU_MEMORY
    return Reason.GPU_SHARE if room.free_share_pct < demand.share_pct else None
