"""The index of pods by domain, for the rules that are in use.

The counts of rules that were not seen before are read once, from pods and nodes, a bounded part at a time. After that
each change of a pod or a node changes them. What always holds: the counts that a check reads are complete. If there
are too many rules, those that were used longest ago are forgotten first, and announced like a change.
"""

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Final

from placer.core.selector import LabelledNode
from placer.scheduler.topology.check import Shifts, TalliedRules
from placer.scheduler.topology.counts import Crowd, Headcount, Partition, Pulse, Tally
from placer.scheduler.topology.gauge import Gauge
from placer.scheduler.topology.rules import DomainRules, NodeFilter
from placer.scheduler.topology.selectors import Member, Selection
from placer.scheduler.topology.wishes import DomainWishes
from plimsoll.ids import NodeName

RULES_KEPT: Final = 1024
"""The rules whose counts are kept, a few KiB each without the nodes. Pods of one Deployment have equal rules."""

MOST_PLACES: Final = 1_000_000
"""The nodes in all partitions together, some 100 bytes each: 50 partitions of 20 000 nodes."""

CHECKS: Final = 16
"""The requirements that are checked in the time that the rest of reading a node or a crowd takes."""

_Pair = tuple[str, str]
_InUse = TalliedRules | Gauge
_EVERYTHING: Final = 2**62


