"""Tries a pod on one node, with some of the node's other pods supposed to be gone.

Unlike a decision's verdicts, which all pods of a kind share, a trial is for one pod alone: room that is held for this
very pod counts as free. What always holds: a trial changes nothing.
"""

from collections.abc import Sequence

from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.refusal import Refusal
from placer.core.site import Candidate
from placer.core.supposition import Supposition
from placer.core.view import NodeView
from placer.decide import Decider
from placer.kube.cluster.cluster import Cluster, Supposed
from placer.kube.cluster.rule_check import RuleCheck
from placer.kube.pods.nominations import Nomination, bookings_of
from placer.kube.pods.occupants import Occupant
from placer.kube.pods.wanted import Wanted
from plimsoll.ids import GpuUuid, NodeName, PodUid


class NodeTrial:
    """One node for one pod, without those of the node's other pods that are removed."""

    def __init__(  # noqa: PLR0913, PLR0917 - the pod and the node, and all that is supposed of it
        self,
        decider: Decider,
        cluster: Cluster,
        wanted: Wanted,
        node: NodeName,
        only: GpuUuid | None = None,
        rules: RuleCheck | None = None,
        beside: Sequence[Nomination] = (),
    ) -> None:
        """Suppose nothing yet.

        Args:
            decider: the reports and the ledger.
            cluster: the nodes and their pods.
            wanted: the pod.
            node: the node.
            only: the only GPU that the pod may have; None: any.
            rules: the check by rules about other pods, with no pod left out; None makes one.
            beside: further pods for which room on this node counts as held.
        """
        self._decider, self._cluster, self._wanted, self._node = decider, cluster, wanted, node
        held = [*cluster.nominations.against(wanted.pod, node), *beside]
        if rules is None and cluster.has_node(node):
            counted = [(node, one.pod) for one in held]
            rules = cluster.pod_rules.check(wanted.pod, wanted.domains, node, counted)
        self._supposed = Supposed(cluster.load_on(node, held), held, rules)
        view = (decider.candidates.find(node) or Candidate.without_report(node)).node
        self._view = view
        self._gpus: Supposition | None = None
        if wanted.request.demand.containers:
            self._gpus = Supposition(view, decider.ledger, bookings_of(held), only)

    def anew(self, only: GpuUuid | None) -> "NodeTrial":
        """A trial of the same node for the same pod, with no pod removed. The node must not have changed."""
        rules = self._supposed.rules.anew() if self._supposed.rules is not None else None
        return NodeTrial(self._decider, self._cluster, self._wanted, self._node, only, rules)

    def concerns_gpus(self, one: Occupant) -> bool:
        """Whether a pod has a part of the GPUs that are tried."""
        return self._gpus is not None and self._gpus.concerns(one.uid)

    def remove(self, one: Occupant) -> None:
        """Suppose that a pod is gone."""
        self._supposed.load.remove(one.needs)
        self._supposed.without[one.uid] = one
        rules = self._supposed.rules
        if rules is not None:
            rules.leave_out(self._cluster.pod_rules.counted(rules, one.uid))
        if self._gpus is not None:
            self._gpus.remove(one.uid)

    def put_back(self, one: Occupant) -> None:
        """Suppose that a removed pod is there."""
        self._supposed.load.add(one.needs)
        del self._supposed.without[one.uid]
        rules = self._supposed.rules
        if rules is not None:
            rules.put_back(self._cluster.pod_rules.counted(rules, one.uid))
        if self._gpus is not None:
            self._gpus.put_back(one.uid)

    def leave_out(self, uid: PodUid) -> None:
        """Suppose that a pod of another node is gone, which rules about pods may count."""
        rules = self._supposed.rules
        if rules is not None:
            rules.leave_out(self._cluster.pod_rules.counted(rules, uid))

    def remove_memory(self, uid: PodUid) -> None:
        """Suppose that the processes of a pod that is gone hold no GPU memory any more."""
        if self._gpus is not None and uid not in self._supposed.without:
            self._gpus.remove(uid)

    def misfits(self) -> tuple[str, ...]:
        """The reasons against the node apart from its GPUs."""
        wanted = self._wanted
        return self._cluster.misfits(
            wanted.pod, wanted.rules, wanted.needs, self._node, wanted.domains, self._supposed
        )

    def plan(self) -> Plan | tuple[str, ...]:
        """The place of the pod, or the reasons against the node."""
        reasons, request, policy = self.misfits(), self._wanted.request, self._wanted.policy
        if reasons:
            return reasons
        if self._gpus is not None:
            tried = self._gpus.plan(request, policy)
        else:
            without_gpus = NodeView(self._node, self._view.order, ())
            tried = plan_on(request, without_gpus, self._decider.ledger, policy)
        return tried.reasons[self._node] if isinstance(tried, Refusal) else tried
