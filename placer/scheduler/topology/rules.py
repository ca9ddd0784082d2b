"""A pod's own rules about other pods: spread constraints that must hold, and required affinity and anti-affinity.

What always holds: rules with the same key get the same answer on each node.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import msgspec

from placer.core.selector import LabelledNode, Selector
from placer.core.tolerations import Tolerations
from placer.scheduler.pods.node_rules import NodeRules
from placer.scheduler.topology.selectors import (
    OPERATORS,
    Member,
    NamespaceScope,
    Requirement,
    Selection,
    SelectorPart,
    label_rule,
    member_of,
    namespace_scope,
)
from plimsoll.contract import asks_gpu
from plimsoll.kube.models import LabelSelector, Pod, PodAffinity
from plimsoll.part.errors import InputError

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
MOST_RULES: Final = 64
"""The rules that one pod may have. Each keeps counts of its own, and each is checked on each node."""
MOST_REQUIREMENTS: Final = 256
"""The requirements of all selectors of a pod's rules, on pods and on nodes together. Each pod with new labels, and
each node that changes, is compared with the rules in use."""
_KeyedPart = tuple[str, SelectorPart]
"""A term's topology key, and the pods that it is about."""
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_SPREAD: Final = "spec.topologySpreadConstraints"
_MEND: Final = "mend the rule, or let kube-scheduler place the pod (spec.schedulerName)"


class Constraint(msgspec.Struct, frozen=True):
    """A `topologySpreadConstraints` entry."""

    maxSkew: int  # noqa: N815 - the API's names
    topologyKey: str  # noqa: N815
    whenUnsatisfiable: str = ""  # noqa: N815
    labelSelector: LabelSelector | None = None  # noqa: N815
    minDomains: int | None = None  # noqa: N815
    nodeAffinityPolicy: str | None = None  # noqa: N815
    nodeTaintsPolicy: str | None = None  # noqa: N815
    matchLabelKeys: list[str] | None = None  # noqa: N815


class PodTerm(msgspec.Struct, frozen=True):
    """A required term of affinity or anti-affinity. The API server has merged its `matchLabelKeys` already."""

    topologyKey: str  # noqa: N815
    labelSelector: LabelSelector | None = None  # noqa: N815
    namespaces: list[str] | None = None
    namespaceSelector: LabelSelector | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """The nodes that count for a rule.

    Attributes:
        keys: the topology keys that the node must have.
        places: equal for pods that select the same nodes; None where the selectors do not matter.
        tolerated: equal for pods that tolerate the same taints; None where taints do not matter.
    """

    keys: frozenset[str]
    places: bytes | None = None
    tolerated: bytes | None = None
    _selector: Selector | None = field(default=None, compare=False)
    _tolerations: Tolerations | None = field(default=None, compare=False)

    def admits(self, offer: LabelledNode) -> bool:
        """Whether pods on this node count, and its domain is one of the rule's."""
        labels = offer.node.metadata.labels or {}
        if not labels.keys() >= self.keys:
            return False
        if self._selector is not None and not self._selector.selects(offer.traits):
            return False
        tolerations = self._tolerations
        return tolerations is None or all(
            tolerations.tolerate(taint)
            for taint in offer.node.spec.taints or ()
            if taint.effect in _REPELLING
        )

    @property
    def size(self) -> int:
        """The number of requirements that a node is checked for."""
        return len(self.keys) + (self._selector.checks if self._selector is not None else 0)


@dataclass(frozen=True, slots=True)
class Spread:
    """A constraint: the counts of a domain and of the emptiest one differ by no more than `max_skew`.

    Attributes:
        topology_key: the label whose values are the domains.
        max_skew: the largest difference, with the new pod counted where it selects itself; 1 or more.
        min_domains: with fewer domains than this, the emptiest one counts as empty; 1 or more.
        selects_self: the new pod counts.
        selection: the pods that count.
        nodes: the nodes that count.
    """

    topology_key: str
    max_skew: int
    min_domains: int
    selects_self: bool
    selection: Selection
    nodes: NodeFilter


