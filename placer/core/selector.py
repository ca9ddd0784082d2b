"""The nodes that a pod's `nodeSelector` and required node affinity select, read from the pod once.

A tenant may write a selector of a megabyte, and every node is checked against it. What always holds: the check of a
node costs one look-up for each requirement, however many values the requirement lists. Follows Kubernetes 1.36,
`component-helpers/scheduling/corev1/nodeaffinity`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from plimsoll.kube.models import Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod
from plimsoll.quantity import plain_int

_FIELD: Final = "field:"
"""The prefix of a field's key among a node's traits; no key of a label has a colon."""

Traits = Mapping[str, str]
"""A node's labels, and its fields under keys of their own."""

Check = Callable[[Traits], bool]
"""A requirement: whether a node with these traits meets it."""


class LabelledNode(Protocol):
    """A node as selectors and rules about labels read it."""

    @property
    def node(self) -> Node:
        """The node as the watch showed it."""

    @property
    def traits(self) -> Traits:
        """Its labels, and its fields."""


_number = lru_cache(maxsize=4096)(plain_int)  # many requirements compare with the same label


@dataclass(frozen=True, slots=True)
class Selector:
    """A pod's selectors.

    Attributes:
        labels: the labels that `nodeSelector` asks for.
        terms: the terms of the required affinity, each as its requirements. One term must hold, with all of its
            requirements. None for a pod without such an affinity.
        checks: the number of requirements.
        size: the number of labels, requirements and values that the pod's author wrote.
    """

    labels: Mapping[str, str]
    terms: tuple[tuple[Check, ...], ...] | None
    checks: int
    size: int

    def selects(self, traits: Traits) -> bool:
        """Whether a node with these traits is selected."""
        if not self.labels.items() <= traits.items():
            return False
        if self.terms is None:
            return True
        for term in self.terms:  # loops, because there may be ten thousands of terms
            for holds in term:
                if not holds(traits):
                    break
            else:
                return True
        return False


def selector_of(pod: Pod) -> Selector:
    """The selectors of a pod."""
    affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    terms = None if required is None else tuple(_terms(required))
    labels = pod.spec.nodeSelector or {}
    size = len(labels) + (_size(required) if required is not None else 0)
    return Selector(labels, terms, checks=sum(map(len, terms or ())), size=size)


def selector_from(required: NodeSelector) -> Selector:
    """A node selector that is not a pod's, such as that of a persistent volume."""
    terms = tuple(_terms(required))
    return Selector({}, terms, checks=sum(map(len, terms)), size=_size(required))


def traits_of(node: Node) -> Traits:
    """The traits of a node."""
    return {**(node.metadata.labels or {}), f"{_FIELD}metadata.name": node.metadata.name}


def checks_of(term: NodeSelectorTerm) -> tuple[Check, ...]:
    """The requirements of a term, which must all hold. Kubernetes: a term without any selects no node."""
    return tuple(
        [check_of(one) for one in term.matchExpressions or ()]
        + [check_of(one, _FIELD) for one in term.matchFields or ()]
    )


def check_of(requirement: NodeSelectorRequirement, prefix: str = "", *, unknown: bool = False) -> Check:
    """A requirement as a function.

    Args:
        requirement: the requirement in the API's form.
        prefix: stands before its key among the traits.
        unknown: the result for an operator that is not known here.
    """
    key, values = prefix + requirement.key, requirement.values or []
    match requirement.operator:
        case "In":
            listed = frozenset(values)
            return lambda traits: traits.get(key) in listed
        case "NotIn":  # codespell:ignore notin
            listed = frozenset(values)
            return lambda traits: traits.get(key) not in listed
        case "Exists":
            return lambda traits: key in traits
        case "DoesNotExist":
            return lambda traits: key not in traits
        case "Gt" | "Lt":
            return _comparison(key, values, 1 if requirement.operator == "Gt" else -1)
    return lambda _: unknown


def _comparison(key: str, values: list[str], sign: int) -> Check:
    bound = plain_int(values[0]) if len(values) == 1 else None
    if bound is None:
        return lambda _: False
    least = sign * bound

    def exceeds(traits: Traits) -> bool:
        number = _number(traits.get(key, ""))
        return number is not None and sign * number > least

    return exceeds


def _terms(selector: NodeSelector) -> Iterator[tuple[Check, ...]]:
    """The terms; all that only ask for one of some values of the same label become one."""
    listed: dict[str, list[str]] = {}
    for term in selector.nodeSelectorTerms:
        expressions, fields = term.matchExpressions or (), term.matchFields or ()
        if len(expressions) == 1 and not fields and expressions[0].operator == "In":
            listed.setdefault(expressions[0].key, []).extend(expressions[0].values or ())
        elif expressions or fields:  # Kubernetes: an empty term matches nothing
            yield checks_of(term)
    for key, values in listed.items():
        yield (check_of(NodeSelectorRequirement(key, "In", values)),)


def _size(selector: NodeSelector) -> int:
    return sum(
        1 + len(one.values or ())
        for term in selector.nodeSelectorTerms
        for one in (*(term.matchExpressions or ()), *(term.matchFields or ()))
    )
