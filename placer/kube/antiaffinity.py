"""Required anti-affinity of pods that already have a node: the domains that they close to a new pod.

Plimsoll's own pods with such rules are refused (`unhandled`), but other schedulers place such pods, and a new pod
must not break their rules. What always holds: a selector that cannot be decided from pods and nodes alone (of
namespaces, by their labels) counts as a match, so a new pod waits rather than breaks a rule.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from placer.core.selector import check_of
from plimsoll.kube.models import Labels, NodeSelectorRequirement, Pod
from plimsoll.part.errors import InputError

REASON: Final = "node(s) didn't satisfy existing pods anti-affinity rules"


class LabelSelector(msgspec.Struct, frozen=True):
    """A `metav1.LabelSelector`."""

    matchLabels: Labels | None = None  # noqa: N815 - the API's names
    matchExpressions: list[NodeSelectorRequirement] | None = None  # noqa: N815

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet all requirements; an empty selector selects everything."""
        if any(labels.get(key) != value for key, value in (self.matchLabels or {}).items()):
            return False
        return all(check_of(one, unknown=True)(labels) for one in self.matchExpressions or ())


class _Term(msgspec.Struct, frozen=True):
    topologyKey: str  # noqa: N815
    labelSelector: LabelSelector | None = None  # noqa: N815
    namespaces: list[str] | None = None
    namespaceSelector: LabelSelector | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class Keepout:
    """A rule of a pod. New pods that the rule selects stay out of the pod's own domain of `topology_key`.

    Pods of one Deployment have equal rules.
    """

    _document: bytes
    _namespace: str
    topology_key: str = field(compare=False)
    _term: _Term = field(compare=False)

    def selects(self, newcomer: Pod) -> bool:
        """Whether the rule keeps this new pod out."""
        selector = self._term.labelSelector  # without one, no pod is selected
        return (
            selector is not None
            and self._covers(newcomer.metadata.namespace)
            and selector.selects(newcomer.metadata.labels or {})
        )

    def _covers(self, namespace: str) -> bool:
        named, selector = self._term.namespaces or (), self._term.namespaceSelector
        if selector is not None:
            return (
                True  # an empty selector selects all namespaces; any other reads labels that are unknown here
            )
        return namespace in (named or (self._namespace,))


def keepouts_of(pod: Pod) -> tuple[Keepout, ...]:
    """The rules of a pod; nearly all pods have none.

    Raises:
        InputError: a rule cannot be read.
    """
    affinity = pod.spec.affinity.podAntiAffinity if pod.spec.affinity else None
    documents = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    try:
        terms = [(bytes(document), msgspec.json.decode(document, type=_Term)) for document in documents or ()]
    except msgspec.MsgspecError as error:
        where = f"pod {pod.metadata.namespace}/{pod.metadata.name}: spec.affinity.podAntiAffinity"
        raise InputError(where, str(error), "cannot be read", "mend the rule, or delete the pod") from error
    namespace = pod.metadata.namespace
    return tuple(Keepout(document, namespace, term.topologyKey, term) for document, term in terms)


_SELECTIONS: Final = 1000
"""Labels of newcomers whose rules are kept. Pods of one Deployment have the same labels, so few are enough."""


@dataclass(frozen=True, slots=True)
class Closed:
    """The domains that are closed to one newcomer.

    Attributes:
        rules: the rules that select the newcomer.
        serial: grows with each domain that a rule closes or opens.
    """

    rules: tuple[tuple[str, Mapping[str, int]], ...]
    serial: int

    def closes(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is in such a domain."""
        return any(labels.get(key) in domains for key, domains in self.rules)

    @property
    def state(self) -> Hashable:
        """Equal for pods, and at times, for which the same domains are closed."""
        return (tuple(id(domains) for _, domains in self.rules), self.serial) if self.rules else None


class Keepouts:
    """The rules of all pods with a node, by the domains that they close."""

    def __init__(self) -> None:
        self._domains: dict[Keepout, Counter[str]] = {}
        self._selecting: dict[Hashable, tuple[Keepout, ...]] = {}
        self._serial = 0

    def add(self, rules: Iterable[Keepout], labels: Mapping[str, str]) -> None:
        """Count the rules of a pod on a node with these labels."""
        for rule in rules:
            domain = labels.get(rule.topology_key)
            if domain is None:
                continue
            if rule not in self._domains:
                self._domains[rule] = Counter()
                self._selecting.clear()
            self._domains[rule][domain] += 1
            self._serial += self._domains[rule][domain] == 1

    def remove(self, rules: Iterable[Keepout], labels: Mapping[str, str]) -> bool:
        """Stop counting rules that were added with these labels; returns whether that opens a domain."""
        before = self._serial
        for rule in rules:
            domain = labels.get(rule.topology_key)
            if domain is None:
                continue
            domains = self._domains[rule]
            domains[domain] -= 1
            if not domains[domain]:
                del domains[domain]
                self._serial += 1
            if not domains:
                del self._domains[rule]
                self._selecting.clear()
        return self._serial != before

    def close(
        self, newcomer: Pod, labels: Mapping[str, str], without: Iterable[tuple[Keepout, ...]] = ()
    ) -> bool:
        """Whether a rule keeps a new pod out of a node with these labels.

        Args:
            newcomer: the new pod.
            labels: the node's.
            without: the rules of pods on that node which are supposed to be gone.
        """
        gone = Counter(rule for rules in without for rule in rules)
        if not gone:
            return self.closed_to(newcomer).closes(labels)
        return any(
            rule.selects(newcomer) and domains[labels.get(rule.topology_key, "")] > gone[rule]
            for rule, domains in self._domains.items()
        )

    def closed_to(self, newcomer: Pod) -> Closed:
        """The domains where a new pod must not go."""
        if not self._domains:
            return Closed((), self._serial)
        meta = newcomer.metadata
        key = (meta.namespace, frozenset((meta.labels or {}).items()))
        rules = self._selecting.get(key)
        if rules is None:
            if len(self._selecting) >= _SELECTIONS:
                self._selecting.clear()
            rules = self._selecting[key] = tuple(rule for rule in self._domains if rule.selects(newcomer))
        return Closed(tuple((rule.topology_key, self._domains[rule]) for rule in rules), self._serial)
