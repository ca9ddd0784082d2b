"""The check of a node for a pod's rules about other pods, as kube-scheduler's filters make it."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from placer.scheduler.topology.counts import Crowd, Headcount, Tallied, Tally, add
from placer.scheduler.topology.rules import DomainRules
from placer.scheduler.topology.selectors import Member
from plimsoll.ids import NodeName

SKEWED: Final = "node(s) didn't match pod topology spread constraints"
NO_DOMAIN: Final = f"{SKEWED} (missing required label)"
NOT_BESIDE: Final = "node(s) didn't match pod affinity rules"
NOT_APART: Final = "node(s) didn't match pod anti-affinity rules"


class Shifts:
    """Pods that a check counts more or less than the index does, summed up.

    A check costs the same with many of them as with few on the same nodes.
    """

    def __init__(self) -> None:
        self._by_headcount: defaultdict[Headcount, dict[NodeName, int]] = defaultdict(dict)

    def count(self, node: NodeName, headcounts: Collection[Headcount], by: int) -> None:
        """Count a pod more or less.

        Args:
            node: the node that has it.
            headcounts: those that count it.
            by: -1 for a pod that is left out, 1 for a pod that is added, or is back.
        """
        for headcount in headcounts:
            add(self._by_headcount[headcount], node, by)

    def of(self, tally: Tally) -> Mapping[str, int]:
        """By domain, the pods that a tally counts too few, or too many (negative)."""
        nodes = self._by_headcount.get(tally.headcount)
        if not nodes:
            return _NONE
        moved: dict[str, int] = {}
        for node, by in nodes.items():
            domain = tally.partition.domains.get(node)
            if domain is not None:
                add(moved, domain, by)
        return moved


@dataclass(slots=True, eq=False)
class TalliedRules(Tallied[DomainRules]):
    """A pod's rules with the tallies that they read.

    Attributes:
        is_first: the affinity selects the pod itself, so the first such pod needs no other one.
    """

    is_first: bool = field(init=False)
    _distinct: Collection[Headcount] = field(init=False)

    def __post_init__(self) -> None:
        self._distinct = tuple(dict.fromkeys(self.headcounts))
        beside = self.rules.beside_pods
        self.is_first = beside is not None and beside.counts(self._self(), self.labels_of)

    @property
    def state(self) -> Hashable:
        """Changes whenever an answer may change."""
        return tuple((tally.serial, tally.partition.serial) for tally in self.tallies)

    def would_count(self, member: Member) -> list[Headcount]:
        """The headcounts of the rules that would count this pod, each once."""
        return [one for one in self._distinct if one.selection.counts(member, self.labels_of)]

    def count(self, member: Member, crowd: Crowd) -> list[Headcount]:
        """The headcounts of the rules that count this pod of a crowd, each once. Selectors are not read for it."""
        return [
            one
            for one in self._distinct
            if one in crowd.headcounts and not (member.is_ending and one.selection.only_living)
        ]

    def obstacle(self, labels: Mapping[str, str], shifts: Shifts | None = None) -> str | None:
        """The reason why a node with these labels is unfit, or None.

        Args:
            labels: the node's.
            shifts: pods to count otherwise than they are counted.
        """
        reason = self._skewed(labels, shifts)
        if reason is None and not self._is_beside(labels, shifts):
            reason = NOT_BESIDE
        if reason is None and not self._is_apart(labels, shifts):
            reason = NOT_APART
        return reason

    def _skewed(self, labels: Mapping[str, str], shifts: Shifts | None) -> str | None:
        for spread, tally in zip(self.rules.spreads, self.tallies, strict=False):
            domain = labels.get(spread.topology_key)
            if domain is None:
                return NO_DOMAIN
            moved = _moved(tally, shifts)
            least = tally.least(spread.min_domains, moved)
            if tally.count(domain, moved) + spread.selects_self - least > spread.max_skew:
                return SKEWED
        return None

    def _is_beside(self, labels: Mapping[str, str], shifts: Shifts | None) -> bool:
        keys, first = self.rules.beside, len(self.rules.spreads)
        tallies = self.tallies[first : first + len(keys)]
        if any(key not in labels for key in keys):
            return False
        moved = [_moved(tally, shifts) for tally in tallies]
        checks = list(zip(keys, tallies, moved, strict=True))
        if all(tally.count(labels[key], more) > 0 for key, tally, more in checks):
            return True
        return self.is_first and all(tally.total + sum(more.values()) == 0 for _, tally, more in checks)

    def _is_apart(self, labels: Mapping[str, str], shifts: Shifts | None) -> bool:
        tallies = self.tallies[len(self.rules.spreads) + len(self.rules.beside) :]
        for (key, _), tally in zip(self.rules.apart, tallies, strict=True):
            if key in labels and tally.count(labels[key], _moved(tally, shifts)) > 0:
                return False
        return True

    def _self(self) -> Member:
        return Member(self.rules.member.namespace, self.rules.member.labels)


_NONE: Final[Mapping[str, int]] = {}


def _moved(tally: Tally, shifts: Shifts | None) -> Mapping[str, int]:
    return _NONE if shifts is None else shifts.of(tally)
