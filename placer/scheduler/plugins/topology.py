"""PodTopologySpread and InterPodAffinity over one store of counts, and the dry run of both.

What always holds: assumed pods count as bound ones do, and each change that may let a pod in is announced.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, Self, TypeVar

from placer.core.fit import Needs, Offer
from placer.core.node_scores import NodeScore
from placer.scheduler.cache.nominator import Nominator
from placer.scheduler.plugins import inter_pod_affinity, pod_topology_spread
from placer.scheduler.plugins.inter_pod_affinity import (
    EXISTING_ANTI_AFFINITY,
    ExistingAntiAffinity,
    TermsAgainst,
)
from placer.scheduler.plugins.pod_counts.constraints import (
    AffinityTerm,
    PodConstraints,
    readable_anti_affinity_of,
)
from placer.scheduler.plugins.pod_counts.counts import (
    CountChanges,
    CountedConstraints,
    DomainCounts,
    MatchingPods,
)
from placer.scheduler.plugins.pod_counts.store import PodCounts
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod

T = TypeVar("T")

NodesWith = Callable[[tuple[str, str]], AbstractSet[NodeName]]
"""The nodes that have a label."""

_DOMAINS: Final = 16
"""The domains of a constraint among which the best are sought: all zones of a cluster, and enough nodes to choose
well."""
_NODES: Final = 64
"""The nodes of a domain that are read to find some that count."""
_SPAN: Final = 1024
"""The domains or nodes among which one choice after another moves on. Skipping all of them takes 10 µs."""


@dataclass(frozen=True, slots=True)
class Resident:
    """A pod with a node: its needs, and its required anti-affinity."""

    node: NodeName
    needs: Needs
    pod: Pod
    assumed: bool
    anti_affinity: tuple[AffinityTerm, ...] = ()

    def takes_as(self, other: "Resident") -> bool:
        """Whether both take the same from the same node, and have the same terms."""
        return (self.node, self.needs, self.anti_affinity) == (other.node, other.needs, other.anti_affinity)


class TopologyPlugins:
    """Both plugins over the nodes and pods of one cluster. The cache reports each change.

    Attributes:
        counts: the counts of pods by domain.
        has_terms: whether a bound or nominated pod has or had an anti-affinity term, so that answers may depend on
            labels.
    """

    def __init__(
        self,
        offers: Mapping[NodeName, Offer],
        residents: Mapping[PodUid, Resident],
        nominator: Nominator,
        on_first: Callable[[], None],
    ) -> None:
        """Know no constraint yet.

        Args:
            offers: the nodes that exist; the cache changes them.
            residents: the pods with a node; the cache changes them.
            nominator: the pods that are nominated for a node.
            on_first: called when the first pod with an anti-affinity term comes.
        """
        self._offers, self._residents, self._nominator = offers, residents, nominator
        self._on_first = on_first
        self._listeners: list[Callable[[Collection[Hashable]], None]] = []
        self.has_terms = False
        self.counts = PodCounts(offers, self._announce)
        self._existing = ExistingAntiAffinity(self.counts.labels_of)
        # By node, also one that does not exist: its pods close no domain.
        self._terms: defaultdict[NodeName, dict[PodUid, tuple[AffinityTerm, ...]]] = defaultdict(dict)

    def on_change(self, listener: Callable[[Collection[Hashable]], None]) -> None:
        """Call `listener` when a node may have become fit for pods by their constraints, or by other pods' terms.

        The argument has some of the `topics` of each such pod. The listener must not change the cluster.
        """
        self._listeners.append(listener)

    def terms_against(self, pod: Pod) -> TermsAgainst:
        """The anti-affinity terms of existing pods that select this pod."""
        return self._existing.against(pod)

    def state(self, pod: Pod, constraints: PodConstraints) -> tuple[Hashable, Hashable]:
        """The terms of other pods about this pod, and a value that changes whenever a node may be judged otherwise.

        A term of a nominated pod changes answers on the node of its nomination alone, which `Cache.changes` names.
        """
        against = self.terms_against(pod)
        nominated = tuple(
            term
            for term in self._nominator.anti_affinity
            if inter_pod_affinity.selects(term, pod, self.counts.labels_of)
        )
        own = self.counts.counted(constraints).state if constraints.key else None
        return (against.identity, nominated), (own, against.state)

    def topics(self, pod: Pod, constraints: PodConstraints) -> frozenset[Hashable]:
        """Names of the changes after which the constraints may let a pod in, see `on_change`."""
        own = (constraints.key,) if constraints.key else ()
        return frozenset((*own, *self.terms_against(pod).terms))

    def filter(self, pod: Pod, constraints: PodConstraints, name: NodeName) -> str | None:
        """The reason why constraints of this pod, or terms of others, keep the pod from a node; None if they do not.

        Nothing changes. The cost grows with the number of constraints.
        """
        labels = self.labels_of(name)
        reason = _filter(self.counts.counted(constraints), labels) if constraints.key else None
        if reason is None and self.terms_against(pod).blocking(labels):
            reason = EXISTING_ANTI_AFFINITY
        return reason

    def dry_run(
        self,
        pod: Pod,
        constraints: PodConstraints,
        name: NodeName,
        nominated: Collection[tuple[NodeName, Pod]] = (),
    ) -> "TopologyDryRun":
        """The answer of `filter` for a node with pods removed; good until a pod or a node changes.

        Args:
            pod: the pod.
            constraints: its required constraints.
            name: a node that exists.
            nominated: pods that may count as if they had these nodes.
        """
        return TopologyDryRun(self, pod, constraints, self.labels_of(name), nominated)

    def scores(self, constraints: PodConstraints) -> tuple[NodeScore, ...]:
        """The scores by preferred constraints with the counts of now; good until a pod or node changes."""
        counted = self.counts.known(constraints)
        if counted is None:
            return ()
        found = (pod_topology_spread.score(counted), inter_pod_affinity.score(counted))
        return tuple(one for one in found if one is not None)

    def promising(self, constraints: PodConstraints, nodes_with: NodesWith, most: int) -> list[NodeName]:
        """Nodes in domains that meet preferred constraints well, at most this many; they may be unfit.

        Calls after each other give different nodes where many are equal, so that no few nodes are filled first.
        """
        counted = self.counts.known(constraints)
        if counted is None:
            return []
        counted.searches += 1
        weights = [-1] * len(counted.spread) + [term.weight for term, _ in counted.weighted]
        each = max(1, most // len(counted.counts))
        found: dict[NodeName, None] = {}
        for weight, counts in zip(weights, counted.counts, strict=True):
            domains = _best_domains(counts, counted.searches, wants_many=weight > 0)
            found.update(
                dict.fromkeys(islice(_nodes_of(counts, domains, nodes_with, counted.searches * each), each))
            )
        return list(islice(found, most))

    def namespace_changed(self, name: str, labels: Mapping[str, str]) -> None:
        """Take the labels of a namespace; none for one that is gone."""
        before = self.counts.labels_of(name)
        self.counts.namespace_changed(name, labels)
        self._announce(self._existing.namespace_changed(name, before, labels))

    def node_changed(self, name: NodeName, before: Node | None, after: Node | None) -> None:
        """Count the pods of a node that came, changed or left. The cache has changed already."""
        if before is None or after is None or _counting(before) != _counting(after):
            self.counts.node_changed(name)
        old, new = _labels(before), _labels(after)
        if old != new and name in self._terms:
            terms = [term for terms in self._terms[name].values() for term in terms]
            self._existing.add(terms, new)
            self._announce(self._existing.remove(terms, old))

    def pod_assigned(self, uid: PodUid, resident: Resident) -> None:
        """Count a pod on its node, and let its anti-affinity terms close domains from now on."""
        self.counts.pod_changed(resident.node, None, resident.pod)
        if resident.anti_affinity:
            self._terms[resident.node][uid] = resident.anti_affinity
            self._existing.add(resident.anti_affinity, self.labels_of(resident.node))
            self.note_terms()

    def pod_unassigned(self, uid: PodUid, resident: Resident) -> None:
        """Stop counting a pod that was assigned."""
        self.counts.pod_changed(resident.node, resident.pod, None)
        if resident.anti_affinity:
            del self._terms[resident.node][uid]
            if not self._terms[resident.node]:
                del self._terms[resident.node]
            labels = self.labels_of(resident.node)
            self._announce(self._existing.remove(resident.anti_affinity, labels))

    def note_terms(self) -> None:
        """Note that a pod has an anti-affinity term, so that answers may depend on labels from now on."""
        if not self.has_terms:
            self.has_terms = True
            self._on_first()

    def resident(self, uid: PodUid) -> Resident | None:
        """A pod with a node."""
        return self._residents.get(uid)

    def labels_of(self, name: NodeName) -> Mapping[str, str]:
        """The labels of a node; none for a node that does not exist."""
        offer = self._offers.get(name)
        return {} if offer is None else _labels(offer.node)

    def _announce(self, topics: Collection[Hashable]) -> None:
        if topics:
            for listener in self._listeners:
                listener(topics)


@dataclass(frozen=True, slots=True)
class _Counted:
    """A pod, with all that its removal may change.

    Attributes:
        node: its node.
        matching: the sets of the new pod's constraints that it is in.
        blocking: its own terms that keep the new pod from the node.
    """

    node: NodeName
    matching: Collection[MatchingPods] = ()
    blocking: Collection[AffinityTerm] = ()


class TopologyDryRun:
    """One node for a new pod, with some pods removed, as by PreFilterExtensions in kube-scheduler.

    The sums are kept up to date as pods are removed and added again. What always holds: one pod costs at most a look
    at each constraint, and a check costs the same however many pods are removed. Nothing is changed outside.
    """

    def __init__(
        self,
        plugins: TopologyPlugins,
        pod: Pod,
        constraints: PodConstraints,
        labels: Mapping[str, str],
        nominated: Collection[tuple[NodeName, Pod]],
    ) -> None:
        """Remove no pod yet; see `TopologyPlugins.dry_run`. `labels` are the node's."""
        self._plugins, self._labels = plugins, labels
        self._own = plugins.counts.counted(constraints) if constraints.key else None
        self._all_blocking = plugins.terms_against(pod).blocking(labels)
        self._nominated = [
            _Counted(node, self._own.that_would_count(one) if self._own is not None else ())
            for node, one in nominated
        ]
        self._is_blocked_by_nominated = any(self._blocks(pod, *one) for one in nominated)
        self._pods: dict[PodUid, _Counted] = {}
        self.reset()

    def anew(self) -> "TopologyDryRun":
        """The same with no pod removed. Both take the same pods."""
        return copy(self).reset()

    def reset(self) -> Self:
        """Remove no pod any more."""
        self._blocking = dict(self._all_blocking)
        self._lifted = 0  # terms all of whose pods are removed
        self._changes, self._with_nominated = CountChanges(), CountChanges()
        for one in self._nominated:
            self._with_nominated.add(one.node, one.matching, 1)
        return self

    def remove_pod(self, uid: PodUid) -> None:
        """Stop counting a pod."""
        one = self._counted(uid)
        self._count(one, -1)
        for term in one.blocking:
            self._blocking[term] -= 1
            self._lifted += not self._blocking[term]

    def add_pod(self, uid: PodUid) -> None:
        """Count a pod that was removed."""
        one = self._counted(uid)
        self._count(one, 1)
        for term in one.blocking:
            self._lifted -= not self._blocking[term]
            self._blocking[term] += 1

    def filter(self) -> str | None:
        """The reason against the node without the pods that are removed, or None."""
        return self._reason(self._changes, is_blocked=False)

    def filter_with_nominated(self) -> str | None:
        """The reason against the node, were the nominated pods there too; or None."""
        return self._reason(self._with_nominated, is_blocked=self._is_blocked_by_nominated)

    def _reason(self, changes: CountChanges, *, is_blocked: bool) -> str | None:
        reason = _filter(self._own, self._labels, changes) if self._own is not None else None
        if reason is None and (is_blocked or len(self._blocking) > self._lifted):
            reason = EXISTING_ANTI_AFFINITY
        return reason

    def _count(self, one: _Counted, by: int) -> None:
        self._changes.add(one.node, one.matching, by)
        self._with_nominated.add(one.node, one.matching, by)

    def _counted(self, uid: PodUid) -> _Counted:
        """A pod as its removal counts; a pod without a node counts nowhere."""
        known = self._pods.get(uid)
        if known is None:
            resident = self._plugins.resident(uid)
            known = self._pods[uid] = _Counted(NodeName("")) if resident is None else self._of(resident)
        return known

    def _of(self, resident: Resident) -> _Counted:
        own, there = self._own, self._plugins.labels_of(resident.node)
        blocking = [
            term
            for term in resident.anti_affinity
            if term in self._all_blocking and there.get(term.topology_key) == self._labels[term.topology_key]
        ]
        matching = self._plugins.counts.that_count(own, resident.pod) if own is not None else ()
        return _Counted(resident.node, matching, blocking)

    def _blocks(self, pod: Pod, node: NodeName, nominated: Pod) -> bool:
        """Whether a term of a nominated pod, on its node, keeps the new pod from this node."""
        there, labels_of = self._plugins.labels_of(node), self._plugins.counts.labels_of
        return any(
            term.topology_key in self._labels
            and self._labels[term.topology_key] == there.get(term.topology_key)
            and inter_pod_affinity.selects(term, pod, labels_of)
            for term in readable_anti_affinity_of(nominated)
        )


