"""The pods and the nodes that count for a constraint."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from placer.core.label_selector import ParsedSelector
from placer.core.selector import LabelledNode, Selector
from placer.core.tolerations import Tolerations
from plimsoll.kube.models import Pod

LabelsOf = Callable[[str], Mapping[str, str]]
"""The labels of a namespace; none for a namespace that is not known."""

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The pods that one affinity term or spread constraint selects.

    Attributes:
        namespaces: the namespaces that are named.
        labels: selects pods by their labels.
        namespace_selector: selects further namespaces by their labels; None selects none.
    """

    namespaces: frozenset[str]
    labels: ParsedSelector
    namespace_selector: ParsedSelector | None = None

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether pods of this namespace, which has these labels, may be selected."""
        return namespace in self.namespaces or (
            self.namespace_selector is not None and self.namespace_selector.matches(labels)
        )

    def depends_on(self, namespace: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Whether other labels of a namespace bring its pods in or out."""
        return self.covers(namespace, before) != self.covers(namespace, after)

    @property
    def size(self) -> int:
        """The number of requirements."""
        return self.labels.size + (self.namespace_selector.size if self.namespace_selector is not None else 0)


@dataclass(frozen=True, slots=True)
class CountedPods:
    """The pods that count for a constraint: those that all selectors select.

    Attributes:
        selectors: the selectors.
        only_living: pods that are being deleted do not count.
    """

    selectors: tuple[PodSelector, ...]
    only_living: bool = False

    def match(self, namespace: str, labels: Mapping[str, str], labels_of: LabelsOf) -> bool:
        """Whether pods of this namespace with these labels count."""
        # For the terms of a new pod, kube-scheduler 1.36 looks up the namespaces that a selector selects, and applies
        # the selector to no labels at all as well. So one that asks for a label's absence covers every namespace.
        return all(
            (one.covers(namespace, {}) or one.covers(namespace, labels_of(namespace)))
            and one.labels.matches(labels)
            for one in self.selectors
        )

    def counts(self, pod: Pod, labels_of: LabelsOf) -> bool:
        """Whether a pod counts."""
        return not (self.only_living and is_terminating(pod)) and self.match(
            pod.metadata.namespace, labels_of_pod(pod), labels_of
        )

    def depends_on(self, namespace: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Whether other labels of a namespace may change the pods that count."""
        return any(one.depends_on(namespace, before, after) for one in self.selectors)

    @property
    def namespaces(self) -> frozenset[str] | None:
        """The only namespaces whose pods count; None if these are not named."""
        named = [one.namespaces for one in self.selectors if one.namespace_selector is None]
        return frozenset.intersection(*named) if named else None

    @property
    def common_label(self) -> tuple[str, str] | None:
        """A label that each counted pod has; None if the selectors name none."""
        for one in self.selectors:
            for key, operator, values in sorted(one.labels.requirements or ()):
                if operator == "In" and len(values) == 1:
                    return key, values[0]
        return None

    @property
    def size(self) -> int:
        """The number of requirements."""
        return sum(one.size for one in self.selectors)


@dataclass(frozen=True, slots=True)
class NodeInclusion:
    """The nodes that count for a constraint, by Kubernetes' node inclusion policies.

    Attributes:
        keys: the topology keys that the node must have.
        affinity: equal for pods that select the same nodes; None where their selectors do not matter.
        tolerated: equal for pods that tolerate the same taints; None where taints do not matter.
    """

    keys: frozenset[str]
    affinity: bytes | None = None
    tolerated: bytes | None = None
    _selector: Selector | None = field(default=None, compare=False)
    _tolerations: Tolerations | None = field(default=None, compare=False)

    def includes(self, node: LabelledNode) -> bool:
        """Whether pods on this node count, and its domain is one of the constraint's."""
        labels = node.node.metadata.labels or {}
        if not labels.keys() >= self.keys:
            return False
        if self._selector is not None and not self._selector.selects(node.traits):
            return False
        tolerations = self._tolerations
        return tolerations is None or all(
            tolerations.tolerate(taint) for taint in node.node.spec.taints or () if taint.effect in _REPELLING
        )

    @property
    def size(self) -> int:
        """The number of requirements that a node is checked for."""
        return len(self.keys) + (self._selector.checks if self._selector is not None else 0)


def labels_of_pod(pod: Pod) -> Mapping[str, str]:
    """The labels of a pod."""
    return pod.metadata.labels or {}


def is_terminating(pod: Pod) -> bool:
    """Whether a pod is being deleted."""
    return pod.metadata.deletionTimestamp is not None
