"""Tries a pod on one node, with some of the node's other pods supposed to be gone.

Unlike a decision's verdicts, which all pods of a signature share, a dry run is for one pod alone: room that is held
for this very pod counts as free. What always holds: a dry run changes nothing.
"""

from collections.abc import Sequence
from dataclasses import replace

from placer.core.dry_run import GpuDryRun
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policy_context import Candidate
from placer.core.refusal import Refusal
from placer.core.view import NodeView
from placer.decide import Decider
from placer.scheduler.plugins.topology import TopologyDryRun
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.pods.nominator import Nomination, bookings_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.profile import Profile
from plimsoll.ids import GpuUuid, NodeName, PodUid


class NodeDryRun:
    """One node for one pod, without those of the node's other pods that are removed."""

    def __init__(  # noqa: PLR0913, PLR0917 - the pod and the node, and all that is supposed of it
        self,
        decider: Decider,
        profile: Profile,
        info: PodInfo,
        node: NodeName,
        only: GpuUuid | None = None,
        beside: Sequence[Nomination] = (),
        check: TopologyDryRun | None = None,
    ) -> None:
        """Suppose nothing yet.

        Args:
            decider: the reports and the ledger.
            profile: the plugins, and the nodes with their pods.
            info: the pod.
            node: the node.
            only: the only GPU that the pod may have; None: any.
            beside: further pods for which room on this node counts as held.
            check: the check by constraints on other pods, with no pod left out; None makes one.
        """
        self._decider, self._profile, self._info, self._name = decider, profile, info, node
        cache = profile.cache
        held = [*cache.nominator.against(info.pod, node), *beside]
        self._removed: dict[PodUid, AssignedPod] = {}
        self._check, self._node = check, cache.node(node)
        if self._node is not None:
            self._check = check or profile.topology.dry_run(info, node, held)
            requested = self._node.requested.copy()
            for one in held:
                requested.add(one.needs)
            self._node = replace(
                self._node,
                requested=requested,
                nominated=held,
                removed=self._removed,
                dry_run={profile.topology.name: self._check},
            )
        view = (decider.candidates.find(node) or Candidate.without_report(node)).node
        self._view = view
        self._gpus: GpuDryRun | None = None
        if info.request.demand.containers:
            self._gpus = GpuDryRun(view, decider.ledger, bookings_of(held), only)

    def anew(self, only: GpuUuid | None) -> "NodeDryRun":
        """A dry run of the same node for the same pod, with no pod removed. The node must not have changed."""
        check = self._check.anew() if self._check is not None else None
        return NodeDryRun(self._decider, self._profile, self._info, self._name, only, check=check)

    def concerns_gpus(self, one: AssignedPod) -> bool:
        """Whether a pod has a part of the GPUs that are tried."""
        return self._gpus is not None and self._gpus.concerns(one.uid)

    def remove(self, one: AssignedPod) -> None:
        """Suppose that a pod is gone."""
        if self._node is not None:
            self._node.requested.remove(one.needs)
        self._removed[one.uid] = one
        self.leave_out(one.uid)
        if self._gpus is not None:
            self._gpus.remove(one.uid)

    def put_back(self, one: AssignedPod) -> None:
        """Suppose that a removed pod is there."""
        if self._node is not None:
            self._node.requested.add(one.needs)
        del self._removed[one.uid]
        if self._check is not None:
            self._check.add_pod(one.uid)
        if self._gpus is not None:
            self._gpus.put_back(one.uid)

    def leave_out(self, uid: PodUid) -> None:
        """Suppose that a pod is gone from the counts of pods, such as one of another node."""
        if self._check is not None:
            self._check.remove_pod(uid)

    def remove_memory(self, uid: PodUid) -> None:
        """Suppose that the processes of a pod that is gone hold no GPU memory any more."""
        if self._gpus is not None and uid not in self._removed:
            self._gpus.remove(uid)

    def filter(self) -> tuple[str, ...]:
        """The reasons against the node apart from its GPUs."""
        return self._profile.filter_as(self._info, self._node)

    def plan(self) -> Plan | tuple[str, ...]:
        """The place of the pod, or the reasons against the node."""
        reasons, request, policy = self.filter(), self._info.request, self._info.policy
        if reasons:
            return reasons
        if self._gpus is not None:
            tried = self._gpus.plan(request, policy)
        else:
            without_gpus = NodeView(self._name, self._view.order, ())
            tried = plan_on(request, without_gpus, self._decider.ledger, policy)
        return tried.reasons[self._name] if isinstance(tried, Refusal) else tried
