"""InterPodAffinity: a pod's terms about other pods, and the anti-affinity terms of existing pods about a new one.

A new pod must not break the terms of the pods that are there, whichever scheduler placed them. Follows
`pkg/scheduler/framework/plugins/interpodaffinity` of Kubernetes 1.36, with two deviations. A node is scored against
the emptiest and the fullest of all domains. Preferred terms of existing pods do not count: so a decision on a pod
without preferred terms need not read them. Pure.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from placer.core.node_scores import NodeScore
from placer.core.selector import LabelledNode
from placer.scheduler.plugins.pod_counts.counts import CountChanges, CountedConstraints, add, changed_by
from placer.scheduler.pods.constraints import AffinityTerm
from placer.scheduler.pods.matching import LabelsOf, labels_of_pod
from plimsoll.kube.models import Pod

AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

SCORE: Final = "preferred-pod-affinity"
_WEIGHT: Final = 2

_SELECTIONS: Final = 1000
"""Labels of new pods whose terms are kept. Pods of one Deployment have the same labels, so few are enough."""


def filter_node(
    counted: CountedConstraints, labels: Mapping[str, str], changes: CountChanges | None = None
) -> str | None:
    """The reason why a node is unfit by a pod's own terms, or None; see `pod_topology_spread.filter_node`."""
    if not _satisfies_affinity(counted, labels, changes):
        return AFFINITY
    for term, counts in counted.anti_affinity:
        domain = labels.get(term.topology_key)
        if domain is None:
            continue
        if counts.pods.get(domain, 0) + changed_by(changes, counts).get(domain, 0) > 0:
            return ANTI_AFFINITY
    return None


def _satisfies_affinity(
    counted: CountedConstraints, labels: Mapping[str, str], changes: CountChanges | None
) -> bool:
    if any(term.topology_key not in labels for term, _ in counted.affinity):
        return False
    is_empty = is_satisfied = True
    for term, counts in counted.affinity:
        changed, domain = changed_by(changes, counts), labels[term.topology_key]
        is_satisfied &= counts.pods.get(domain, 0) + changed.get(domain, 0) > 0
        is_empty &= counts.total + sum(changed.values()) == 0
    return is_satisfied or (is_empty and counted.is_affine_to_self)


def score(counted: CountedConstraints) -> NodeScore | None:
    """The score by preferred terms: each pod in the node's domain counts by the weight of its term."""
    if not counted.weighted:
        return None
    parts = []
    worst = best = 0
    for term, counts in counted.weighted:
        parts.append((term.topology_key, counts.pods, term.weight))
        ends = (term.weight * counts.least(), term.weight * counts.most())
        worst, best = worst + min(ends), best + max(ends)

    def of(node: LabelledNode) -> float:
        labels = node.node.metadata.labels or {}
        total = 0
        for key, pods, weight in parts:
            domain = labels.get(key)
            if domain is not None:
                total += weight * pods.get(domain, 0)
        if total >= best:
            return 1.0
        return max(0, total - worst) / (best - worst) if best > worst else 0.0

    return NodeScore(SCORE, _WEIGHT, of)


def selects(term: AffinityTerm, pod: Pod, labels_of: LabelsOf) -> bool:
    """Whether an existing pod's term is about a new pod."""
    namespace = pod.metadata.namespace
    return term.pods.labels.matches(labels_of_pod(pod)) and term.pods.covers(namespace, labels_of(namespace))


@dataclass(slots=True)
class _TermCounts:
    """The existing pods that have one term.

    Attributes:
        pods: the number of pods by domain.
        serial: the serial of the last domain that opened or closed.
        counted: the serial of the last pod that came or went.
    """

    pods: dict[str, int] = field(default_factory=dict)
    serial: int = 0
    counted: int = 0


@dataclass(frozen=True, slots=True)
class TermsAgainst:
    """The existing pods' terms that select one new pod."""

    _terms: Mapping[AffinityTerm, _TermCounts] = field(default_factory=dict)

    def blocking(self, labels: Mapping[str, str]) -> dict[AffinityTerm, int]:
        """The terms that keep the pod from a node with these labels, with the number of pods that have each."""
        found: dict[AffinityTerm, int] = {}
        for term, counts in self._terms.items():
            domain = labels.get(term.topology_key)
            if domain is not None and domain in counts.pods:
                found[term] = counts.pods[domain]
        return found

    @property
    def terms(self) -> tuple[AffinityTerm, ...]:
        """The terms."""
        return tuple(self._terms)

    @property
    def identity(self) -> Hashable:
        """Equal for new pods that the same terms select."""
        return tuple(map(id, self._terms.values()))

    @property
    def state(self) -> Hashable:
        """Changes whenever one of these terms opens or closes a domain."""
        return tuple(counts.serial for counts in self._terms.values())

    @property
    def counts(self) -> Hashable:
        """Changes whenever a pod with one of these terms comes or goes."""
        return tuple(counts.counted for counts in self._terms.values())


class ExistingAntiAffinity:
    """The required anti-affinity terms of all pods with a node, by the domains that they close.

    Args:
        labels_of: the labels of a namespace.
    """

    def __init__(self, labels_of: LabelsOf) -> None:
        self._labels_of = labels_of
        self._counts: dict[AffinityTerm, _TermCounts] = {}
        self._against: dict[Hashable, TermsAgainst] = {}
        self._serial = 0

    def add(self, terms: Iterable[AffinityTerm], labels: Mapping[str, str]) -> None:
        """Count the terms of a pod on a node with these labels."""
        for term in terms:
            domain = labels.get(term.topology_key)
            if domain is None:
                continue
            if term not in self._counts:
                self._counts[term] = _TermCounts()
                self._against.clear()
            self._add(term, domain, 1)

    def remove(self, terms: Iterable[AffinityTerm], labels: Mapping[str, str]) -> set[AffinityTerm]:
        """Stop counting terms that were added with these labels; returns those that opened a domain."""
        opened = set()
        for term in terms:
            domain = labels.get(term.topology_key)
            if domain is None:
                continue
            if self._add(term, domain, -1):
                opened.add(term)
            if not self._counts[term].pods:
                del self._counts[term]
                self._against.clear()
        return opened

    def namespace_changed(
        self, name: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> set[AffinityTerm]:
        """Take other labels of a namespace; returns the terms that now select its pods or no longer do."""
        changed = {term for term in self._counts if term.pods.depends_on(name, before, after)}
        if changed:
            self._against.clear()
        return changed

    def against(self, pod: Pod) -> TermsAgainst:
        """The terms that select a new pod."""
        if not self._counts:
            return TermsAgainst()
        key = (pod.metadata.namespace, frozenset(labels_of_pod(pod).items()))
        found = self._against.get(key)
        if found is None:
            if len(self._against) >= _SELECTIONS:
                self._against.clear()
            found = self._against[key] = TermsAgainst(
                {term: counts for term, counts in self._counts.items() if selects(term, pod, self._labels_of)}
            )
        return found

    def _add(self, term: AffinityTerm, domain: str, by: int) -> bool:
        """Count a pod in a domain more or less; returns whether the domain opened or closed."""
        counts = self._counts[term]
        was_closed = domain in counts.pods
        add(counts.pods, domain, by)
        self._serial += 1
        counts.counted = self._serial
        if was_closed == (domain in counts.pods):
            return False
        counts.serial = self._serial
        return True
