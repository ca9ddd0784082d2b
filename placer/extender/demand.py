"""The reading of a pod that kube-scheduler places: its GPUs, and its load on a node.

What always holds: a malformed demand for GPUs is refused with field, value and remedy, as for the placer's own pods.
Features that the placer's own scheduler lacks are not refused here, because kube-scheduler takes care of them.
"""

from dataclasses import dataclass

from placer.core.owners import owner_of
from placer.core.planning import check_supported
from placer.core.policies import Policy, policy_named
from placer.core.policy_context import Request
from placer.scheduler.pods.needs import Needs, needs_of
from placer.scheduler.profile import PodReader
from plimsoll.contract import POLICY, SCHEDULER_NAME, refuse_answers, refuse_long_annotations
from plimsoll.demand import parse_pod
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError


@dataclass(frozen=True, slots=True)
class ExtenderDemand:
    """A pod as the extender reads it.

    Attributes:
        pod: the pod.
        request: its demand of GPUs.
        needs: its needs apart from GPUs, with which it counts on its node.
        policy: the order among GPUs that fit.
    """

    pod: Pod
    request: Request
    needs: Needs
    policy: Policy


def extender_demand(pod: Pod, reader: PodReader) -> ExtenderDemand:
    """Read a pod.

    Args:
        pod: the pod.
        reader: the options under which pods are read.

    Raises:
        InputError: the pod is malformed, belongs to the placer's own scheduler, or nothing would hold it.
    """
    if pod.spec.schedulerName == SCHEDULER_NAME:
        problem = "is the placer's own scheduler, which places the pod without kube-scheduler"
        raise InputError(
            "spec.schedulerName", SCHEDULER_NAME, problem, "give kube-scheduler's profile another name"
        )
    refuse_long_annotations(pod)
    demand = parse_pod(pod)
    refuse_answers(pod)
    check_supported(demand)
    reader.check_held(pod, demand)
    policy = (
        policy_named(demand.policy, f"metadata.annotations[{POLICY}]") if demand.policy else reader.policy
    )
    request = Request(PodUid(pod.metadata.uid), demand, owner_of(pod))
    return ExtenderDemand(pod, request, needs_of(pod), policy)
