"""Counts of pods by domain, kept up to date pod by pod and node by node.

Pods with equal namespace and labels are a crowd. A headcount has the pods of all crowds that a selection selects, by
node. A partition has the nodes that count for a rule, by domain. A tally has a headcount by the domains of a
partition. What always holds: a pod that comes or goes changes the tallies that it counts for, and reads no others. A
node that changes its domain takes its pods along.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from placer.core.selector import LabelledNode
from placer.scheduler.topology.rules import NodeFilter
from placer.scheduler.topology.selectors import LabelsOf, Member, Selection
from plimsoll.ids import NodeName

H = TypeVar("H", bound=Hashable)


@dataclass(slots=True)
class Pulse:
    """Changes of all counts.

    Attributes:
        serial: grows with each change.
        opened: the keys of the rules for which a node may have become fit since this was emptied.
    """

    serial: int = 0
    opened: set[Hashable] = field(default_factory=set)

    def tick(self) -> int:
        """The number of a new change."""
        self.serial += 1
        return self.serial


@dataclass(slots=True, eq=False)
class Crowd:
    """The pods with a node that have this namespace and these labels.

    Attributes:
        namespace: their namespace.
        labels: their labels.
        living, ending: the number of pods by node: those that live on, and those that are being deleted.
        headcounts: those that count these pods.
    """

    namespace: str
    labels: Mapping[str, str]
    living: dict[NodeName, int] = field(default_factory=dict)
    ending: dict[NodeName, int] = field(default_factory=dict)
    headcounts: set["Headcount"] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether all of its pods are gone."""
        return not self.living and not self.ending

    def shift(self, node: NodeName, member: Member, by: int) -> None:
        """Count a pod more or less."""
        add(self.ending if member.is_ending else self.living, node, by)

    def counting(self, member: Member) -> set["Headcount"]:
        """The headcounts that count this pod of the crowd."""
        return {one for one in self.headcounts if not (member.is_ending and one.selection.only_living)}


@dataclass(slots=True, eq=False)
class Headcount:
    """The pods that a selection selects.

    Attributes:
        selection: selects them.
        nodes: their number by node.
        tallies: the tallies by partition.
        crowds: the crowds that the headcount has taken.
        unread: the crowds that have yet to be read.
    """

    selection: Selection
    nodes: dict[NodeName, int] = field(default_factory=dict)
    tallies: dict["Partition", "Tally"] = field(default_factory=dict)
    crowds: set[Crowd] = field(default_factory=set)
    unread: list[Crowd] = field(default_factory=list)

    def shift(self, node: NodeName, by: int) -> None:
        """Count pods on a node more or less."""
        add(self.nodes, node, by)
        for partition, tally in self.tallies.items():
            domain = partition.domains.get(node)
            if domain is not None:
                tally.shift(domain, by)

    def take(self, crowd: Crowd) -> None:
        """Count a crowd that the selection selects."""
        if self in crowd.headcounts:
            return
        crowd.headcounts.add(self)
        self.crowds.add(crowd)
        for counted in (crowd.living,) if self.selection.only_living else (crowd.living, crowd.ending):
            for node, pods in counted.items():
                self.shift(node, pods)


