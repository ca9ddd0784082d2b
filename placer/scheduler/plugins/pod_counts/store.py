"""The store of the counts of pods by domain, for the constraints that are in use.

The counts of constraints that were not seen before are read once, from pods and nodes, a bounded part at a time.
After that each change of a pod or a node changes them. What always holds: the counts that a check reads are complete.
If there are too many constraints, those that were used longest ago are forgotten first, and announced like a change.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final

from placer.core.selector import LabelledNode
from placer.scheduler.plugins.pod_counts.counts import (
    Changelog,
    CountedConstraints,
    DomainCounts,
    Domains,
    LabelSet,
    MatchingPods,
)
from placer.scheduler.pods.constraints import PodConstraints
from placer.scheduler.pods.matching import (
    CountedPods,
    NodeInclusion,
    is_terminating,
    labels_of_pod,
)
from plimsoll.ids import NodeName
from plimsoll.kube.models import Pod

MOST_CONSTRAINTS: Final = 1024
"""The constraints of pods whose counts are kept, a few KiB each without the nodes. Pods of one Deployment have equal
ones."""

MOST_NODES: Final = 1_000_000
"""The nodes in all sets of domains together, some 100 bytes each: 50 sets of 20 000 nodes."""

CHECKS: Final = 16
"""The requirements that are checked in the time that the rest of reading a node or a label set takes."""

_Label = tuple[str, str]
_EVERYTHING: Final = 2**62


class PodCounts:
    """Counts of pods by domain. Not thread-safe: one event loop owns it.

    Attributes:
        work: the pods that came, went or changed, and the nodes, label sets and counts that were read for new
            constraints.
    """

    def __init__(
        self,
        nodes: Mapping[NodeName, LabelledNode],
        on_open: Callable[[Collection[Hashable]], None],
    ) -> None:
        """Without pods.

        Args:
            nodes: all nodes that exist; their owner changes them, and calls `node_changed` after each change.
            on_open: called with the keys of required constraints for which a node may have become fit. It must not
                change anything.
        """
        self.work = 0
        self._nodes = nodes
        self._on_open = on_open
        self._changelog = Changelog()
        self._label_sets: dict[str, dict[frozenset[_Label], LabelSet]] = {}
        self._matching: dict[CountedPods, MatchingPods] = {}
        self._by_label: dict[_Label | None, dict[CountedPods, MatchingPods]] = {}
        self._domains: dict[tuple[str, NodeInclusion], Domains] = {}
        self._in_use: dict[bytes, CountedConstraints] = {}  # those that were used last stand last
        self._namespaces: dict[str, Mapping[str, str]] = {}

    def pod_changed(self, node: NodeName, before: Pod | None, after: Pod | None) -> None:
        """Take a pod on a node in place of what it was before; None for a pod that came or went."""
        if before is not None and after is not None and _traits(before) == _traits(after):
            return
        self.work += 1
        losing = self._add(node, before, -1) if before is not None else set()
        gaining = self._add(node, after, 1) if after is not None else set()
        for matching in losing - gaining:
            matching.add(node, -1)
        for matching in gaining - losing:
            matching.add(node, 1)
        self._announce()

    def node_changed(self, name: NodeName) -> None:
        """Read a node again: it came, left, or has other labels or taints."""
        offer = self._nodes.get(name)
        for domains in self._domains.values():
            domains.read(name, offer)
        self._announce()

    def namespace_changed(self, name: str, labels: Mapping[str, str]) -> None:
        """Take the labels of a namespace; none for one that is gone. Constraints that depend on it are read anew."""
        before = self._namespaces.pop(name, {})
        if labels:
            self._namespaces[name] = labels
        for known in tuple(self._in_use.values()):
            if any(pods.depends_on(name, before, labels) for _, _, pods in known.constraints.counted):
                self._forget(known)
        self._announce()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace; none for a namespace that is not known."""
        return self._namespaces.get(namespace, {})

    def prepare(self, constraints: PodConstraints, most: int) -> bool:
        """Read pods and nodes for constraints that were not seen before; those that were used last are kept.

        Args:
            constraints: a pod's.
            most: the nodes and label sets to read now, with few requirements each.

        Returns:
            Whether the counts are complete.
        """
        if not constraints.key:
            return True
        known = self._in_use.pop(constraints.key, None) or self._register(constraints)
        self._in_use[constraints.key] = known
        self._read(known, most)
        self._announce()
        return known.is_complete

    def known(self, constraints: PodConstraints) -> CountedConstraints | None:
        """A pod's constraints with their counts; None while these are not complete (`prepare`), and for none."""
        found = self._in_use.get(constraints.key)
        return found if found is not None and found.is_complete else None

    def counted(self, constraints: PodConstraints) -> CountedConstraints:
        """A pod's constraints with complete counts; those that are not prepared are read now."""
        found = self.known(constraints)
        if found is None:
            self.prepare(constraints, _EVERYTHING)
            found = self._in_use[constraints.key]
        return found

    def that_count(self, counted: CountedConstraints, pod: Pod) -> Collection[MatchingPods]:
        """The sets of some constraints that a pod is in, which has a node."""
        known = self._label_sets.get(pod.metadata.namespace, {})
        label_set = known.get(frozenset(labels_of_pod(pod).items()))
        return counted.that_count(pod, label_set) if label_set is not None else ()

    def _add(self, node: NodeName, pod: Pod, by: int) -> set[MatchingPods]:
        """Count a pod in its label set; returns the sets that it is in."""
        namespace, labels = pod.metadata.namespace, labels_of_pod(pod)
        known = self._label_sets.setdefault(namespace, {})
        key = frozenset(labels.items())
        label_set = known.get(key)
        if label_set is None:
            label_set = known[key] = LabelSet(namespace, labels)
            for label in (*labels.items(), None):
                for matching in self._by_label.get(label, {}).values():
                    if matching.pods.match(namespace, labels, self.labels_of):
                        matching.take(label_set)
        label_set.add(node, pod, by)
        if label_set.is_empty:
            del known[key]
            if not known:
                del self._label_sets[namespace]
            for matching in label_set.matching:
                matching.label_sets.discard(label_set)
        return label_set.counting(pod)

    def _register(self, constraints: PodConstraints) -> CountedConstraints:
        counts = [
            self._counts_of(self._matching_of(pods), self._domains_of(key, nodes))
            for key, nodes, pods in constraints.counted
        ]
        for one in counts:
            (one.required_by if constraints.is_required else one.preferred_by).add(constraints.key)
        while self._in_use and self._is_full():
            self._forget(next(iter(self._in_use.values())))
        return CountedConstraints(constraints, counts, self.labels_of)

    def _is_full(self) -> bool:
        nodes = sum(max(len(one.by_node), len(one.unread)) for one in self._domains.values())
        return len(self._in_use) >= MOST_CONSTRAINTS or nodes > MOST_NODES

    def _matching_of(self, pods: CountedPods) -> MatchingPods:
        found = self._matching.get(pods)
        if found is None:
            found = self._matching[pods] = MatchingPods(pods)
            self._by_label.setdefault(pods.common_label, {})[pods] = found
            named = pods.namespaces
            for namespace in self._label_sets if named is None else named & self._label_sets.keys():
                found.unread.extend(self._label_sets[namespace].values())
        return found

    def _domains_of(self, key: str, nodes: NodeInclusion) -> Domains:
        found = self._domains.get((key, nodes))
        if found is None:
            found = self._domains[key, nodes] = Domains(key, nodes, self._changelog)
            found.unread.extend(self._nodes)
        return found

    def _counts_of(self, matching: MatchingPods, domains: Domains) -> DomainCounts:
        found = matching.counts.get(domains)
        if found is None:
            found = matching.counts[domains] = domains.counts[matching] = DomainCounts(matching, domains)
            self.work += len(matching.nodes)
        return found

    def _read(self, known: CountedConstraints, most: int) -> None:
        for one in known.counts:
            matching, weight = one.matching, 1 + one.matching.pods.size // CHECKS
            while matching.unread and most > 0:
                most -= weight + self._read_label_set(matching, matching.unread.pop())
        for one in known.counts:
            domains, weight = one.domains, 1 + one.domains.inclusion.size // CHECKS
            while domains.unread and most > 0:
                self.work += 1
                name = domains.unread.pop()
                domains.read(name, self._nodes.get(name))
                most -= weight
        known.is_complete = not any(one.matching.unread or one.domains.unread for one in known.counts)

    def _read_label_set(self, matching: MatchingPods, one: LabelSet) -> int:
        """Count a label set, if it matches; returns the number of its nodes then."""
        self.work += 1
        if one.is_empty or not matching.pods.match(one.namespace, one.labels, self.labels_of):
            return 0
        matching.take(one)
        nodes = len(one.living) + len(one.terminating)
        self.work += nodes
        return nodes

    def _forget(self, known: CountedConstraints) -> None:
        key = known.constraints.key
        self._in_use.pop(key, None)
        if known.constraints.is_required:
            self._changelog.opened.add(key)
        for counts in known.counts:
            counts.required_by.discard(key)
            counts.preferred_by.discard(key)
            if not counts.required_by and not counts.preferred_by:
                self._forget_counts(counts.matching, counts.domains)

    def _forget_counts(self, matching: MatchingPods, domains: Domains) -> None:
        matching.counts.pop(domains, None)
        domains.counts.pop(matching, None)
        if not domains.counts:
            self._domains.pop((domains.topology_key, domains.inclusion), None)
        if not matching.counts and self._matching.pop(matching.pods, None) is not None:
            alike = self._by_label[matching.pods.common_label]
            del alike[matching.pods]
            if not alike:
                del self._by_label[matching.pods.common_label]
            for label_set in matching.label_sets:
                label_set.matching.discard(matching)

    def _announce(self) -> None:
        if self._changelog.opened:
            opened, self._changelog.opened = self._changelog.opened, set()
            self._on_open(opened)


def _traits(pod: Pod) -> object:
    """All that selectors read of a pod."""
    return pod.metadata.namespace, labels_of_pod(pod), is_terminating(pod)
