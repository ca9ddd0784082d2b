"""A pod's wishes about other pods: spread constraints of `ScheduleAnyway`, and preferred affinity and anti-affinity.

What always holds: wishes with the same key are met alike by each node. A wish that cannot be read is refused by name,
as a rule is. Wishes beyond `MOST_WISHES` have no effect, and refuse no pod.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from placer.scheduler.pods.node_rules import NodeRules
from placer.scheduler.topology.rules import (
    MOST_REQUIREMENTS,
    SCHEDULE_ANYWAY,
    NodeFilter,
    PodTerm,
    Spread,
    check_operators,
    constraints_of,
    part_document,
    part_of,
    part_size,
    spread_document,
    spreads_of,
)
from placer.scheduler.topology.selectors import Member, Selection, member_of
from plimsoll.kube.models import Pod, PodAffinity
from plimsoll.part.errors import InputError

MOST_WISHES: Final = 16
"""The constraints and terms of one pod that have an effect: constraints first, then the terms of most weight. Each is
looked up on each node that is read, and no known pod states this many."""
_MEND: Final = "mend the term, or let kube-scheduler place the pod (spec.schedulerName)"


class WeightedTerm(msgspec.Struct, frozen=True):
    """A preferred term of affinity or anti-affinity; `weight` is 1–100."""

    podAffinityTerm: PodTerm  # noqa: N815 - the API's name
    weight: int = 0


@dataclass(frozen=True, slots=True)
class Leaning:
    """A preferred term.

    Attributes:
        topology_key: the label whose values are the domains.
        weight: the worth of each pod in the node's domain; below 0 for anti-affinity.
        selection: the pods that count.
    """

    topology_key: str
    weight: int
    selection: Selection


@dataclass(frozen=True, slots=True)
class DomainWishes:
    """A pod's wishes about other pods.

    Attributes:
        key: equal for pods whose wishes are met alike; empty for a pod without such wishes.
        spreads: its spread constraints that need not hold.
        leanings: its preferred terms, the weightiest first.
    """

    key: bytes = b""
    spreads: tuple[Spread, ...] = ()
    leanings: tuple[Leaning, ...] = ()

    @property
    def count(self) -> int:
        """The number of constraints and terms."""
        return len(self.spreads) + len(self.leanings)

    @property
    def pairs(self) -> list[tuple[str, NodeFilter, Selection]]:
        """By constraint, then by term: its key, the nodes and the pods that count."""
        pairs = [(spread.topology_key, spread.nodes, spread.selection) for spread in self.spreads]
        return pairs + [
            (one.topology_key, NodeFilter(frozenset((one.topology_key,))), one.selection)
            for one in self.leanings
        ]


NO_WISHES: Final = DomainWishes()


def domain_wishes_of(pod: Pod, rules: NodeRules) -> DomainWishes:
    """A pod's wishes about other pods.

    Args:
        pod: the pod.
        rules: its rules about its node.

    Raises:
        InputError: a wish cannot be read.
    """
    affinity = pod.spec.affinity
    if affinity is None and not pod.spec.topologySpreadConstraints:
        return NO_WISHES  # as nearly all pods
    member = member_of(pod)
    spreads = spreads_of(pod, member, constraints_of(pod, SCHEDULE_ANYWAY)[:MOST_WISHES], rules)
    terms: list[tuple[int, PodTerm]] = []
    if affinity is not None:
        terms += ((one.weight, one.podAffinityTerm) for one in _terms(affinity.podAffinity, "podAffinity"))
        terms += (
            (-one.weight, one.podAffinityTerm) for one in _terms(affinity.podAntiAffinity, "podAntiAffinity")
        )
    if not spreads and not terms:
        return NO_WISHES
    return _heeded(member, spreads, sorted(terms, key=lambda one: -abs(one[0])))


def _heeded(member: Member, spreads: Sequence[Spread], terms: Sequence[tuple[int, PodTerm]]) -> DomainWishes:
    """The wishes that have an effect."""
    size, kept, leanings, documents = 0, [], [], []
    for spread in spreads:
        more = spread.selection.size + spread.nodes.size
        if size + more <= MOST_REQUIREMENTS:
            size += more
            kept.append(spread)
    for weight, term in terms[: MOST_WISHES - len(kept)]:
        part = part_of(term, member.namespace)
        more = part_size(part)
        if size + more <= MOST_REQUIREMENTS:
            size += more
            leanings.append(Leaning(term.topologyKey, weight, Selection((part,), only_living=False)))
            documents.append((term.topologyKey, weight, *part_document(part, member)))
    document = ("wishes", member.namespace, [spread_document(spread) for spread in kept], documents)
    key = hashlib.sha256(msgspec.json.encode(document)).digest()
    return DomainWishes(key, tuple(kept), tuple(leanings))


def _terms(affinity: PodAffinity | None, name: str) -> Iterator[WeightedTerm]:
    stated = affinity.preferredDuringSchedulingIgnoredDuringExecution if affinity is not None else None
    where = f"spec.affinity.{name}.preferredDuringSchedulingIgnoredDuringExecution"
    for document in stated or ():
        try:
            term = msgspec.json.decode(document, type=WeightedTerm)
        except msgspec.MsgspecError as error:
            raise InputError(where, str(error), "cannot be read", _MEND) from error
        check_operators((term.podAffinityTerm.labelSelector, term.podAffinityTerm.namespaceSelector), where)
        if term.weight > 0:
            yield term
