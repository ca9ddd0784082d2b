"""A local pod that waits for its place, and the answer that its submitter gets."""

import asyncio
from dataclasses import dataclass

from placer.core.policies import Policy
from placer.core.site import Request
from plimsoll.demand import PodDemand
from plimsoll.events import Placement
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a pod whose processes run."""

    pod: PodUid
    node: NodeName
    gpus: dict[str, tuple[GpuUuid, ...]]


@dataclass(frozen=True, slots=True)
class Refused:
    """The reason why a pod can never run, with the remedy."""

    message: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod in the queue.

    Attributes:
        arrival: the order of arrival; pods are tried in this order.
        answer: set once the pod runs, or never will.
        since_s: when it was submitted, on the loop's clock.
    """

    arrival: int
    uid: PodUid
    pod: Pod
    demand: PodDemand
    policy: Policy
    answer: asyncio.Future[Placed | Refused]
    since_s: float

    def reply(self, answer: Placed | Refused) -> None:
        """Give the answer, unless there is one, or nobody waits for it any more."""
        if not self.answer.done():
            self.answer.set_result(answer)

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


@dataclass(frozen=True, slots=True)
class Asked:
    """A waiting pod, as decisions read it.

    Attributes:
        since_s: when it was submitted, on the loop's clock.
        ahead: the pods that are tried before it.
    """

    request: Request
    policy: Policy
    since_s: float
    ahead: int
