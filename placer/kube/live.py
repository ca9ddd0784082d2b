"""The cluster's pods for the live page."""

from collections.abc import Iterator
from dataclasses import dataclass

from placer.live.pods import PodName, asks
from placer.scheduler.pods.index import PodIndex
from placer.scheduler.queue.queue import Queue
from placer.scheduler.queue.queued_pod import QueuedPodInfo
from placer.scheduler.reporting.condition import refusal_on
from plimsoll.demand import PodDemand, parse_pod
from plimsoll.ids import PodUid
from plimsoll.part.errors import InputError
from plimsoll.placer_api.live import WaitingPod


@dataclass(frozen=True, slots=True)
class KubePods:
    """The pods that the watch shows.

    Attributes:
        pods: all of them.
        queue: those without a node that the placer could place.
    """

    pods: PodIndex
    queue: Queue

    def name_of(self, uid: PodUid) -> PodName | None:
        """The name of a pod, or None for a pod that the watch does not show."""
        pod = self.pods.get(uid)
        return PodName(pod.metadata.namespace, pod.metadata.name) if pod is not None else None

    def waiting(self) -> Iterator[WaitingPod]:
        """The pods without a node. Those that get one meanwhile may be among them."""
        for waiting in self.queue:
            metadata = waiting.pod.metadata
            yield WaitingPod(
                pod=waiting.uid,
                namespace=metadata.namespace,
                name=metadata.name,
                priority=waiting.pod.spec.priority or 0,
                since=metadata.creationTimestamp,
                asks=asks(_demand(waiting)),
                # A placer that follows, or has just started, has refused nothing itself.
                reason=waiting.refused_for or refusal_on(waiting.pod),
            )


def _demand(waiting: QueuedPodInfo) -> PodDemand | None:
    """A pod's demand; a placer that follows has not read it in an attempt. None for one that cannot be read."""
    if waiting.info is not None:
        return waiting.info.request.demand
    try:
        return parse_pod(waiting.pod)
    except InputError:
        return None
