"""One pod's decision on the whole cluster: what it wants, the node that will do, or why none will.

Adds to the shared decision (`placer.decide`) what only Kubernetes knows: nodes that fit apart from their GPUs, pods
without a GPU, and a reason for every node that exists. What always holds: a plan that is returned is booked, and
between looking at a node and booking on it nothing is awaited.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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
"""Plans that the ledger may refuse before a pod goes back to the queue."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod that was understood."""

    pod: Pod
    request: Request
    needs: Needs
    policy: Policy


def understood(pod: Pod, default: Policy) -> Wanted:
    """What a pod wants.

    Args:
        pod: the pod.
        default: the policy if it names none.

    Raises:
        InputError: it is malformed, or wants what is not handled.
    """
    demand = parse_pod(pod)
    refuse_answers(pod)
    check_supported(demand)
    refuse_unhandled(pod)
    named = demand.policy
    policy = policy_named(named, f"metadata.annotations[{POLICY}]") if named else default
    request = Request(PodUid(pod.metadata.uid), demand, owner_of(pod))
    return Wanted(pod, request, needs_of(pod), policy)


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Decides over one cluster's nodes."""

    decider: Decider
    cluster: Cluster

    async def decide(self, wanted: Wanted) -> Plan | Refusal:
        """A plan that is booked, or a refusal. Cancelling books nothing.

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
        """A refusal in kube-scheduler's form, with a reason for every node that exists."""
        nodes = self.cluster.nodes
        # Nodes that never reported are no candidates, and candidates may have left the cluster.
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
        # A node that reported a moment ago may be missing from the list, and one that moved between two of its
        # pages may have been missed. A pod must not be parked for that: nothing might wake it.
        view = self.decider.reports.view
        missed = [node for node in self.cluster.nodes if node not in result.reasons]
        more = self._plan(wanted, [known for node in missed if (known := view(node)) is not None])
        return more if isinstance(more, Plan) else together((result, more))

    def _plan(self, wanted: Wanted, views: Sequence[NodeView]) -> Plan | Refusal:
        """The best of these nodes, booked; or why none will do."""
        result = plan(wanted.request, views, self.decider.ledger, wanted.policy, self._fit(wanted))
        if isinstance(result, Plan):
            self.decider.ledger.book(result.booking)
        return result

    def _fit(self, wanted: Wanted) -> NodeFit:
        return lambda node: self.cluster.misfits(wanted.pod, wanted.needs, node)
