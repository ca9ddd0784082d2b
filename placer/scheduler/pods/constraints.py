"""A pod's constraints on the pods of a domain: spread constraints, and terms of affinity and anti-affinity.

Those that are required make a node fit or unfit. Those that are preferred score nodes. What always holds:
constraints with the same key get the same answer on each node.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NoReturn, TypeVar

import msgspec

from placer.core.label_selector import NOTHING, OPERATORS, Requirement, parse_selector
from placer.scheduler.pods.matching import (
    CountedPods,
    NodeInclusion,
    PodSelector,
    labels_of_pod,
)
from placer.scheduler.pods.node_rules import NodeRules
from plimsoll.contract import asks_gpu
from plimsoll.kube.models import LabelSelector, Pod
from plimsoll.part.errors import InputError

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
MOST_REQUIRED: Final = 64
"""The required constraints that one pod may have. Each has counts of its own, and is checked on each node."""
MOST_PREFERRED: Final = 16
"""The preferred constraints of one pod that have an effect: of spreading first, then the terms of most weight. Each
is looked up on each node that is read, and no known pod states this many. The others have none, and refuse no pod."""
MOST_REQUIREMENTS: Final = 256
"""The requirements of all selectors of a pod's constraints, on pods and on nodes together. Each pod with new labels,
and each node that changes, is compared with the constraints in use."""

T = TypeVar("T", bound="SpreadConstraint | AffinityTerm")
_Kind = Literal["podAffinity", "podAntiAffinity"]
_SPREAD: Final = "spec.topologySpreadConstraints"
_MEND: Final = "mend the rule, or let kube-scheduler place the pod (spec.schedulerName)"
_MEND_TERM: Final = "mend the term, or let kube-scheduler place the pod (spec.schedulerName)"


class _SpreadConstraint(msgspec.Struct, frozen=True):
    """A `topologySpreadConstraints` entry."""

    maxSkew: int  # noqa: N815 - the API's names
    topologyKey: str  # noqa: N815
    labelSelector: LabelSelector | None = None  # noqa: N815
    minDomains: int | None = None  # noqa: N815
    nodeAffinityPolicy: str | None = None  # noqa: N815
    nodeTaintsPolicy: str | None = None  # noqa: N815
    matchLabelKeys: list[str] | None = None  # noqa: N815


class _PodAffinityTerm(msgspec.Struct, frozen=True):
    """A term of affinity or anti-affinity. The API server has merged its `matchLabelKeys` already."""

    topologyKey: str  # noqa: N815
    labelSelector: LabelSelector | None = None  # noqa: N815
    namespaces: list[str] | None = None
    namespaceSelector: LabelSelector | None = None  # noqa: N815


class _WeightedPodAffinityTerm(msgspec.Struct, frozen=True):
    """A preferred term of affinity or anti-affinity; `weight` is 1–100."""

    podAffinityTerm: _PodAffinityTerm  # noqa: N815
    weight: int = 0


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """The counts of a domain and of the emptiest one differ by no more than `max_skew`.

    Attributes:
        topology_key: the label whose values are the domains.
        max_skew: the largest difference, with the new pod counted where it selects itself; 1 or more.
        min_domains: with fewer domains than this, the emptiest one counts as empty; 1 or more.
        selects_self: the new pod counts.
        pods: the pods that count.
        nodes: the nodes that count.
    """

    topology_key: str
    max_skew: int
    min_domains: int
    selects_self: bool
    pods: CountedPods
    nodes: NodeInclusion

    @property
    def size(self) -> int:
        """The number of requirements."""
        return self.pods.size + self.nodes.size


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A term of affinity or anti-affinity. Pods of one Deployment have equal terms.

    Attributes:
        topology_key: the label whose values are the domains.
        pods: the pods that the term is about.
        weight: for a preferred term the worth of each pod in the node's domain, below 0 for anti-affinity; else 0.
    """

    topology_key: str
    pods: PodSelector
    weight: int = 0

    @property
    def size(self) -> int:
        """The number of requirements."""
        return self.pods.size


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """A pod's constraints: those that are required, or those that are preferred.

    Attributes:
        namespace: the pod's.
        spread: its spread constraints.
        affinity: its required terms of affinity.
        anti_affinity: its required terms of anti-affinity.
        weighted: its preferred terms, the weightiest first.
        affine_to_self: the pod's labels meet all of its terms of affinity.
        is_required: whether the constraints make a node fit or unfit.
        key: equal for pods with the same answers; empty for a pod without constraints.
    """

    namespace: str = ""
    spread: tuple[SpreadConstraint, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    weighted: tuple[AffinityTerm, ...] = ()
    affine_to_self: bool = False
    is_required: bool = True
    key: bytes = b""

    @property
    def count(self) -> int:
        """The number of constraints."""
        return len(self.spread) + len(self.affinity) + len(self.anti_affinity) + len(self.weighted)

    @property
    def affine_pods(self) -> CountedPods:
        """The pods that the affinity is about: those that all of its terms select."""
        return CountedPods(tuple(term.pods for term in self.affinity))

    @property
    def counted(self) -> Iterator[tuple[str, NodeInclusion, CountedPods]]:
        """For each constraint its key, the nodes and the pods that count, in the order of the attributes."""
        for one in self.spread:
            yield one.topology_key, one.nodes, one.pods
        affine_pods = self.affine_pods
        for term in self.affinity:
            yield term.topology_key, NodeInclusion(frozenset((term.topology_key,))), affine_pods
        for term in (*self.anti_affinity, *self.weighted):
            yield term.topology_key, NodeInclusion(frozenset((term.topology_key,))), CountedPods((term.pods,))


NO_CONSTRAINTS: Final = PodConstraints()


def required_of(pod: Pod, rules: NodeRules) -> PodConstraints:
    """A pod's required constraints.

    Args:
        pod: the pod.
        rules: its rules about its node.

    Raises:
        InputError: a constraint cannot be read, or there are more than `MOST_REQUIRED`, or than `MOST_REQUIREMENTS`
            in them.
    """
    affinity = tuple(_required_terms(pod, "podAffinity"))
    anti_affinity = tuple(_required_terms(pod, "podAntiAffinity"))
    read = _read_spread(pod, DO_NOT_SCHEDULE)
    count = len(affinity) + len(anti_affinity) + len(read)
    if not count:
        return NO_CONSTRAINTS
    if count > MOST_REQUIRED:
        _refuse_too_many(f"rules are more than the {MOST_REQUIRED} that are handled", count, pod)
    spread = tuple(_spread_constraints(pod, read, rules))
    size = sum(one.size for one in spread) + sum(term.size for term in (*affinity, *anti_affinity))
    if size > MOST_REQUIREMENTS:
        _refuse_too_many(f"requirements are more than the {MOST_REQUIREMENTS} that are handled", size, pod)
    affine_to_self = all(term.pods.labels.matches(labels_of_pod(pod)) for term in affinity)
    return _keyed(
        PodConstraints(pod.metadata.namespace, spread, affinity, anti_affinity, affine_to_self=affine_to_self)
    )


def preferred_of(pod: Pod, rules: NodeRules) -> PodConstraints:
    """A pod's preferred constraints; see `required_of`.

    Raises:
        InputError: a constraint cannot be read.
    """
    if pod.spec.affinity is None and not pod.spec.topologySpreadConstraints:
        return NO_CONSTRAINTS  # as nearly all pods
    read = _read_spread(pod, SCHEDULE_ANYWAY)[:MOST_PREFERRED]
    terms = [*_preferred_terms(pod, "podAffinity", 1), *_preferred_terms(pod, "podAntiAffinity", -1)]
    terms.sort(key=lambda term: -abs(term.weight))
    spread, room = _within(_spread_constraints(pod, read, rules), MOST_REQUIREMENTS)
    weighted, _ = _within(terms[: MOST_PREFERRED - len(spread)], room)
    if not spread and not weighted:
        return NO_CONSTRAINTS
    return _keyed(PodConstraints(pod.metadata.namespace, spread, weighted=weighted, is_required=False))


def existing_anti_affinity_of(pod: Pod) -> tuple[AffinityTerm, ...]:
    """The required anti-affinity of a pod that has a node; nearly all pods have none.

    A requirement that is not known here counts as met, so a new pod waits rather than breaks a term.

    Raises:
        InputError: a term cannot be read.
    """
    where = f"pod {pod.full_name}: spec.affinity.podAntiAffinity"
    documents = _stated(pod, "podAntiAffinity", is_required=True)
    terms = _decoded(documents, _PodAffinityTerm, where, "mend the rule, or delete the pod")
    return tuple(_term(term, pod, unknown=True) for term in terms)


def readable_anti_affinity_of(pod: Pod) -> tuple[AffinityTerm, ...]:
    """The same; none if a term cannot be read."""
    try:
        return existing_anti_affinity_of(pod)
    except InputError:
        return ()


def _keyed(constraints: PodConstraints) -> PodConstraints:
    return replace(constraints, key=_digest(constraints))


def _digest(document: object) -> bytes:
    """A digest of all that compares; the functions that check requirements are left out."""
    return hashlib.sha256(msgspec.json.encode(document, order="sorted", enc_hook=lambda _: None)).digest()


def _within(constraints: Iterable[T], room: int) -> tuple[tuple[T, ...], int]:
    """The constraints that together have no more requirements than this, and the number that is left."""
    kept = []
    for one in constraints:
        if one.size <= room:
            room -= one.size
            kept.append(one)
    return tuple(kept), room


def _refuse_too_many(problem: str, count: int, pod: Pod) -> NoReturn:
    remedy = "remove some"
    if not asks_gpu(pod):  # no other scheduler knows anything of a pod's GPUs
        remedy += ", or let kube-scheduler place the pod (spec.schedulerName)"
    raise InputError("spec: spread constraints and affinity terms", str(count), problem, remedy)


def _read_spread(pod: Pod, when_unsatisfiable: str) -> list[_SpreadConstraint]:
    documents: Iterable[dict[str, Any]] = pod.spec.topologySpreadConstraints or ()
    meant = [one for one in documents if one.get("whenUnsatisfiable") == when_unsatisfiable]
    try:
        read = msgspec.convert(meant, list[_SpreadConstraint])
    except msgspec.MsgspecError as error:
        raise InputError(_SPREAD, str(error), "cannot be read", _MEND) from error
    _check_operators((one.labelSelector for one in read), _SPREAD)
    return read


def _spread_constraints(
    pod: Pod, read: Sequence[_SpreadConstraint], rules: NodeRules
) -> Iterator[SpreadConstraint]:
    """Spread constraints of one kind, with the pods and nodes that count. Each such node has all of their keys."""
    keys = frozenset(one.topologyKey for one in read)
    node_affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
    required = node_affinity.requiredDuringSchedulingIgnoredDuringExecution if node_affinity else None
    selects_nodes = bool(pod.spec.nodeSelector or required is not None)
    for one in read:
        heeds_affinity = one.nodeAffinityPolicy in (None, "Honor") and selects_nodes
        heeds_taints = one.nodeTaintsPolicy == "Honor"
        nodes = NodeInclusion(
            keys,
            _digest((pod.spec.nodeSelector, required)) if heeds_affinity else None,
            _digest(pod.spec.tolerations or ()) if heeds_taints else None,
            rules.selector if heeds_affinity else None,
            rules.tolerations if heeds_taints else None,
        )
        selector = parse_selector(one.labelSelector, _own_labels(one, pod))
        # kube-scheduler counts no pod for a selector without requirements, and yet lets it select the new pod.
        counted = selector if selector.requirements else NOTHING
        yield SpreadConstraint(
            one.topologyKey,
            one.maxSkew,
            one.minDomains if one.minDomains is not None else 1,
            selector.matches(labels_of_pod(pod)),
            CountedPods((PodSelector(frozenset((pod.metadata.namespace,)), counted),), only_living=True),
            nodes,
        )


def _own_labels(constraint: _SpreadConstraint, pod: Pod) -> Iterator[Requirement]:
    """The requirements of `matchLabelKeys`; an API server of 1.34 or later has merged them already."""
    labels = labels_of_pod(pod)
    for key in constraint.matchLabelKeys or ():
        if key in labels:
            yield key, "In", (labels[key],)


def _required_terms(pod: Pod, kind: _Kind) -> Iterator[AffinityTerm]:
    where = f"spec.affinity.{kind}"
    for term in _decoded(_stated(pod, kind, is_required=True), _PodAffinityTerm, where, _MEND):
        _check_operators((term.labelSelector, term.namespaceSelector), where)
        yield _term(term, pod)


def _preferred_terms(pod: Pod, kind: _Kind, sign: int) -> Iterator[AffinityTerm]:
    where = f"spec.affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution"
    for one in _decoded(_stated(pod, kind, is_required=False), _WeightedPodAffinityTerm, where, _MEND_TERM):
        term = one.podAffinityTerm
        _check_operators((term.labelSelector, term.namespaceSelector), where)
        if one.weight > 0:
            yield _term(term, pod, sign * one.weight)


def _stated(pod: Pod, kind: _Kind, *, is_required: bool) -> Sequence[msgspec.Raw]:
    stated = getattr(pod.spec.affinity, kind) if pod.spec.affinity is not None else None
    if stated is None:
        return ()
    required = stated.requiredDuringSchedulingIgnoredDuringExecution
    return (required if is_required else stated.preferredDuringSchedulingIgnoredDuringExecution) or ()


D = TypeVar("D")


def _decoded(documents: Iterable[msgspec.Raw], kind: type[D], where: str, remedy: str) -> list[D]:
    try:
        return [msgspec.json.decode(document, type=kind) for document in documents]
    except msgspec.MsgspecError as error:
        raise InputError(where, str(error), "cannot be read", remedy) from error


def _term(term: _PodAffinityTerm, pod: Pod, weight: int = 0, *, unknown: bool = False) -> AffinityTerm:
    """A term as it is used; for `unknown` see `parse_selector`."""
    labels = parse_selector(term.labelSelector, unknown=unknown)
    if not term.namespaces and term.namespaceSelector is None:
        return AffinityTerm(
            term.topologyKey, PodSelector(frozenset((pod.metadata.namespace,)), labels), weight
        )
    spaces = None
    if term.namespaceSelector is not None:
        spaces = parse_selector(term.namespaceSelector, unknown=unknown)
    return AffinityTerm(
        term.topologyKey, PodSelector(frozenset(term.namespaces or ()), labels, spaces), weight
    )


def _check_operators(selectors: Iterable[LabelSelector | None], where: str) -> None:
    """Check that selectors can be read: each operator is one that label selectors have."""
    for selector in selectors:
        for one in (selector.matchExpressions or ()) if selector is not None else ():
            if one.operator not in OPERATORS:
                raise InputError(where, one.operator, "is no operator of a label selector", _MEND)
