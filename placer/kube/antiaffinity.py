"""Required anti-affinity of pods that already have a node: the domains that they close to a new pod.

Plimsoll's own pods with such rules are refused (`unhandled`), but other schedulers place such pods, and a new pod
must not break their rules. What always holds: a selector that cannot be decided from pods and nodes alone (of
namespaces, by their labels) counts as a match, so a new pod waits rather than breaks a rule.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from placer.core.fit import holds
from plimsoll.kube.models import Labels, NodeSelectorRequirement, Pod
from plimsoll.part.errors import InputError

REASON: Final = "node(s) didn't satisfy existing pods anti-affinity rules"


class _LabelSelector(msgspec.Struct, frozen=True):
    matchLabels: Labels | None = None  # noqa: N815 - the API's names
    matchExpressions: list[NodeSelectorRequirement] | None = None  # noqa: N815

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet all requirements; an empty selector selects everything."""
        if any(labels.get(key) != value for key, value in (self.matchLabels or {}).items()):
            return False
        return all(holds(one, labels, unknown=True) for one in self.matchExpressions or ())


class _Term(msgspec.Struct, frozen=True):
    topologyKey: str  # noqa: N815
    labelSelector: _LabelSelector | None = None  # noqa: N815
    namespaces: list[str] | None = None
    namespaceSelector: _LabelSelector | None = None  # noqa: N815


@dataclass(frozen=True, slots=True)
class Keepout:
    """One rule of one pod. New pods that the rule selects stay out of the pod's own domain of `topology_key`."""

    topology_key: str
    _term: _Term
    _namespace: str

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
        terms = [msgspec.json.decode(document, type=_Term) for document in documents or ()]
    except msgspec.MsgspecError as error:
        where = f"pod {pod.metadata.namespace}/{pod.metadata.name}: spec.affinity.podAntiAffinity"
        raise InputError(where, str(error), "cannot be read", "mend the rule, or delete the pod") from error
    return tuple(Keepout(term.topologyKey, term, pod.metadata.namespace) for term in terms)


def forbidden_domains(
    newcomer: Pod, rules: Iterable[tuple[Keepout, Mapping[str, str]]]
) -> frozenset[tuple[str, str]]:
    """The domains where a new pod must not go, as pairs of a node label's key and value.

    Args:
        newcomer: the pod to place.
        rules: the rules of every pod with a node, each with the labels of that node.
    """
    return frozenset(
        (rule.topology_key, labels[rule.topology_key])
        for rule, labels in rules
        if rule.topology_key in labels and rule.selects(newcomer)
    )
