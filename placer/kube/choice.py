"""One pod's decision on the whole cluster: its demand, and the node for it, or the reasons why no node will do.

Adds the Kubernetes side to the shared decision (`placer.decide`): nodes that fit apart from their GPUs, pods without
a GPU, and a reason for every node that exists. What always holds: a plan that is returned is booked, and nothing is
awaited between reading a node and booking on it.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog

from placer.core.fit import Needs, needs_of
from placer.core.ledger import ConflictError, owner_of
from placer.core.plan import NodeFit, Plan, Refusal, Request, check_supported, plan, together
from placer.core.policies import Policy, policy_named
from placer.core.reasons import Reason, summary
from placer.core.view import NodeView
from placer.decide import Decider
from placer.kube.cluster import Cluster
from placer.kube.unhandled import refuse_unhandled
from plimsoll.contract import POLICY, parse_pod, refuse_answers
from plimsoll.ids import PodUid
from plimsoll.kube.models import Pod

PLANS_PER_ATTEMPT: Final = 3
"""The number of plans that the ledger may refuse before a pod goes back to the queue."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod that this scheduler can place, as its decision reads it.

    Attributes:
        pod: as the watch showed it.
        request: its demand of GPUs.
        needs: its needs apart from GPUs.
        policy: the order among GPUs that fit.
        kind: equal for pods that get the same answer: everything that their decision reads, but their labels and
            namespace, which anti-affinity rules of other pods read.
    """

    pod: Pod
    request: Request
    needs: Needs
    policy: Policy
    kind: Hashable


def understood(pod: Pod, default: Policy) -> Wanted:
    """Read a pod's demand.

    Args:
        pod: the pod.
        default: the policy for a pod that names none.

    Raises:
        InputError: the pod is malformed, or uses a feature that is not handled.
    """
    demand = parse_pod(pod)
    refuse_answers(pod)
    check_supported(demand)
    refuse_unhandled(pod)
    named = demand.policy
    policy = policy_named(named, f"metadata.annotations[{POLICY}]") if named else default
    request = Request(PodUid(pod.metadata.uid), demand, owner_of(pod))
    needs = needs_of(pod)
    return Wanted(pod, request, needs, policy, _kind(pod, request, needs, policy))


def _kind(pod: Pod, request: Request, needs: Needs, policy: Policy) -> Hashable:
    spec, demand = pod.spec, request.demand
    places = msgspec.json.encode(
        (spec.nodeSelector, spec.affinity, spec.tolerations, spec.os), order="sorted"
    )
    learns = any(container.best_effort for container in demand.containers)  # from its owner's other pods
    owner = request.owner if learns else None
    return demand, owner, frozenset(needs.amounts.items()), needs.ports, places, policy.name


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Decides over the nodes of one cluster."""

    decider: Decider
    cluster: Cluster

    async def decide(self, wanted: Wanted) -> Plan | Refusal:
        """Plan and book, or refuse. Cancelling books nothing.

        Raises:
            ScoresAwayError: the sorted list is out of reach.
            ConflictError: the ledger refused plan after plan.
        """
        if not wanted.request.demand.containers:
            return self._plan(wanted, [NodeView(node, (0, 0), ()) for node in self.cluster.nodes])
        for _ in range(PLANS_PER_ATTEMPT - 1):
            try:
                return await self._decide_once(wanted)
            except ConflictError as error:
                structlog.get_logger().info("plan refused", pod=wanted.request.pod, error=str(error))
        return await self._decide_once(wanted)

    def why_not(self, wanted: Wanted, refusal: Refusal) -> str:
        """The text of a refusal in kube-scheduler's form, with a reason for every node that exists."""
        nodes = self.cluster.nodes
        # A node without a report is no candidate, and a candidate may have left the cluster.
        reasons = {
            node: refusal.reasons.get(node)
            or self.cluster.misfits(wanted.pod, wanted.needs, node)
            or (Reason.NO_REPORT.value,)
            for node in nodes
        }
        return summary(len(nodes), reasons)

    async def _decide_once(self, wanted: Wanted) -> Plan | Refusal:
        result = await self.decider.decide(wanted.request, wanted.policy, self._fit(wanted))
        if isinstance(result, Plan):
            return result
        # A node that reported a moment ago may be missing from the list, and a node that moved between two pages may
        # have been missed. A pod must not be parked for that: perhaps no change would wake it.
        view = self.decider.reports.view
        missed = [node for node in self.cluster.nodes if node not in result.reasons]
        more = self._plan(wanted, [known for node in missed if (known := view(node)) is not None])
        return more if isinstance(more, Plan) else together((result, more))

    def _plan(self, wanted: Wanted, views: Sequence[NodeView]) -> Plan | Refusal:
        """Book the best of these nodes, or refuse."""
        result = plan(wanted.request, views, self.decider.ledger, wanted.policy, self._fit(wanted))
        if isinstance(result, Plan):
            self.decider.ledger.book(result.booking)
        return result

    def _fit(self, wanted: Wanted) -> NodeFit:
        return lambda node: self.cluster.misfits(wanted.pod, wanted.needs, node)
