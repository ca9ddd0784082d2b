"""The check of one node by rules about other pods, with some pods left out.

The sums are kept up to date as pods are left out and put back. What always holds: one pod costs at most a look at
each rule, and a check costs the same however many pods are left out. Nothing is changed outside.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from placer.scheduler.topology.antiaffinity import REASON as KEPT_OUT
from placer.scheduler.topology.antiaffinity import Keepout
from placer.scheduler.topology.check import Shifts, TalliedRules
from placer.scheduler.topology.counts import Headcount
from placer.scheduler.topology.selectors import Member
from plimsoll.ids import NodeName, PodUid


@dataclass(frozen=True, slots=True)
class Counted:
    """A pod, with the rules that its end may change.

    Attributes:
        node: its node.
        headcounts: those of the new pod's rules that count it.
        closing: its own rules that close the node to the new pod.
    """

    node: NodeName
    headcounts: Collection[Headcount] = ()
    closing: Collection[Keepout] = ()


class RuleCheck:
    """One node for a new pod, by the new pod's own rules and by those of others about it.

    Attributes:
        own: the new pod's own rules, with complete counts; None without any.
        known: the pods that have been left out so far, for `PodRules.counted`.
    """

    def __init__(
        self,
        labels: Mapping[str, str],
        own: TalliedRules | None,
        closing: Mapping[Keepout, int],
        beside: Iterable[tuple[NodeName, Member]] = (),
        *,
        is_kept_out: bool,
    ) -> None:
        """Leave out no pod yet.

        Args:
            labels: the node's.
            own: the new pod's own rules, with complete counts; None without any.
            closing: the rules of pods with a node that keep the new pod out, with the number of pods that have each.
            beside: pods that `obstacle_beside` counts as if they had these nodes.
            is_kept_out: a rule of those pods keeps the new pod out.
        """
        self.own = own
        self._labels, self._is_kept_out = labels, is_kept_out
        self.known: dict[PodUid, Counted] = {}
        self._all_closing, self._closing = closing, dict(closing)
        self._open_rules = 0  # rules all of whose pods are left out
        self._less, self._shifted = Shifts(), Shifts()
        self._beside: list[Counted] = []
        if own is not None:
            self._beside = [Counted(node, own.would_count(member)) for node, member in beside]
        for one in self._beside:
            self._shifted.count(one.node, one.headcounts, 1)

    def anew(self) -> "RuleCheck":
        """This check with no pod left out. Both take the same pods."""
        other = RuleCheck(self._labels, self.own, self._all_closing, is_kept_out=self._is_kept_out)
        other.known, other._beside = self.known, self._beside
        for one in other._beside:
            other._shifted.count(one.node, one.headcounts, 1)
        return other

    def closed_by(self, keepouts: Iterable[Keepout], labels: Mapping[str, str]) -> list[Keepout]:
        """Those rules of a pod, on a node with these labels, that close this node."""
        if not self._closing:
            return []
        return [
            rule
            for rule in keepouts
            if rule in self._closing and labels.get(rule.topology_key) == self._labels[rule.topology_key]
        ]

    def leave_out(self, one: Counted) -> None:
        """Stop counting a pod."""
        self._shift(one, -1)
        for rule in one.closing:
            self._closing[rule] -= 1
            self._open_rules += not self._closing[rule]

    def put_back(self, one: Counted) -> None:
        """Count a pod that was left out."""
        self._shift(one, 1)
        for rule in one.closing:
            self._open_rules -= not self._closing[rule]
            self._closing[rule] += 1

    def obstacle(self) -> str | None:
        """The reason against the node without the pods that are left out, or None."""
        return self._reason(self._less, is_kept_out=False)

    def obstacle_beside(self) -> str | None:
        """The reason against the node, were the pods `beside` there too; or None."""
        return self._reason(self._shifted, is_kept_out=self._is_kept_out)

    def _reason(self, shifts: Shifts, *, is_kept_out: bool) -> str | None:
        reason = self.own.obstacle(self._labels, shifts) if self.own is not None else None
        if reason is None and (is_kept_out or len(self._closing) > self._open_rules):
            reason = KEPT_OUT
        return reason

    def _shift(self, one: Counted, by: int) -> None:
        self._less.count(one.node, one.headcounts, by)
        self._shifted.count(one.node, one.headcounts, by)
