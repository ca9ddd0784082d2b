"""Selectors of pods, by labels and by namespaces, read once from the API's form.

What always holds: two selectors with the same requirements are equal, in whatever order and form their author wrote
these. Follows `k8s.io/apimachinery/pkg/apis/meta/v1.LabelSelectorAsSelector`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from placer.core.selector import Check, check_of
from plimsoll.kube.models import LabelSelector, NodeSelectorRequirement, Pod

Requirement = tuple[str, str, frozenset[str]]
"""Key, operator, values."""

LabelsOf = Callable[[str], Mapping[str, str]]
"""The labels of a namespace; none for a namespace that is not known."""

OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})  # codespell:ignore notin
"""The operators that a label selector may have."""


@dataclass(frozen=True, slots=True)
class Member:
    """A pod as selectors see it.

    Attributes:
        namespace: its namespace.
        labels: its labels.
        is_ending: whether it is being deleted.
    """

    namespace: str
    labels: Mapping[str, str]
    is_ending: bool = False


@dataclass(frozen=True, slots=True)
class LabelRule:
    """A label selector.

    Attributes:
        requirements: those that must all hold; None for a selector that selects nothing.
    """

    requirements: frozenset[Requirement] | None
    _checks: tuple[Check, ...] = field(compare=False, repr=False)

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet all requirements; a selector without requirements selects everything."""
        return self.requirements is not None and all(check(labels) for check in self._checks)

    @property
    def document(self) -> list[tuple[str, str, list[str]]] | None:
        """The requirements in a fixed order, as JSON can hold them."""
        if self.requirements is None:
            return None
        return sorted((key, operator, sorted(values)) for key, operator, values in self.requirements)


NOTHING: Final = LabelRule(None, ())
"""The selector that selects nothing."""


def label_rule(
    selector: LabelSelector | None, more: Iterable[Requirement] = (), *, unknown: bool = False
) -> LabelRule:
    """A selector in the form in which it is used.

    Args:
        selector: the selector in the API's form; None selects nothing.
        more: further requirements, which must hold too.
        unknown: the result of a requirement with an operator that is not known here.
    """
    if selector is None:
        return NOTHING
    written = selector.matchExpressions or ()
    requirements: frozenset[Requirement] = frozenset(
        {
            *((key, "In", frozenset((value,))) for key, value in (selector.matchLabels or {}).items()),
            *((one.key, one.operator, frozenset(one.values or ())) for one in written),
            *more,
        }
    )
    checks = [
        check_of(NodeSelectorRequirement(key, operator, list(values)), unknown=unknown)
        for key, operator, values in requirements
    ]
    return LabelRule(requirements, tuple(checks))


@dataclass(frozen=True, slots=True)
class NamespaceScope:
    """The namespaces that a rule is about.

    Attributes:
        names: those that are named.
        selector: selects further ones by their labels; None selects none.
    """

    names: frozenset[str]
    selector: LabelRule | None = None

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the rule is about this namespace, which has these labels."""
        return namespace in self.names or (self.selector is not None and self.selector.selects(labels))

    def heeds(self, namespace: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Whether other labels of a namespace bring it in or out."""
        return self.covers(namespace, before) != self.covers(namespace, after)


def namespace_scope(
    names: Iterable[str] | None,
    selector: LabelSelector | None,
    own: str,
    *,
    unknown: bool = False,
) -> NamespaceScope:
    """The namespaces of an affinity term; `own` is its pod's namespace, which counts if the term gives none."""
    if not names and selector is None:
        return NamespaceScope(frozenset((own,)))
    return NamespaceScope(
        frozenset(names or ()), None if selector is None else label_rule(selector, unknown=unknown)
    )


SelectorPart = tuple[NamespaceScope, LabelRule]
"""The namespaces and the labels of the pods that one term is about."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The pods that a rule counts: those that all of its parts select.

    Attributes:
        parts: namespaces and labels.
        only_living: pods that are being deleted do not count.
    """

    parts: tuple[SelectorPart, ...]
    only_living: bool

    def selects(self, namespace: str, labels: Mapping[str, str], labels_of: LabelsOf) -> bool:
        """Whether pods of this namespace with these labels count."""
        return all(
            _covers(scope, namespace, labels_of) and rule.selects(labels) for scope, rule in self.parts
        )

    def counts(self, member: Member, labels_of: LabelsOf) -> bool:
        """Whether a pod counts."""
        if self.only_living and member.is_ending:
            return False
        return self.selects(member.namespace, member.labels, labels_of)

    def heeds(self, namespace: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Whether other labels of a namespace may change the pods that count."""
        return any(scope.heeds(namespace, before, after) for scope, _ in self.parts)

    @property
    def namespaces(self) -> frozenset[str] | None:
        """The only namespaces whose pods count; None if these are not named."""
        named = [scope.names for scope, _ in self.parts if scope.selector is None]
        return frozenset.intersection(*named) if named else None

    @property
    def anchor(self) -> tuple[str, str] | None:
        """A label that each counted pod has; None if the selectors name none."""
        for _, rule in self.parts:
            for key, operator, values in sorted(rule.requirements or (), key=lambda one: one[:2]):
                if operator == "In" and len(values) == 1:
                    return key, next(iter(values))
        return None

    @property
    def size(self) -> int:
        """The number of requirements."""
        return sum(len(rule.requirements or ()) for _, rule in self.parts)


def member_of(pod: Pod) -> Member:
    """A pod as selectors see it."""
    meta = pod.metadata
    return Member(meta.namespace, meta.labels or {}, meta.deletionTimestamp is not None)


def _covers(scope: NamespaceScope, namespace: str, labels_of: LabelsOf) -> bool:
    if namespace in scope.names or scope.selector is None:
        return namespace in scope.names
    # For the rules of a new pod, kube-scheduler 1.36 looks up the namespaces that a selector selects, and applies the
    # selector to no labels at all as well. So a selector that asks for a label's absence covers every namespace.
    return scope.covers(namespace, labels_of(namespace)) or scope.covers(namespace, {})