@dataclass(frozen=True, slots=True)
class DomainRules:
    """A pod's rules.

    Attributes:
        member: the pod itself.
        key: equal for pods with the same answers; empty for a pod without rules.
        spreads: its spread constraints that must hold.
        beside: the topology keys of its affinity; each node it may go to has them all.
        beside_pods: the pods that its affinity means; None without affinity.
        apart: by anti-affinity term, the topology key and the pods that must not be in the domain.
    """

    member: Member
    key: bytes = b""
    spreads: tuple[Spread, ...] = ()
    beside: tuple[str, ...] = ()
    beside_pods: Selection | None = None
    apart: tuple[tuple[str, Selection], ...] = ()

    @property
    def count(self) -> int:
        """The number of rules."""
        return len(self.spreads) + len(self.beside) + len(self.apart)

    @property
    def pairs(self) -> list[tuple[str, NodeFilter, Selection]]:
        """By spread constraint, affinity term and anti-affinity term: its key, the nodes and the pods that count."""
        pairs = [(spread.topology_key, spread.nodes, spread.selection) for spread in self.spreads]
        if self.beside_pods is not None:
            pairs += [(key, NodeFilter(frozenset((key,))), self.beside_pods) for key in self.beside]
        return pairs + [(key, NodeFilter(frozenset((key,))), selection) for key, selection in self.apart]


def domain_rules_of(pod: Pod, rules: NodeRules) -> DomainRules:
    """A pod's rules about other pods.

    Args:
        pod: the pod.
        rules: its rules about its node.

    Raises:
        InputError: a rule cannot be read, or there are more than `MOST_RULES`, or than `MOST_REQUIREMENTS` in them.
    """
    member = member_of(pod)
    affinity = pod.spec.affinity
    beside = _terms(affinity.podAffinity, "podAffinity") if affinity is not None else ()
    apart = _terms(affinity.podAntiAffinity, "podAntiAffinity") if affinity is not None else ()
    constraints = constraints_of(pod, DO_NOT_SCHEDULE)
    count = len(beside) + len(apart) + len(constraints)
    if not count:
        return DomainRules(member)
    if count > MOST_RULES:
        _refuse_too_many(f"rules are more than the {MOST_RULES} that are handled", count, pod)
    spreads = spreads_of(pod, member, constraints, rules)
    beside_parts = [(term.topologyKey, part_of(term, member.namespace)) for term in beside]
    apart_parts = [(term.topologyKey, part_of(term, member.namespace)) for term in apart]
    size = _size(spreads, (part for _, part in (*beside_parts, *apart_parts)))
    if size > MOST_REQUIREMENTS:
        _refuse_too_many(f"requirements are more than the {MOST_REQUIREMENTS} that are handled", size, pod)
    return _rules_of_parts(member, spreads, beside_parts, apart_parts)


def _rules_of_parts(
    member: Member, spreads: tuple[Spread, ...], beside: Sequence[_KeyedPart], apart: Sequence[_KeyedPart]
) -> DomainRules:
    document = (
        member.namespace,
        [spread_document(spread) for spread in spreads],
        [(key, *part_document(part, member)) for key, part in beside],
        [(key, *part_document(part, member)) for key, part in apart],
    )
    parts = tuple(part for _, part in beside)
    return DomainRules(
        member,
        hashlib.sha256(msgspec.json.encode(document)).digest(),
        spreads,
        tuple(key for key, _ in beside),
        Selection(parts, only_living=False) if parts else None,
        tuple((key, Selection((part,), only_living=False)) for key, part in apart),
    )


def _refuse_too_many(problem: str, count: int, pod: Pod) -> NoReturn:
    remedy = "remove some"
    if not asks_gpu(pod):  # no other scheduler knows anything of a pod's GPUs
        remedy += ", or let kube-scheduler place the pod (spec.schedulerName)"
    raise InputError("spec: spread constraints and affinity terms", str(count), problem, remedy)


def _size(spreads: Iterable[Spread], parts: Iterable[SelectorPart]) -> int:
    """The number of requirements on pods and nodes."""
    size = sum(spread.selection.size + spread.nodes.size for spread in spreads)
    return size + sum(part_size(part) for part in parts)


def read_terms(documents: Sequence[msgspec.Raw] | None, where: str) -> tuple[PodTerm, ...]:
    """Required terms of affinity or anti-affinity.

    Raises:
        InputError: a term cannot be read.
    """
    try:
        return tuple(msgspec.json.decode(document, type=PodTerm) for document in documents or ())
    except msgspec.MsgspecError as error:
        raise InputError(where, str(error), "cannot be read", _MEND) from error


def _terms(affinity: PodAffinity | None, name: str) -> tuple[PodTerm, ...]:
    if affinity is None:
        return ()
    where = f"spec.affinity.{name}"
    terms = read_terms(affinity.requiredDuringSchedulingIgnoredDuringExecution, where)
    for term in terms:
        check_operators((term.labelSelector, term.namespaceSelector), where)
    return terms


