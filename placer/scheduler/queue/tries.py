"""The work that the queue gives out: the try of a pod, or the probe of a changed node for parked pods."""

from dataclasses import dataclass

from placer.scheduler.queue.parking import PodKind
from plimsoll.ids import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Try:
    """Work: decide on a pod, which has waited `waited_s` seconds for its turn."""

    uid: PodUid
    waited_s: float


@dataclass(frozen=True, slots=True)
class Probe:
    """Work: find out whether a node could take this pod now, which stands for its kind."""

    uid: PodUid
    node: NodeName
    kind: PodKind
