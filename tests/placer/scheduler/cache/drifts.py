"""Builders of changes to a pod's booking: a drift and its repair, and a resize whose write has no clear answer."""

from collections.abc import Callable
from dataclasses import replace

from placer.core.resize.change import change_of
from plimsoll.ids import PodUid
from plimsoll.placer_api.rpc import Resize
from plimsoll.quantity import GIB
from tests.placer.kube.scene import Scene


def resized(found: Scene, name: str, gib: int) -> None:
    """Begin a resize of a pod's memory, whose write has no clear answer."""
    pod, booking = found.pods[name], found.ledger.booking(PodUid(name))
    assert booking is not None
    change = change_of(booking, Resize(pod=name, namespace="default", gpu_memory=f"{gib}Gi"))
    found.cache.bookings.begin_resize(change, pod.metadata.resourceVersion)
    found.cache.bookings.doubt_resize(change)


def drift_up(found: Scene, name: str, gib: int) -> None:
    """Let the ledger count more for a pod than its decision says."""
    booking = found.ledger.booking(PodUid(name))
    assert booking is not None
    grants = tuple(replace(grant, memory_bytes=gib * GIB, line_bytes=gib * GIB) for grant in booking.grants)
    found.ledger.restore(replace(booking, grants=grants))


def mended(name: str, *, exists: bool = True) -> Callable[[Scene], None]:
    """The comparison with the API server repairs what is counted for a pod."""
    return lambda found: found.drift_check()._mend(PodUid(name), found.pods[name] if exists else None)
