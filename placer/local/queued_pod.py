"""A local pod that waits in the queue for its place."""

from dataclasses import dataclass

from placer.core.policies import Policy
from placer.core.site import Request
from plimsoll.events import Placement
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod


@dataclass(frozen=True, slots=True)
class QueuedPod:
    """A pod in the queue.

    Attributes:
        arrival: the order of arrival; pods are tried in this order.
        pod: the pod as it was submitted.
        request: the pod as decisions read it.
        policy: the policy that it names, or the placer's.
        since_s: when it was submitted, on the loop's clock.
    """

    arrival: int
    pod: Pod
    request: Request
    policy: Policy
    since_s: float

    @property
    def uid(self) -> PodUid:
        """The pod's uid."""
        return self.request.pod

    def unplaceable(self, reason: str) -> Placement:
        """The event that the pod has no place now."""
        metadata = self.pod.metadata
        return Placement(
            namespace=metadata.namespace,
            name=metadata.name,
            pod=self.uid,
            policy=self.policy.name,
            reason=reason,
        )