@dataclass(slots=True, eq=False)
class Partition:
    """The nodes that count for rules, by domain.

    Attributes:
        topology_key: the label whose values are the domains.
        filter: the nodes that count.
        pulse: takes changes.
        domains: the domain of each node that counts.
        sizes: the number of these nodes by domain.
        tallies: the tallies by headcount.
        unread: the nodes that have yet to be read.
        serial: the serial of the last change of the set of domains.
    """

    topology_key: str
    filter: NodeFilter
    pulse: Pulse
    domains: dict[NodeName, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    tallies: dict[Headcount, "Tally"] = field(default_factory=dict)
    unread: list[NodeName] = field(default_factory=list)
    serial: int = 0

    def place(self, node: NodeName, offer: LabelledNode | None) -> None:
        """Read a node; None for a node that does not exist."""
        before = self.domains.get(node)
        counts = offer is not None and self.filter.admits(offer)
        after = (
            (offer.node.metadata.labels or {})[self.topology_key] if offer is not None and counts else None
        )
        if before == after:
            return
        if after is not None:
            self.domains[node] = after
            add(self.sizes, after, 1)
        else:
            del self.domains[node]
        self._move_pods(node, before, after)
        if before is not None:
            add(self.sizes, before, -1)
        has_vanished = before is not None and before not in self.sizes
        if has_vanished or (after is not None and self.sizes[after] == 1):
            self._note_domains()

    def _move_pods(self, node: NodeName, before: str | None, after: str | None) -> None:
        for headcount, tally in self.tallies.items():
            pods = headcount.nodes.get(node)
            if pods and after is not None:
                tally.shift(after, pods)
            if pods and before is not None:
                tally.shift(before, -pods)

    def _note_domains(self) -> None:
        self.serial = self.pulse.tick()
        for tally in self.tallies.values():
            self.pulse.opened.update(tally.users)


@dataclass(slots=True, eq=False)
class Tally:
    """The pods of a headcount by the domains of a partition.

    Attributes:
        headcount: the pods.
        partition: the nodes that count.
        counts: the number of pods by domain; a domain without pods is not among them.
        total: the number of all.
        users: the keys of the rules that read this tally.
        wishers: the keys of the wishes that read it. Its changes make no node fit for these.
        serial: the serial of the last change.
    """

    headcount: Headcount
    partition: Partition
    counts: dict[str, int] = field(default_factory=dict)
    total: int = 0
    users: set[Hashable] = field(default_factory=set)
    wishers: set[Hashable] = field(default_factory=set)
    serial: int = 0
    _levels: dict[int, int] = field(default_factory=dict)  # by number of pods, the domains that have as many
    _lowest: int | None = None  # the lowest level, if it is known

    def __post_init__(self) -> None:
        self.serial = self.partition.pulse.tick()
        for node, pods in self.headcount.nodes.items():
            domain = self.partition.domains.get(node)
            if domain is not None:
                self.shift(domain, pods)

    def shift(self, domain: str, by: int) -> None:
        """Count pods in a domain more or less."""
        least, before = self.least(), self.counts.get(domain, 0)
        after = before + by
        add(self.counts, domain, by)
        add(self._levels, before, -1 if before else 0)
        add(self._levels, after, 1 if after else 0)
        if self._lowest is None or after < self._lowest or before == self._lowest:
            self._lowest = None
        self.total += by
        pulse = self.partition.pulse
        self.serial = pulse.tick()
        if self._opens(before, after, least):
            pulse.opened.update(self.users)

    def count(self, domain: str, moved: Mapping[str, int]) -> int:
        """The number of pods in a domain, with pods counted more or less (`moved`)."""
        return self.counts.get(domain, 0) + moved.get(domain, 0)

    def least(self, min_domains: int = 1, moved: Mapping[str, int] | None = None) -> int:
        """The number of pods in the emptiest domain; 0 with fewer domains than `min_domains`."""
        domains = len(self.partition.sizes)
        if domains < min_domains:
            return 0
        if moved:
            return self._least_moved(domains, moved)
        if len(self.counts) < domains:
            return 0
        if self._lowest is None:
            self._lowest = min(self._levels, default=0)
        return self._lowest

    def most(self) -> int:
        """The number of pods in the fullest domain. The cost grows with the number of different counts."""
        return max(self._levels, default=0)

    def _least_moved(self, domains: int, moved: Mapping[str, int]) -> int:
        levels = dict(self._levels)
        for domain, by in moved.items():
            before = self.counts.get(domain, 0)
            add(levels, before, -1 if before else 0)
            add(levels, before + by, 1 if before + by else 0)
        return min(levels) if sum(levels.values()) >= domains and levels else 0

    def _opens(self, before: int, after: int, least: int) -> bool:
        """Whether the change may make a node fit. An increase does that where it raises the least count."""
        if self.headcount.selection.only_living:
            return after < before or self.least() > least
        return before == 0 or after == 0


class Countable(Protocol):
    """Rules or wishes of a pod that read tallies."""

    @property
    def key(self) -> bytes:
        """Equal for those with the same answers; empty for those that read no tally."""

    @property
    def pairs(self) -> Sequence[tuple[str, NodeFilter, Selection]]:
        """By rule: the topology key, the nodes that count, and the pods that count."""


R_co = TypeVar("R_co", bound=Countable, covariant=True)


@dataclass(slots=True, eq=False)
class Tallied(Generic[R_co]):
    """Rules or wishes of a pod, with the tallies that they read.

    Attributes:
        rules: the rules or wishes.
        tallies: the tallies by rule.
        labels_of: the labels of a namespace.
        is_complete: whether the tallies count all pods and nodes.
    """

    rules: R_co
    tallies: Sequence[Tally]
    labels_of: LabelsOf
    is_complete: bool = field(default=False, init=False)

    @property
    def headcounts(self) -> Iterable[Headcount]:
        """The headcounts of the tallies; one may come several times."""
        return (tally.headcount for tally in self.tallies)

    @property
    def partitions(self) -> Iterable[Partition]:
        """The partitions of the tallies; one may come several times."""
        return (tally.partition for tally in self.tallies)


def add(counts: dict[H, int], key: H, by: int) -> None:
    """Change a count; a count of 0 is removed."""
    value = counts.get(key, 0) + by
    if value:
        counts[key] = value
    else:
        counts.pop(key, None)
