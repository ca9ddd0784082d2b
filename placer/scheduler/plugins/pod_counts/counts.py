"""Counts of pods by domain, kept up to date pod by pod and node by node.

What always holds: a pod that comes or goes changes the counts that it counts for, and reads no others. A node that
changes its domain takes its pods along.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from placer.core.selector import LabelledNode
from placer.scheduler.pods.constraints import AffinityTerm, PodConstraints, SpreadConstraint
from placer.scheduler.pods.matching import CountedPods, LabelsOf, NodeInclusion, is_terminating
from plimsoll.ids import NodeName
from plimsoll.kube.models import Pod

H = TypeVar("H", bound=Hashable)


@dataclass(slots=True)
class Changelog:
    """Changes of all counts.

    Attributes:
        serial: grows with each change.
        opened: the keys of the required constraints for which a node may have become fit since this was emptied.
    """

    serial: int = 0
    opened: set[Hashable] = field(default_factory=set)

    def next_serial(self) -> int:
        """The number of a new change."""
        self.serial += 1
        return self.serial


@dataclass(slots=True, eq=False)
class LabelSet:
    """The pods with a node that have this namespace and these labels.

    Attributes:
        namespace: their namespace.
        labels: their labels.
        living, terminating: the number of pods by node: those that live on, and those that are being deleted.
        matching: the sets that these pods are in.
    """

    namespace: str
    labels: Mapping[str, str]
    living: dict[NodeName, int] = field(default_factory=dict)
    terminating: dict[NodeName, int] = field(default_factory=dict)
    matching: set["MatchingPods"] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether all of its pods are gone."""
        return not self.living and not self.terminating

    def add(self, node: NodeName, pod: Pod, by: int) -> None:
        """Count a pod more or less."""
        add(self.terminating if is_terminating(pod) else self.living, node, by)

    def counting(self, pod: Pod) -> set["MatchingPods"]:
        """The sets that this pod of the label set is in."""
        return {one for one in self.matching if not (one.pods.only_living and is_terminating(pod))}


@dataclass(slots=True, eq=False)
class MatchingPods:
    """The pods that count for constraints, by node.

    Attributes:
        pods: the pods that count.
        nodes: their number by node.
        counts: the same by domain, for each set of domains.
        label_sets: the label sets whose pods count.
        unread: the label sets that have yet to be read.
    """

    pods: CountedPods
    nodes: dict[NodeName, int] = field(default_factory=dict)
    counts: dict["Domains", "DomainCounts"] = field(default_factory=dict)
    label_sets: set[LabelSet] = field(default_factory=set)
    unread: list[LabelSet] = field(default_factory=list)

    def add(self, node: NodeName, by: int) -> None:
        """Count pods on a node more or less."""
        add(self.nodes, node, by)
        for domains, counts in self.counts.items():
            domain = domains.by_node.get(node)
            if domain is not None:
                counts.add(domain, by)

    def take(self, label_set: LabelSet) -> None:
        """Count the pods of a label set that matches."""
        if self in label_set.matching:
            return
        label_set.matching.add(self)
        self.label_sets.add(label_set)
        living, terminating = label_set.living, label_set.terminating
        for counted in (living,) if self.pods.only_living else (living, terminating):
            for node, pods in counted.items():
                self.add(node, pods)


