"""Required anti-affinity of pods that already have a node: the domains that they close to a new pod.

A new pod must not break the rules of the pods that are there, whichever scheduler placed them. What always holds: a
requirement that is not known here counts as met, so a new pod waits rather than breaks a rule.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from placer.scheduler.topology.counts import add
from placer.scheduler.topology.rules import PodTerm
from placer.scheduler.topology.selectors import (
    LabelRule,
    LabelsOf,
    Member,
    NamespaceScope,
    label_rule,
    member_of,
    namespace_scope,
)
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError

REASON: Final = "node(s) didn't satisfy existing pods anti-affinity rules"


@dataclass(frozen=True, slots=True)
class Keepout:
    """A rule of a pod. New pods that the rule selects stay out of the pod's own domain of `topology_key`.

    Pods of one Deployment have equal rules.
    """

    topology_key: str
    _scope: NamespaceScope
    _rule: LabelRule

    def selects(self, newcomer: Member, labels_of: LabelsOf) -> bool:
        """Whether the rule keeps this new pod out."""
        if not self._rule.selects(newcomer.labels):
            return False
        return self._scope.covers(newcomer.namespace, labels_of(newcomer.namespace))

    def heeds(self, namespace: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        """Whether other labels of a namespace bring its pods in or out."""
        return self._scope.heeds(namespace, before, after)


def keepouts_of(pod: Pod) -> tuple[Keepout, ...]:
    """The rules of a pod; nearly all pods have none.

    Raises:
        InputError: a rule cannot be read.
    """
    affinity = pod.spec.affinity.podAntiAffinity if pod.spec.affinity else None
    documents = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    try:
        terms = [msgspec.json.decode(document, type=PodTerm) for document in documents or ()]
    except msgspec.MsgspecError as error:
        where = f"pod {pod.full_name}: spec.affinity.podAntiAffinity"
        raise InputError(where, str(error), "cannot be read", "mend the rule, or delete the pod") from error
    namespace = pod.metadata.namespace
    return tuple(
        Keepout(
            term.topologyKey,
            namespace_scope(term.namespaces, term.namespaceSelector, namespace, unknown=True),
            label_rule(term.labelSelector, unknown=True),
        )
        for term in terms
    )


def readable_keepouts_of(pod: Pod) -> tuple[Keepout, ...]:
    """The rules of a pod; none if they cannot be read."""
    try:
        return keepouts_of(pod)
    except InputError:
        return ()


_SELECTIONS: Final = 1000
"""Labels of newcomers whose rules are kept. Pods of one Deployment have the same labels, so few are enough."""


@dataclass(slots=True)
class _Domains:
    """The domains that a rule closes, with its pods in each.

    Attributes:
        pods: the number of pods by domain.
        serial: the serial of the last domain that opened or closed.
        counted: the serial of the last pod that came or went.
    """

    pods: dict[str, int] = field(default_factory=dict)
    serial: int = 0
    counted: int = 0


@dataclass(frozen=True, slots=True)
class Closed:
    """The domains that are closed to one newcomer, by rule."""

    _rules: tuple[tuple[Keepout, _Domains], ...] = ()

    def closes(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is in such a domain."""
        return any(labels.get(rule.topology_key) in domains.pods for rule, domains in self._rules)

    def closing(self, labels: Mapping[str, str]) -> dict[Keepout, int]:
        """The rules that close a domain of a node with these labels, with the number of pods that have each."""
        found: dict[Keepout, int] = {}
        for rule, domains in self._rules:
            domain = labels.get(rule.topology_key)
            if domain is not None and domain in domains.pods:
                found[rule] = domains.pods[domain]
        return found

    @property
    def rules(self) -> Collection[Keepout]:
        """The rules that select the newcomer."""
        return tuple(rule for rule, _ in self._rules)

    @property
    def identity(self) -> Hashable:
        """Equal for newcomers that the same rules select."""
        return tuple(id(domains) for _, domains in self._rules)

    @property
    def state(self) -> Hashable:
        """Changes whenever one of these rules opens or closes a domain."""
        return tuple(domains.serial for _, domains in self._rules)

    @property
    def counts(self) -> Hashable:
        """Changes whenever a pod with one of these rules comes or goes."""
        return tuple(domains.counted for _, domains in self._rules)


class Keepouts:
    """The rules of all pods with a node, by the domains that they close.

    Args:
        labels_of: the labels of a namespace.
    """

    def __init__(self, labels_of: LabelsOf) -> None:
        self._labels_of = labels_of
        self._domains: dict[Keepout, _Domains] = {}
        self._selecting: dict[Hashable, Closed] = {}
        self._serial = 0

    def add(self, rules: Iterable[Keepout], labels: Mapping[str, str]) -> None:
        """Count the rules of a pod on a node with these labels."""
        for rule in rules:
            domain = labels.get(rule.topology_key)
            if domain is None:
                continue
            if rule not in self._domains:
                self._domains[rule] = _Domains()
                self._selecting.clear()
            self._shift(rule, domain, 1)

    def remove(self, rules: Iterable[Keepout], labels: Mapping[str, str]) -> set[Keepout]:
        """Stop counting rules that were added with these labels; returns those that opened a domain."""
        opened = set()
        for rule in rules:
            domain = labels.get(rule.topology_key)
            if domain is None:
                continue
            if self._shift(rule, domain, -1):
                opened.add(rule)
            if not self._domains[rule].pods:
                del self._domains[rule]
                self._selecting.clear()
        return opened

    def note_namespace(
        self, name: str, before: Mapping[str, str], after: Mapping[str, str]
    ) -> Collection[Keepout]:
        """Take other labels of a namespace; returns the rules that now select its pods or no longer do."""
        heeding = {rule for rule in self._domains if rule.heeds(name, before, after)}
        if heeding:
            self._selecting.clear()
        return heeding

    def closed_to(self, newcomer: Pod) -> Closed:
        """The domains where a new pod must not go."""
        if not self._domains:
            return Closed()
        meta = newcomer.metadata
        key = (meta.namespace, frozenset((meta.labels or {}).items()))
        closed = self._selecting.get(key)
        if closed is None:
            if len(self._selecting) >= _SELECTIONS:
                self._selecting.clear()
            member = member_of(newcomer)
            closed = self._selecting[key] = Closed(
                tuple(
                    (rule, domains)
                    for rule, domains in self._domains.items()
                    if rule.selects(member, self._labels_of)
                )
            )
        return closed

    def _shift(self, rule: Keepout, domain: str, by: int) -> bool:
        """Count a pod in a domain more or less; returns whether the domain opened or closed."""
        domains = self._domains[rule]
        was_closed = domain in domains.pods
        add(domains.pods, domain, by)
        self._serial += 1
        domains.counted = self._serial
        if was_closed == (domain in domains.pods):
            return False
        domains.serial = self._serial
        return True
