"""The GPUs of one node as they would be, were some of its pods gone and some others there.

Measured memory goes with the pod whose processes hold it. What always holds: nothing outside is changed, and rooms
are those that `room_on` gives.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies import Policy
from placer.core.policy_context import Request
from placer.core.refusal import Refusal
from placer.core.room import Room, room_on
from placer.core.view import GpuView, NodeView
from plimsoll.ids import GpuUuid, PodUid


class GpuDryRun:
    """The GPUs of a node. Pods are taken off these GPUs and put back."""

    def __init__(
        self, node: NodeView, ledger: Ledger, more: Collection[Booking] = (), only: GpuUuid | None = None
    ) -> None:
        """Suppose nothing yet but further bookings.

        Args:
            node: the node as last reported.
            ledger: the bookings of all pods; not changed.
            more: bookings on this node that count too.
            only: the only GPU to consider; None: all.
        """
        gpus = tuple(gpu for gpu in node.gpus if only in (None, gpu.uuid))
        self._node = replace(node, gpus=gpus)
        self._ledger = ledger.part(node.node, [gpu.uuid for gpu in gpus])
        for booking in more:
            self._ledger.restore(booking)
        self._reported = {gpu.uuid: gpu for gpu in gpus}
        self._views_then = dict(self._reported)
        self._outdated: set[GpuUuid] = set()  # GPUs whose view is to be made anew
        self._rooms: dict[GpuUuid, Room] = {}
        self._removed: dict[PodUid, Booking | None] = {}

    @property
    def ledger(self) -> Ledger:
        """The bookings on these GPUs as they would be; change nothing."""
        return self._ledger

    @property
    def node(self) -> NodeView:
        """The node as it would be reported."""
        return replace(self._node, gpus=tuple(self._views.values()))

    def concerns(self, pod: PodUid) -> bool:
        """Whether a pod has a booking or measured memory on one of these GPUs."""
        return self._ledger.booking(pod) is not None or any(
            pod in gpu.measured_bytes for gpu in self._reported.values()
        )

    def remove(self, pod: PodUid) -> None:
        """Suppose that a pod is gone."""
        self._removed[pod] = self._ledger.forget(pod)
        self._renew(pod, self._removed[pod])

    def put_back(self, pod: PodUid) -> None:
        """Suppose that a removed pod is there."""
        booking = self._removed.pop(pod)
        if booking is not None:
            self._ledger.restore(booking)
        self._renew(pod, booking)

    def plan(self, request: Request, policy: Policy) -> Plan | Refusal:
        """Plan on the node as it would be."""
        for gpu in self._views.values():
            if gpu.uuid not in self._rooms:
                self._rooms[gpu.uuid] = room_on(self._node.node, gpu, self._ledger)
        return plan_on(request, self.node, self._ledger, policy, self._rooms)

    @property
    def _views(self) -> Mapping[GpuUuid, GpuView]:
        """The GPUs as they would be reported."""
        for uuid in self._outdated:
            self._views_then[uuid] = self._without_removed(self._reported[uuid])
        self._outdated.clear()
        return self._views_then

    def _renew(self, pod: PodUid, booking: Booking | None) -> None:
        booked = {grant.gpu for grant in booking.grants} if booking is not None else set()
        for uuid, gpu in self._reported.items():
            if pod in gpu.measured_bytes:
                self._outdated.add(uuid)
            if pod in gpu.measured_bytes or uuid in booked:
                self._rooms.pop(uuid, None)

    def _without_removed(self, gpu: GpuView) -> GpuView:
        left = {pod: size for pod, size in gpu.measured_bytes.items() if pod not in self._removed}
        freed_bytes = sum(gpu.measured_bytes.values()) - sum(left.values())
        return replace(gpu, measured_bytes=left, used_bytes=max(gpu.used_bytes - freed_bytes, 0))
