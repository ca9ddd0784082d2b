"""The pods that have a node, by node and by priority, as preemption reads them.

What always holds: each pod stands here once, as the watch showed it last. A pod that is only assumed to have a node
stands here too, and nobody may delete it while its bind is under way. Pure.
"""

import bisect
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from placer.scheduler.pods.constraints import AffinityTerm
from placer.scheduler.pods.needs import Needs
from plimsoll.contract import RELOCATION_COST
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod

DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTED_BY_SCHEDULER: Final = "PreemptionByScheduler"
"""The type and the reason of the condition that every scheduler sets on a pod that it preempts."""
EVICTED: Final = "EvictionByEvictionAPI"
"""The reason of the condition that the API server sets on a pod that it evicts."""
_NOT_STARTED: Final = "~"
"""Stands behind every time in RFC 3339. A pod that has not started counts as starting now."""


@dataclass(frozen=True, slots=True)
class AssignedPod:
    """A pod that has a node.

    Attributes:
        pod: the pod as the watch showed it last.
        node: its node.
        needs: the resources of the node that it takes.
        is_bound: False while its bind is under way.
        anti_affinity: its required anti-affinity.
    """

    pod: Pod
    node: NodeName
    needs: Needs
    is_bound: bool = True
    anti_affinity: tuple[AffinityTerm, ...] = ()

    def takes_as(self, other: "AssignedPod") -> bool:
        """Whether both take the same from the same node, and have the same rules."""
        return (self.node, self.needs, self.anti_affinity) == (other.node, other.needs, other.anti_affinity)

    @property
    def uid(self) -> PodUid:
        """The pod's uid."""
        return PodUid(self.pod.metadata.uid)

    @property
    def priority(self) -> int:
        """The pod's priority; 0 for a pod without one."""
        return priority_of(self.pod)

    @property
    def started(self) -> str:
        """The time at which the kubelet took the pod, to compare with those of other pods."""
        return self.pod.status.startTime or _NOT_STARTED

    @property
    def is_being_preempted(self) -> bool:
        """Whether a scheduler has preempted the pod, which is ending now."""
        return self._ends_by(PREEMPTED_BY_SCHEDULER)

    @property
    def is_being_evicted(self) -> bool:
        """Whether the pod was evicted, and is ending now."""
        return self._ends_by(EVICTED)

    def should_have_ended(self, time_s: float) -> bool:
        """Whether the pod was deleted, and its grace period was over by this time, in seconds since 1970."""
        deleted = self.pod.metadata.deletionTimestamp  # the API server adds the grace period
        return deleted is not None and datetime.fromisoformat(deleted).timestamp() <= time_s

    def _ends_by(self, reason: str) -> bool:
        target = next(
            (one for one in self.pod.status.conditions or () if one.type == DISRUPTION_TARGET), None
        )
        return (
            self.pod.metadata.deletionTimestamp is not None
            and target is not None
            and (target.status, target.reason) == ("True", reason)
        )

    @property
    def is_relocatable(self) -> bool:
        """Whether the pod's annotations state a cost of moving it."""
        return RELOCATION_COST in (self.pod.metadata.annotations or {})


class AssignedPods:
    """All occupants. Not thread-safe: one event loop owns it."""

    def __init__(self) -> None:
        self._by_node: dict[NodeName, dict[PodUid, AssignedPod]] = {}
        self._nodes: dict[PodUid, NodeName] = {}
        self._by_priority: defaultdict[int, dict[NodeName, int]] = defaultdict(dict)  # pods on each node
        self._priorities: list[int] = []  # rising
        self._relocatable: defaultdict[NodeName, set[PodUid]] = defaultdict(set)

    def put(self, assigned_pod: AssignedPod) -> None:
        """Add a pod, or take its newer form."""
        uid, node = assigned_pod.uid, assigned_pod.node
        known = self.find(uid)
        if known is not None and (known.node, known.priority) == (node, assigned_pod.priority):
            self._by_node[node][uid] = assigned_pod
            self._note_relocatable(assigned_pod)
            return
        self.remove(uid)
        self._nodes[uid] = node
        self._by_node.setdefault(node, {})[uid] = assigned_pod
        if assigned_pod.priority not in self._by_priority:
            bisect.insort(self._priorities, assigned_pod.priority)
        nodes = self._by_priority[assigned_pod.priority]
        nodes[node] = nodes.get(node, 0) + 1
        self._note_relocatable(assigned_pod)

    def remove(self, uid: PodUid) -> None:
        """Remove a pod; one that is not here is no error."""
        node = self._nodes.pop(uid, None)
        if node is None:
            return
        assigned_pod = self._by_node[node].pop(uid)
        self._drop_relocatable(node, uid)
        if not self._by_node[node]:
            del self._by_node[node]
        nodes = self._by_priority[assigned_pod.priority]
        nodes[node] -= 1
        if not nodes[node]:
            del nodes[node]
        if not nodes:
            del self._by_priority[assigned_pod.priority]
            del self._priorities[bisect.bisect_left(self._priorities, assigned_pod.priority)]

    def find(self, uid: PodUid) -> AssignedPod | None:
        """A pod that has a node, or None."""
        node = self._nodes.get(uid)
        return self._by_node[node][uid] if node is not None else None

    def on(self, node: NodeName) -> Collection[AssignedPod]:
        """The pods on a node."""
        return self._by_node.get(node, {}).values()

    def relocatable_nodes(self) -> Collection[NodeName]:
        """The nodes with pods whose annotations state a cost of moving them."""
        return self._relocatable.keys()

    def relocatable_on(self, node: NodeName) -> list[AssignedPod]:
        """The pods of a node whose annotations state a cost of moving them, by uid."""
        return [self._by_node[node][uid] for uid in sorted(self._relocatable.get(node, ()))]

    def _note_relocatable(self, assigned_pod: AssignedPod) -> None:
        if assigned_pod.is_relocatable:
            self._relocatable[assigned_pod.node].add(assigned_pod.uid)
        else:
            self._drop_relocatable(assigned_pod.node, assigned_pod.uid)

    def _drop_relocatable(self, node: NodeName, uid: PodUid) -> None:
        pods = self._relocatable.get(node)
        if pods is not None:
            pods.discard(uid)
            if not pods:
                del self._relocatable[node]

    def below(self, priority: int, node: NodeName) -> list[AssignedPod]:
        """The pods on a node that have a lower priority."""
        if not self.has_below(priority):
            return []
        return [one for one in self.on(node) if one.priority < priority]

    def lowest(self, node: NodeName, under: int) -> int | None:
        """The lowest priority of a pod on a node; None if none is lower than `under`."""
        if not self.has_below(under):
            return None
        found = min((one.priority for one in self.on(node)), default=under)
        return found if found < under else None

    def has_below(self, priority: int) -> bool:
        """Whether any pod has a lower priority."""
        return bool(self._priorities) and self._priorities[0] < priority

    def nodes_below(self, priority: int) -> Iterator[NodeName]:
        """The nodes of pods of lower priority, each once, those of the lowest first; change nothing meanwhile."""
        seen: set[NodeName] = set()
        for level in self._priorities[: bisect.bisect_left(self._priorities, priority)]:
            for node in self._by_priority[level]:
                if node not in seen:
                    seen.add(node)
                    yield node


def priority_of(pod: Pod) -> int:
    """A pod's priority, which admission has resolved from its class; 0 for a pod without one."""
    return pod.spec.priority or 0
