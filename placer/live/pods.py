"""The names and demands of pods, as the live page reads them from any front end."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import PodUid
from plimsoll.placer_api.live import WaitingPod
from plimsoll.quantity import format_bytes


class PodName(NamedTuple):
    """A pod's name for people."""

    namespace: str
    name: str


class PodSource(Protocol):
    """A front end's pods."""

    def name_of(self, uid: PodUid) -> PodName | None:
        """The name of a pod, or None for a pod that is not known here."""

    def waiting(self) -> Iterable[WaitingPod]:
        """The pods without a node, read while the caller iterates; other tasks may run meanwhile."""


def asks(demand: PodDemand | None) -> str:
    """A demand in a few words, such as `8Gi, 30 % of 1 GPU`; empty for a pod that asks for no GPU, or for None."""
    if demand is None:
        return ""
    return " + ".join(_asks(container) for container in demand.containers)


def _asks(container: ContainerDemand) -> str:
    gpus = f"{container.gpus} GPU" + ("s" if container.gpus > 1 else "")
    if container.whole:
        return f"{gpus}, whole"
    if container.memory_bytes is not None:
        memory = format_bytes(container.memory_bytes)
    else:
        memory = f"{container.memory_pct} % of memory" if container.memory_pct is not None else "best effort"
    share = f", {container.share_pct} % of time" if container.share_pct else ""
    return f"{memory}{share} on " + (f"each of {gpus}" if container.gpus > 1 else gpus)
