"""A pod without a node, as the scheduler's loop keeps it from one attempt to the next."""

from dataclasses import dataclass

from placer.scheduler.pods.pod_info import PodInfo
from plimsoll.kube.models import Pod


@dataclass(slots=True)
class QueuedPodInfo:
    """A pod without a node.

    Attributes:
        pod: the pod as the watch showed it last.
        seen_s: the time at which it was first seen to wait, on the loop's clock.
        info: its demand, once it was read; dropped when the pod changes.
        refused_for: the reason of the last `unplaceable` event.
        overtaken: the number of refusals in a row that a change overtook.
    """

    pod: Pod
    seen_s: float
    info: PodInfo | None = None
    refused_for: str = ""
    overtaken: int = 0


def same_pod(pod: Pod, old: Pod) -> bool:
    """Whether nothing changed that a decision reads. The placer's own patches of conditions do not count."""
    ours, before = pod.metadata, old.metadata
    return pod.spec == old.spec and (ours.annotations, ours.labels) == (before.annotations, before.labels)
