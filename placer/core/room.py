"""How much room a GPU has: the design's one formula for headroom, and whether a container fits.

    headroom = usable − Σ over booked pods of max(expected, measured) − unattributed

`expected` is the declaration or, for best-effort pods, the peak learned from their owner's earlier tasks; it
counts from placement on. `unattributed` is measured memory of no booked pod: unmanaged processes, and pods that
ended but whose processes still hold memory.

A node that overcommits (its ratio is above 1) lets declarations go on past that, up to usable × ratio: its broker
makes allocations wait that do not fit yet. Whoever declares nothing gets none of it, and no pod is promised more of
a GPU than is there, or it would wait for itself.
"""

from dataclasses import dataclass
from typing import Final

from placer.core.ledger import Booking, Ledger
from placer.core.reasons import Reason
from placer.core.view import GpuView
from plimsoll.contract import ContainerDemand
from plimsoll.ids import NodeName
from plimsoll.quantity import MIB

SHARERS_PER_GPU: Final = 30
"""Containers that may share one GPU: the count the monitor advertises for each GPU by default (Kang et al. use
30 as well). Each costs a context of some 300 MiB, so more rarely fit."""

WHOLE_TOLERANCE_BYTES: Final = 512 * MIB
"""Memory of nobody's that a GPU may show and still be handed out whole: a display or monitoring agent."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of one GPU.

    Attributes:
        free_bytes: headroom; negative where measured use, or promises of an overcommitting node, passed it.
        promisable_bytes: what may still be declared: the headroom with the node's ratio.
        pending_bytes: what the plan under way has declared here already.
        free_share_pct: share not yet promised, 0–100.
        sharers: containers on it.
        unattributed_bytes: measured memory of no booked pod.
        taken_whole: it is one container's alone.
    """

    gpu: GpuView
    free_bytes: int
    promisable_bytes: int
    pending_bytes: int
    free_share_pct: int
    sharers: int
    unattributed_bytes: int
    taken_whole: bool

    def open_to(self, demand: ContainerDemand) -> int:
        """The most that a container may be expected to need here."""
        if demand.memory_bytes is None:
            return min(self.free_bytes, self.promisable_bytes)
        return min(self.promisable_bytes, self.gpu.usable_bytes - self.pending_bytes)

    @property
    def free_ratio(self) -> float:
        """Headroom ÷ usable memory, 0–1."""
        return min(max(self.free_bytes / self.gpu.usable_bytes, 0.0), 1.0)


def room_on(node: NodeName, gpu: GpuView, ledger: Ledger, pending: Booking | None = None) -> Room:
    """The room on one GPU.

    Args:
        node: where the GPU is.
        gpu: as last reported.
        ledger: everybody's bookings.
        pending: the part of a plan that is made but not booked, or None.
    """
    booked = ledger.on_gpu(node, gpu.uuid)
    sharers = booked if pending is None else (*booked, pending)
    grants = [grant for booking in sharers for grant in booking.grants if grant.gpu == gpu.uuid]
    promised = sum(
        max(ledger.expected_bytes(booking, gpu.uuid), gpu.measured_bytes.get(booking.pod, 0))
        for booking in sharers
    )
    attributed = sum(gpu.measured_bytes.get(booking.pod, 0) for booking in booked)
    unattributed = max(gpu.used_bytes - attributed, 0)
    taken = promised + unattributed
    planned = pending.grants if pending is not None else ()
    return Room(
        gpu=gpu,
        free_bytes=gpu.usable_bytes - taken,
        promisable_bytes=int(gpu.usable_bytes * gpu.overcommit_ratio) - taken,
        pending_bytes=sum(grant.memory_bytes or 0 for grant in planned if grant.gpu == gpu.uuid),
        free_share_pct=100 - sum(grant.share_pct for grant in grants),
        sharers=len(grants),
        unattributed_bytes=unattributed,
        taken_whole=any(grant.whole for grant in grants),
    )


def misfit(room: Room, demand: ContainerDemand, expected_bytes: int) -> Reason | None:
    """Why a container does not fit on a GPU, or None if it does.

    Args:
        room: what the GPU has left.
        demand: what the container asks per GPU.
        expected_bytes: what it is expected to need here: its declaration, or what was learned of its owner.
    """
    if room.taken_whole:
        return Reason.GPU_TAKEN_WHOLE
    if demand.whole:
        free = room.sharers == 0 and room.unattributed_bytes <= WHOLE_TOLERANCE_BYTES
        return None if free else Reason.GPU_NOT_EMPTY
    if room.sharers >= SHARERS_PER_GPU:
        return Reason.GPU_SHARERS
    if room.open_to(demand) < max(expected_bytes, 1):
        return Reason.GPU_MEMORY
    if room.free_share_pct < demand.share_pct:
        return Reason.GPU_SHARE
    return None