def _filter(
    counted: CountedConstraints, labels: Mapping[str, str], changes: CountChanges | None = None
) -> str | None:
    """The reason of the first plugin that a node does not suit."""
    return pod_topology_spread.filter_node(counted, labels, changes) or inter_pod_affinity.filter_node(
        counted, labels, changes
    )


def _best_domains(counts: DomainCounts, turn: int, *, wants_many: bool) -> list[str]:
    """Domains with many or few pods, the best first."""
    pods = counts.pods
    if wants_many:
        return sorted(_window(pods, _DOMAINS, turn * _DOMAINS), key=lambda domain: -pods[domain])
    some = _window(counts.domains.sizes, _DOMAINS, turn * _DOMAINS)
    return sorted(some, key=lambda domain: pods.get(domain, 0))


def _nodes_of(
    counts: DomainCounts, domains: Collection[str], nodes_with: NodesWith, start: int
) -> Iterator[NodeName]:
    """Nodes of these domains that count."""
    for domain in domains:
        for node in _window(nodes_with((counts.domains.topology_key, domain)), _NODES, start):
            if node in counts.domains.by_node:
                yield node


def _window(things: Collection[T], most: int, start: int) -> Iterator[T]:
    """This many things, beginning at one of them; after the last comes the first."""
    if not things:
        return iter(())
    first = islice(things, start % min(len(things), _SPAN), None)
    return islice(chain(first, things), min(most, len(things)))


def _labels(node: Node | None) -> Mapping[str, str]:
    return {} if node is None else node.metadata.labels or {}


def _counting(node: Node) -> object:
    """All that decides for which constraints the pods on a node count."""
    return _labels(node), node.spec.taints