class DomainIndex:
    """Counts of pods by domain. Not thread-safe: one event loop owns it.

    Attributes:
        work: the pods that came, went or changed, and the nodes, crowds and counts that were read for new rules.
    """

    def __init__(
        self,
        nodes: Mapping[NodeName, LabelledNode],
        on_open: Callable[[Collection[Hashable]], None],
    ) -> None:
        """An empty index.

        Args:
            nodes: all nodes that exist; their owner changes them, and calls `put_node` after each change.
            on_open: called with the keys of rules for which a node may have become fit. It must not change anything.
        """
        self.work = 0
        self._nodes = nodes
        self._on_open = on_open
        self._pulse = Pulse()
        self._crowds: dict[str, dict[frozenset[_Pair], Crowd]] = {}
        self._headcounts: dict[Selection, Headcount] = {}
        self._anchored: dict[_Pair | None, dict[Selection, Headcount]] = {}
        self._partitions: dict[tuple[str, NodeFilter], Partition] = {}
        self._in_use: dict[bytes, _InUse] = {}  # the one that was used last stands last
        self._namespaces: dict[str, Mapping[str, str]] = {}

    def put(self, node: NodeName, before: Member | None, after: Member | None) -> None:
        """Take a pod on a node in place of what it was before; None for a pod that came or went."""
        self.work += 1
        losing = self._shift(node, before, -1)
        gaining = self._shift(node, after, 1)
        for headcount in losing - gaining:
            headcount.shift(node, -1)
        for headcount in gaining - losing:
            headcount.shift(node, 1)
        self._announce()

    def put_node(self, name: NodeName) -> None:
        """Read a node again: it came, left, or has other labels or taints."""
        offer = self._nodes.get(name)
        for partition in self._partitions.values():
            partition.place(name, offer)
        self._announce()

    def put_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        """Take the labels of a namespace; none for one that is gone. Rules that heed them are read anew."""
        before = self._namespaces.pop(name, {})
        if labels:
            self._namespaces[name] = labels
        for tallied in tuple(self._in_use.values()):
            if any(one.selection.heeds(name, before, labels) for one in tallied.headcounts):
                self._forget(tallied)
        self._announce()

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace; none for a namespace that is not known."""
        return self._namespaces.get(namespace, {})

    def prepare(self, rules: DomainRules | DomainWishes, most: int) -> bool:
        """Read pods and nodes for rules that were not seen before; those that were used last are kept.

        Args:
            rules: a pod's rules, or its wishes.
            most: the nodes and crowds of pods to read now, with few requirements each.

        Returns:
            Whether the counts are complete.
        """
        if not rules.key:
            return True
        tallied = self._in_use.pop(rules.key, None) or self._register(rules)
        self._in_use[rules.key] = tallied
        is_complete = self._read(tallied, most)
        self._announce()
        return is_complete

    def tallied(self, rules: DomainRules) -> TalliedRules:
        """A pod's rules with complete counts; those that are not prepared are read now."""
        tallied = self._in_use.get(rules.key)
        if tallied is None or not tallied.is_complete:
            self.prepare(rules, _EVERYTHING)
            tallied = self._in_use[rules.key]
        assert isinstance(tallied, TalliedRules), "the keys of rules and wishes differ"
        return tallied

    def gauge(self, wishes: DomainWishes) -> Gauge | None:
        """A pod's wishes with their counts; None while these are not complete (`prepare`), and without wishes."""
        found = self._in_use.get(wishes.key) if wishes.key else None
        return found if isinstance(found, Gauge) and found.is_complete else None

    def obstacle(
        self, rules: DomainRules, labels: Mapping[str, str], shifts: Shifts | None = None
    ) -> str | None:
        """The reason why a node with these labels is unfit, or None; see `TalliedRules.obstacle`."""
        return self.tallied(rules).obstacle(labels, shifts) if rules.key else None

    def counting(self, tallied: TalliedRules, member: Member) -> Collection[Headcount]:
        """The headcounts of a pod's rules that count another pod, which has a node."""
        crowd = self._crowds.get(member.namespace, {}).get(frozenset(member.labels.items()))
        return tallied.count(member, crowd) if crowd is not None else ()

    def state(self, rules: DomainRules) -> Hashable:
        """Changes whenever an answer for these rules may change; the same for all pods without rules."""
        return self.tallied(rules).state if rules.key else None

    def _shift(self, node: NodeName, member: Member | None, by: int) -> set[Headcount]:
        """Count a pod in its crowd; returns the headcounts that count it."""
        if member is None:
            return set()
        crowds = self._crowds.setdefault(member.namespace, {})
        key = frozenset(member.labels.items())
        crowd = crowds.get(key)
        if crowd is None:
            crowd = crowds[key] = self._new_crowd(member)
        crowd.shift(node, member, by)
        if crowd.is_empty:
            del crowds[key]
            if not crowds:
                del self._crowds[member.namespace]
            for headcount in crowd.headcounts:
                headcount.crowds.discard(crowd)
        return crowd.counting(member)

    def _new_crowd(self, member: Member) -> Crowd:
        crowd = Crowd(member.namespace, member.labels)
        for anchor in (*member.labels.items(), None):
            for headcount in self._anchored.get(anchor, {}).values():
                if headcount.selection.selects(crowd.namespace, crowd.labels, self.labels_of):
                    headcount.take(crowd)
        return crowd

    def _register(self, rules: DomainRules | DomainWishes) -> _InUse:
        tallies = [
            self._tally(self._headcount(selection), self._partition(key, nodes))
            for key, nodes, selection in rules.pairs
        ]
        for tally in tallies:
            (tally.users if isinstance(rules, DomainRules) else tally.wishers).add(rules.key)
        while self._in_use and self._is_full():
            self._forget(next(iter(self._in_use.values())))
        if isinstance(rules, DomainRules):
            return TalliedRules(rules, tallies, self.labels_of)
        return Gauge(rules, tallies, self.labels_of)

    def _is_full(self) -> bool:
        places = sum(
            max(len(partition.domains), len(partition.unread)) for partition in self._partitions.values()
        )
        return len(self._in_use) >= RULES_KEPT or places > MOST_PLACES

    def _headcount(self, selection: Selection) -> Headcount:
        known = self._headcounts.get(selection)
        if known is None:
            known = self._headcounts[selection] = Headcount(selection)
            self._anchored.setdefault(selection.anchor, {})[selection] = known
            named = selection.namespaces
            for namespace in self._crowds if named is None else named & self._crowds.keys():
                known.unread.extend(self._crowds[namespace].values())
        return known

    def _partition(self, key: str, nodes: NodeFilter) -> Partition:
        known = self._partitions.get((key, nodes))
        if known is None:
            known = self._partitions[key, nodes] = Partition(key, nodes, self._pulse)
            known.unread.extend(self._nodes)
        return known

    def _tally(self, headcount: Headcount, partition: Partition) -> Tally:
        known = headcount.tallies.get(partition)
        if known is None:
            known = headcount.tallies[partition] = Tally(headcount, partition)
            partition.tallies[headcount] = known
            self.work += len(headcount.nodes)
        return known

    def _read(self, tallied: _InUse, most: int) -> bool:
        for headcount in tallied.headcounts:
            weight = 1 + headcount.selection.size // CHECKS
            while headcount.unread and most > 0:
                most -= weight + self._read_crowd(headcount, headcount.unread.pop())
        for partition in tallied.partitions:
            weight = 1 + partition.filter.size // CHECKS
            while partition.unread and most > 0:
                self.work += 1
                name = partition.unread.pop()
                partition.place(name, self._nodes.get(name))
                most -= weight
        tallied.is_complete = not any(
            tally.headcount.unread or tally.partition.unread for tally in tallied.tallies
        )
        return tallied.is_complete

    def _read_crowd(self, headcount: Headcount, crowd: Crowd) -> int:
        """Count a crowd, if it counts; returns the number of its nodes then."""
        self.work += 1
        if not crowd.is_empty and headcount.selection.selects(crowd.namespace, crowd.labels, self.labels_of):
            headcount.take(crowd)
            nodes = len(crowd.living) + len(crowd.ending)
            self.work += nodes
            return nodes
        return 0

    def _forget(self, tallied: _InUse) -> None:
        key = tallied.rules.key
        self._in_use.pop(key, None)
        if isinstance(tallied, TalliedRules):
            self._pulse.opened.add(key)
        for tally in tallied.tallies:
            tally.users.discard(key)
            tally.wishers.discard(key)
            if not tally.users and not tally.wishers:
                self._forget_tally(tally)

    def _forget_tally(self, tally: Tally) -> None:
        headcount, partition = tally.headcount, tally.partition
        headcount.tallies.pop(partition, None)
        partition.tallies.pop(headcount, None)
        if not partition.tallies:
            self._partitions.pop((partition.topology_key, partition.filter), None)
        if not headcount.tallies and self._headcounts.pop(headcount.selection, None) is not None:
            anchored = self._anchored[headcount.selection.anchor]
            del anchored[headcount.selection]
            if not anchored:
                del self._anchored[headcount.selection.anchor]
            for crowd in headcount.crowds:
                crowd.headcounts.discard(headcount)

    def _announce(self) -> None:
        if self._pulse.opened:
            opened, self._pulse.opened = self._pulse.opened, set()
            self._on_open(opened)
