"""The nodes by their labels: a pod that names few nodes is decided on these alone.

What always holds: every node that the pod's `nodeSelector` and required node affinity select is among the nodes that
`named` gives. Not every node there is selected; the check of the node (`placer.core.fit`) decides.
"""

from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from plimsoll.ids import NodeName
from plimsoll.kube.models import NodeSelectorRequirement, NodeSelectorTerm, Pod

_NOBODY: frozenset[NodeName] = frozenset()


class LabelIndex:
    """Label → the nodes that have it."""

    def __init__(self) -> None:
        self._nodes: defaultdict[tuple[str, str], set[NodeName]] = defaultdict(set)

    def put(self, node: NodeName, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Take a node's labels in place of those before; no labels for a node that was not there, or left."""
        for pair in before.items() - after.items():
            self._nodes[pair].discard(node)
            if not self._nodes[pair]:
                del self._nodes[pair]
        for pair in after.items() - before.items():
            self._nodes[pair].add(node)

    def having(self, label: tuple[str, str]) -> AbstractSet[NodeName]:
        """The nodes that have a label."""
        return self._nodes.get(label, _NOBODY)

    def named(self, pod: Pod, most: int) -> list[NodeName] | None:
        """The nodes that a pod's selectors may select, sorted; None if they are more than `most`, or not limited."""
        found: list[AbstractSet[NodeName]] = [
            self._nodes.get(pair, _NOBODY) for pair in (pod.spec.nodeSelector or {}).items()
        ]
        affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
        required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
        if required is not None:
            terms = [self._of_term(term, most) for term in required.nodeSelectorTerms]
            limited = [nodes for nodes in terms if nodes is not None]
            if len(limited) == len(terms):
                found.append(_NOBODY.union(*limited))
        if not found:
            return None
        smallest = min(found, key=len)
        return sorted(smallest) if len(smallest) <= most else None

    def _of_term(self, term: NodeSelectorTerm, most: int) -> frozenset[NodeName] | None:
        """The nodes that one term may select; None if no requirement of the term limits them to `most`."""
        limits = [self._by_label(one) for one in term.matchExpressions or () if one.operator == "In"]
        limits += [
            [frozenset(map(NodeName, one.values or ()))]
            for one in term.matchFields or ()
            if (one.key, one.operator) == ("metadata.name", "In")
        ]
        few = [one for one in limits if sum(len(nodes) for nodes in one) <= most]
        return min((_NOBODY.union(*one) for one in few), key=len, default=None)

    def _by_label(self, requirement: NodeSelectorRequirement) -> list[AbstractSet[NodeName]]:
        return [self._nodes.get((requirement.key, value), _NOBODY) for value in requirement.values or ()]
