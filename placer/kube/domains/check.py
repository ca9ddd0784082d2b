"""The check of a node for a pod's rules about other pods, as kube-scheduler's filters make it."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from placer.kube.domains.counts import Headcount, Partition, Tally, add
from placer.kube.domains.rules import DomainRules
from placer.kube.domains.selectors import LabelsOf, Member
from plimsoll.ids import NodeName

SKEWED: Final = "node(s) didn't match pod topology spread constraints"
NO_DOMAIN: Final = f"{SKEWED} (missing required label)"
NOT_BESIDE: Final = "node(s) didn't match pod affinity rules"
NOT_APART: Final = "node(s) didn't match pod anti-affinity rules"


@dataclass(frozen=True, slots=True)
class Shift:
    """A pod that a check counts more or less than the index does.

    Attributes:
        node: the node that has it.
        member: the pod.
        by: -1 for a pod that is left out, 1 for a pod that is added.
    """

    node: NodeName
    member: Member
    by: int = -1


@dataclass(slots=True, eq=False)
class Standing:
    """A pod's rules with the tallies that they read.

    Attributes:
        rules: the rules.
        tallies: of the spread constraints, then of the affinity terms, then of the anti-affinity terms.
        labels_of: the labels of a namespace.
        is_complete: whether the tallies count all pods and nodes.
        is_first: the affinity means the pod itself, so the pod needs no other one where there is none.
    """

    rules: DomainRules
    tallies: Sequence[Tally]
    labels_of: LabelsOf
    is_complete: bool = False
    is_first: bool = field(init=False)

    def __post_init__(self) -> None:
        beside = self.rules.beside_pods
        self.is_first = beside is not None and beside.counts(self._self(), self.labels_of)

    @property
    def state(self) -> Hashable:
        """Changes whenever an answer may change."""
        return tuple((tally.serial, tally.partition.serial) for tally in self.tallies)

    @property
    def headcounts(self) -> Iterable[Headcount]:
        """The headcounts of the tallies; one may come several times."""
        return (tally.headcount for tally in self.tallies)

    @property
    def partitions(self) -> Iterable[Partition]:
        """The partitions of the tallies; one may come several times."""
        return (tally.partition for tally in self.tallies)

    def obstacle(self, labels: Mapping[str, str], shifts: Sequence[Shift] = ()) -> str | None:
        """The reason why a node with these labels is unfit, or None.

        Args:
            labels: the node's.
            shifts: pods to count otherwise than they are counted. Each costs a look at each rule.
        """
        reason = self._skewed(labels, shifts)
        if reason is None and not self._is_beside(labels, shifts):
            reason = NOT_BESIDE
        if reason is None and not self._is_apart(labels, shifts):
            reason = NOT_APART
        return reason

    def _skewed(self, labels: Mapping[str, str], shifts: Sequence[Shift]) -> str | None:
        for spread, tally in zip(self.rules.spreads, self.tallies, strict=False):
            domain = labels.get(spread.topology_key)
            if domain is None:
                return NO_DOMAIN
            moved = self._moved(tally, shifts)
            least = tally.least(spread.min_domains, moved)
            if tally.count(domain, moved) + spread.selects_self - least > spread.max_skew:
                return SKEWED
        return None

    def _is_beside(self, labels: Mapping[str, str], shifts: Sequence[Shift]) -> bool:
        keys, first = self.rules.beside, len(self.rules.spreads)
        tallies = self.tallies[first : first + len(keys)]
        if any(key not in labels for key in keys):
            return False
        moved = [self._moved(tally, shifts) for tally in tallies]
        checks = list(zip(keys, tallies, moved, strict=True))
        if all(tally.count(labels[key], more) > 0 for key, tally, more in checks):
            return True
        return self.is_first and all(tally.total + sum(more.values()) == 0 for _, tally, more in checks)

    def _is_apart(self, labels: Mapping[str, str], shifts: Sequence[Shift]) -> bool:
        tallies = self.tallies[len(self.rules.spreads) + len(self.rules.beside) :]
        for (key, _), tally in zip(self.rules.apart, tallies, strict=True):
            if key in labels and tally.count(labels[key], self._moved(tally, shifts)) > 0:
                return False
        return True

    def _moved(self, tally: Tally, shifts: Sequence[Shift]) -> Mapping[str, int]:
        if not shifts:
            return _NONE
        moved: dict[str, int] = {}
        for shift in shifts:
            domain = tally.partition.domains.get(shift.node)
            if domain is not None and tally.headcount.selection.counts(shift.member, self.labels_of):
                add(moved, domain, shift.by)
        return moved

    def _self(self) -> Member:
        return Member(self.rules.member.namespace, self.rules.member.labels)


_NONE: Final[Mapping[str, int]] = {}