@dataclass(slots=True, eq=False)
class Domains:
    """The nodes that count for constraints, by domain.

    Attributes:
        topology_key: the label whose values are the domains.
        inclusion: the nodes that count.
        changelog: takes changes.
        by_node: the domain of each node that counts.
        sizes: the number of these nodes by domain.
        counts: the counts of these domains, by the pods that count.
        unread: the nodes that have yet to be read.
        serial: the serial of the last change of the set of domains.
    """

    topology_key: str
    inclusion: NodeInclusion
    changelog: Changelog
    by_node: dict[NodeName, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    counts: dict[MatchingPods, "DomainCounts"] = field(default_factory=dict)
    unread: list[NodeName] = field(default_factory=list)
    serial: int = 0

    def read(self, node: NodeName, offer: LabelledNode | None) -> None:
        """Read a node; None for a node that does not exist."""
        before, after = self.by_node.get(node), None
        if offer is not None and self.inclusion.includes(offer):
            after = (offer.node.metadata.labels or {})[self.topology_key]
        if before == after:
            return
        if after is not None:
            self.by_node[node] = after
            add(self.sizes, after, 1)
        else:
            del self.by_node[node]
        for matching, counts in self.counts.items():
            pods = matching.nodes.get(node)
            if pods and after is not None:
                counts.add(after, pods)
            if pods and before is not None:
                counts.add(before, -pods)
        if before is not None:
            add(self.sizes, before, -1)
        has_vanished = before is not None and before not in self.sizes
        if has_vanished or (after is not None and self.sizes[after] == 1):
            self.serial = self.changelog.next_serial()
            for counts in self.counts.values():
                self.changelog.opened.update(counts.required_by)


@dataclass(slots=True, eq=False)
class DomainCounts:
    """The number of matching pods by domain.

    Attributes:
        matching: the pods that count.
        domains: the nodes that count.
        pods: the number of pods by domain; a domain without pods is not among them.
        total: the number of all.
        required_by: the keys of the required constraints that read these counts.
        preferred_by: the keys of the preferred ones. A change of the counts makes no node fit for these.
        serial: the serial of the last change.
    """

    matching: MatchingPods
    domains: Domains
    pods: dict[str, int] = field(default_factory=dict)
    total: int = 0
    required_by: set[Hashable] = field(default_factory=set)
    preferred_by: set[Hashable] = field(default_factory=set)
    serial: int = 0
    _levels: dict[int, int] = field(default_factory=dict)  # by number of pods, the domains that have as many
    _lowest: int | None = None  # the lowest level, if it is known

    def __post_init__(self) -> None:
        self.serial = self.domains.changelog.next_serial()
        for node, pods in self.matching.nodes.items():
            domain = self.domains.by_node.get(node)
            if domain is not None:
                self.add(domain, pods)

    def add(self, domain: str, by: int) -> None:
        """Count pods in a domain more or less."""
        least, before = self.least(), self.pods.get(domain, 0)
        after = before + by
        add(self.pods, domain, by)
        _move(self._levels, before, after)
        if self._lowest is None or after < self._lowest or before == self._lowest:
            self._lowest = None
        self.total += by
        self.serial = self.domains.changelog.next_serial()
        # An increase makes a node fit where it raises the least count.
        opens = before == 0 or after == 0
        if self.matching.pods.only_living:
            opens = after < before or self.least() > least
        if opens:
            self.domains.changelog.opened.update(self.required_by)

    def least(self, min_domains: int = 1, changed: Mapping[str, int] | None = None) -> int:
        """The number of pods in the emptiest domain; 0 with fewer domains than `min_domains`."""
        domains = len(self.domains.sizes)
        if domains < min_domains:
            return 0
        if changed:
            levels = dict(self._levels)
            for domain, by in changed.items():
                before = self.pods.get(domain, 0)
                _move(levels, before, before + by)
            return min(levels) if sum(levels.values()) >= domains and levels else 0
        if len(self.pods) < domains:
            return 0
        if self._lowest is None:
            self._lowest = min(self._levels, default=0)
        return self._lowest

    def most(self) -> int:
        """The number of pods in the fullest domain. The cost grows with the number of different counts."""
        return max(self._levels, default=0)


_NONE: Final[Mapping[str, int]] = {}


class CountChanges:
    """Pods that a dry run counts more or less than the store does, summed up.

    A check costs the same with many of them as with few on the same nodes.
    """

    def __init__(self) -> None:
        self._nodes: defaultdict[MatchingPods, dict[NodeName, int]] = defaultdict(dict)

    def add(self, node: NodeName, matching: Collection[MatchingPods], by: int) -> None:
        """Count a pod of a node more or less, in the sets that it is in."""
        for one in matching:
            add(self._nodes[one], node, by)

    def of(self, counts: DomainCounts) -> Mapping[str, int]:
        """By domain, the pods that are counted too few, or too many (negative)."""
        changed: dict[str, int] = {}
        for node, by in self._nodes.get(counts.matching, {}).items():
            domain = counts.domains.by_node.get(node)
            if domain is not None:
                add(changed, domain, by)
        return changed


@dataclass(slots=True, eq=False)
class CountedConstraints:
    """A pod's constraints, each with its counts.

    Attributes:
        constraints: the constraints.
        counts: the counts of each, in the order of `PodConstraints.counted`.
        labels_of: the labels of a namespace.
        spread, affinity, anti_affinity, weighted: the constraints of each kind with their counts.
        is_complete: whether all pods and nodes are counted.
        searches: the number of searches for promising nodes so far.
    """

    constraints: PodConstraints
    counts: Sequence[DomainCounts]
    labels_of: LabelsOf
    spread: Sequence[tuple[SpreadConstraint, DomainCounts]] = field(init=False)
    affinity: Sequence[tuple[AffinityTerm, DomainCounts]] = field(init=False)
    anti_affinity: Sequence[tuple[AffinityTerm, DomainCounts]] = field(init=False)
    weighted: Sequence[tuple[AffinityTerm, DomainCounts]] = field(init=False)
    is_complete: bool = field(default=False, init=False)
    searches: int = field(default=0, init=False)
    _distinct: Collection[MatchingPods] = field(init=False)

    def __post_init__(self) -> None:
        all_of, counts = self.constraints, iter(self.counts)
        self.spread = tuple(zip(all_of.spread, counts, strict=False))
        self.affinity = tuple(zip(all_of.affinity, counts, strict=False))
        self.anti_affinity = tuple(zip(all_of.anti_affinity, counts, strict=False))
        self.weighted = tuple(zip(all_of.weighted, counts, strict=False))
        self._distinct = tuple(dict.fromkeys(one.matching for one in self.counts))

    @property
    def state(self) -> Hashable:
        """Changes whenever an answer may change."""
        return tuple((one.serial, one.domains.serial) for one in self.counts)

    @property
    def is_affine_to_self(self) -> bool:
        """Whether the affinity selects the pod itself, so that the first such pod needs no other one."""
        namespace = self.constraints.namespace
        spaces = self.labels_of(namespace)
        return self.constraints.affine_to_self and all(
            term.pods.covers(namespace, {}) or term.pods.covers(namespace, spaces)
            for term in self.constraints.affinity
        )

    def that_would_count(self, pod: Pod) -> list[MatchingPods]:
        """The sets of the constraints that a pod without a node would be in."""
        return [one for one in self._distinct if one.pods.counts(pod, self.labels_of)]

    def that_count(self, pod: Pod, label_set: LabelSet) -> list[MatchingPods]:
        """The sets of the constraints that a pod of a label set is in. Selectors are not read for it."""
        counting = label_set.counting(pod)
        return [one for one in self._distinct if one in counting]


def changed_by(changes: CountChanges | None, counts: DomainCounts) -> Mapping[str, int]:
    """By domain, the pods that are counted too few, or too many (negative)."""
    return _NONE if changes is None else changes.of(counts)


def add(counts: dict[H, int], key: H, by: int) -> None:
    """Change a count; a count of 0 is removed."""
    value = counts.get(key, 0) + by
    if value:
        counts[key] = value
    else:
        counts.pop(key, None)


def _move(levels: dict[int, int], before: int, after: int) -> None:
    """Count a domain that had `before` pods at its new number; domains without pods are not counted."""
    add(levels, before, -1 if before else 0)
    add(levels, after, 1 if after else 0)
