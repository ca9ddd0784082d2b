"""Tries a pod on one node, with some of the node's other pods supposed to be gone.

Unlike a decision's verdicts, which all pods of a kind share, a trial is for one pod alone: room that is held for this
very pod counts as free. What always holds: a trial changes nothing.
"""

from collections.abc import Sequence

from placer.core.dry_run import GpuDryRun
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.refusal import Refusal
from placer.core.site import Candidate
from placer.core.view import NodeView
from placer.decide import Decider
from placer.scheduler.cache.assigned_pods import AssignedPod
from placer.scheduler.cache.cache import Cache, WhatIf
from placer.scheduler.cache.nominator import Nomination, bookings_of
from placer.scheduler.plugins.topology import TopologyDryRun
from placer.scheduler.pods.pod_info import PodInfo
from plimsoll.ids import GpuUuid, NodeName, PodUid


class NodeDryRun:
    """One node for one pod, without those of the node's other pods that are removed."""

    def __init__(  # noqa: PLR0913, PLR0917 - the pod and the node, and all that is supposed of it
        self,
        decider: Decider,
        cache: Cache,
        info: PodInfo,
        node: NodeName,
        only: GpuUuid | None = None,
        topology: TopologyDryRun | None = None,
        beside: Sequence[Nomination] = (),
    ) -> None:
        """Suppose nothing yet.

        Args:
            decider: the reports and the ledger.
            cache: the nodes and their pods.
            info: the pod.
            node: the node.
            only: the only GPU that the pod may have; None: any.
            topology: the same node by constraints on other pods, with no pod left out; None makes one.
            beside: further pods for which room on this node counts as held.
        """
        self._decider, self._cluster, self._wanted, self._node = decider, cache, info, node
        held = [*cache.nominator.against(info.pod, node), *beside]
        if topology is None and cache.has_node(node):
            counted = [(node, one.pod) for one in held]
            topology = cache.topology.dry_run(info.pod, info.constraints, node, counted)
        self._supposed = WhatIf(cache.load_on(node, held), held, topology)
        view = (decider.candidates.find(node) or Candidate.without_report(node)).node
        self._view = view
        self._gpus: GpuDryRun | None = None
        if info.request.demand.containers:
            self._gpus = GpuDryRun(view, decider.ledger, bookings_of(held), only)

    def anew(self, only: GpuUuid | None) -> "NodeDryRun":
        """A trial of the same node for the same pod, with no pod removed. The node must not have changed."""
        topology = self._supposed.topology.anew() if self._supposed.topology is not None else None
        return NodeDryRun(self._decider, self._cluster, self._wanted, self._node, only, topology)

    def concerns_gpus(self, one: AssignedPod) -> bool:
        """Whether a pod has a part of the GPUs that are tried."""
        return self._gpus is not None and self._gpus.concerns(one.uid)

    def remove(self, one: AssignedPod) -> None:
        """Suppose that a pod is gone."""
        self._supposed.load.remove(one.needs)
        self._supposed.without[one.uid] = one
        topology = self._supposed.topology
        if topology is not None:
            topology.remove_pod(one.uid)
        if self._gpus is not None:
            self._gpus.remove(one.uid)

    def put_back(self, one: AssignedPod) -> None:
        """Suppose that a removed pod is there."""
        self._supposed.load.add(one.needs)
        del self._supposed.without[one.uid]
        topology = self._supposed.topology
        if topology is not None:
            topology.add_pod(one.uid)
        if self._gpus is not None:
            self._gpus.put_back(one.uid)

    def leave_out(self, uid: PodUid) -> None:
        """Suppose that a pod of another node is gone, which constraints on pods may count."""
        topology = self._supposed.topology
        if topology is not None:
            topology.remove_pod(uid)

    def remove_memory(self, uid: PodUid) -> None:
        """Suppose that the processes of a pod that is gone hold no GPU memory any more."""
        if self._gpus is not None and uid not in self._supposed.without:
            self._gpus.remove(uid)

    def misfits(self) -> tuple[str, ...]:
        """The reasons against the node apart from its GPUs."""
        info = self._wanted
        return self._cluster.misfits(
            info.pod, info.rules, info.needs, self._node, info.constraints, self._supposed
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