def constraints_of(pod: Pod, when_unsatisfiable: str) -> tuple[Constraint, ...]:
    """The spread constraints of a pod of one kind.

    Raises:
        InputError: a constraint cannot be read.
    """
    documents: Iterable[dict[str, Any]] = pod.spec.topologySpreadConstraints or ()
    meant = [one for one in documents if one.get("whenUnsatisfiable") == when_unsatisfiable]
    try:
        read = tuple(msgspec.convert(one, Constraint) for one in meant)
    except msgspec.MsgspecError as error:
        raise InputError(_SPREAD, str(error), "cannot be read", _MEND) from error
    for constraint in read:
        check_operators((constraint.labelSelector,), _SPREAD)
    return read


def check_operators(selectors: Iterable[LabelSelector | None], where: str) -> None:
    """Check that label selectors can be read.

    Raises:
        InputError: a selector has an operator that label selectors do not have.
    """
    for selector in selectors:
        for one in (selector.matchExpressions or ()) if selector is not None else ():
            if one.operator not in OPERATORS:
                raise InputError(where, one.operator, "is no operator of a label selector", _MEND)


def spreads_of(
    pod: Pod, member: Member, constraints: Sequence[Constraint], rules: NodeRules
) -> tuple[Spread, ...]:
    """Spread constraints of one kind, with the pods and nodes that count. Each such node has all of their keys."""
    keys = frozenset(constraint.topologyKey for constraint in constraints)
    affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    selects = bool(pod.spec.nodeSelector or required is not None)
    places = _digest((pod.spec.nodeSelector, required)) if selects else None
    tolerated = _digest(pod.spec.tolerations or ())
    found = []
    for constraint in constraints:
        honors_places = constraint.nodeAffinityPolicy in (None, "Honor") and selects
        honors_taints = constraint.nodeTaintsPolicy == "Honor"
        nodes = NodeFilter(
            keys,
            places if honors_places else None,
            tolerated if honors_taints else None,
            rules.selector if honors_places else None,
            rules.tolerations if honors_taints else None,
        )
        found.append(_spread(constraint, member, nodes))
    return tuple(found)


def _spread(constraint: Constraint, member: Member, nodes: NodeFilter) -> Spread:
    rule = label_rule(constraint.labelSelector, _own_labels(constraint, member))
    # kube-scheduler counts no pod for a selector without requirements, and yet lets it select the new pod.
    counted = rule if rule.requirements else label_rule(None)
    return Spread(
        constraint.topologyKey,
        constraint.maxSkew,
        constraint.minDomains if constraint.minDomains is not None else 1,
        rule.selects(member.labels),
        Selection(((NamespaceScope(frozenset((member.namespace,))), counted),), only_living=True),
        nodes,
    )


def _own_labels(constraint: Constraint, member: Member) -> Iterator[Requirement]:
    """The requirements of `matchLabelKeys`; an API server of 1.34 or later has merged them already."""
    for key in constraint.matchLabelKeys or ():
        if key in member.labels:
            yield key, "In", frozenset((member.labels[key],))


def part_of(term: PodTerm, own: str) -> SelectorPart:
    """The namespaces and the labels of a term's pods; `own` is its pod's namespace."""
    return namespace_scope(term.namespaces, term.namespaceSelector, own), label_rule(term.labelSelector)


def part_size(part: SelectorPart) -> int:
    """The number of requirements of a term."""
    scope, rule = part
    named = len(scope.selector.requirements or ()) if scope.selector is not None else 0
    return named + len(rule.requirements or ())


def part_document(part: SelectorPart, member: Member) -> tuple[object, ...]:
    """All that answers depend on: also whether the term selects its own pod by labels."""
    scope, rule = part
    spaces = scope.selector.document if scope.selector is not None else False
    return sorted(scope.names), spaces, rule.document, rule.selects(member.labels)


def spread_document(spread: Spread) -> tuple[object, ...]:
    """All that answers about a spread constraint depend on, as JSON can hold it."""
    nodes = spread.nodes
    ((_, rule),) = spread.selection.parts
    limits = (spread.topology_key, spread.max_skew, spread.min_domains, spread.selects_self)
    return (*limits, rule.document, sorted(nodes.keys), nodes.places, nodes.tolerated)


def _digest(document: object) -> bytes:
    return hashlib.sha256(msgspec.json.encode(document, order="sorted")).digest()
