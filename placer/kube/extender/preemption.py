"""The check of kube-scheduler's victims: would their GPUs take the pod that they make room for?

kube-scheduler chooses victims by the sums over a node, so their room may lie on several GPUs and be of no use. Pure.
"""

from collections.abc import Set as AbstractSet
from dataclasses import replace

from placer.core.ledger import Ledger
from placer.core.plan import Plan, plan_on
from placer.core.view import GpuView, NodeView
from placer.kube.extender.demand import Asked
from plimsoll.ids import PodUid


class _Remaining(Ledger):
    """The bookings that remain on one node; the peaks of owners are those of the whole ledger."""

    def __init__(self, whole: Ledger) -> None:
        super().__init__()
        self._whole = whole

    def best_effort_bytes(self, owner: str | None) -> int:
        """See `Ledger`."""
        return self._whole.best_effort_bytes(owner)


def fits_without(asked: Asked, victims: AbstractSet[PodUid], view: NodeView, ledger: Ledger) -> bool:
    """Whether a pod fits on a node's GPUs once these pods and their processes are gone.

    Args:
        asked: the pod.
        victims: pods on the node; some may have no GPU.
        view: the node as last reported.
        ledger: the bookings of all pods; not changed.
    """
    remaining = _Remaining(ledger)
    for gpu in view.gpus:
        for booking in ledger.on_gpu(view.node, gpu.uuid):
            if booking.pod not in victims:
                remaining.restore(booking)
    freed = replace(view, gpus=tuple(_without(gpu, victims) for gpu in view.gpus))
    return isinstance(plan_on(asked.request, freed, remaining, asked.policy), Plan)


def _without(gpu: GpuView, victims: AbstractSet[PodUid]) -> GpuView:
    gone_bytes = sum(size for pod, size in gpu.measured_bytes.items() if pod in victims)
    kept = {pod: size for pod, size in gpu.measured_bytes.items() if pod not in victims}
    return replace(gpu, used_bytes=max(gpu.used_bytes - gone_bytes, 0), measured_bytes=kept)
