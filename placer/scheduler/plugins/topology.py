"""PodTopologySpread and InterPodAffinity over one store of counts, and the dry run of both.

What always holds: assumed pods count as bound ones do, and each change that may let a pod in is announced.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from typing import ClassVar, Final, Self, TypeVar

from placer.core.node_scores import NodeScore
from placer.scheduler.cache.cache import Cache
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.plugins import inter_pod_affinity, pod_topology_spread
from placer.scheduler.plugins.inter_pod_affinity import (
    AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    ExistingAntiAffinity,
    TermsAgainst,
)
from placer.scheduler.plugins.pod_counts.counts import (
    CountChanges,
    CountedConstraints,
    DomainCounts,
    MatchingPods,
)
from placer.scheduler.plugins.pod_counts.store import PodCounts
from placer.scheduler.plugins.pod_topology_spread import NO_DOMAIN, SKEWED
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.pods.constraints import (
    AffinityTerm,
    PodConstraints,
    readable_anti_affinity_of,
)
from placer.scheduler.pods.nominator import Nomination
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import EVERYTHING, NOTHING, Cause
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod

T = TypeVar("T")

_DOMAINS: Final = 16
"""The domains of a constraint among which the best are sought: all zones of a cluster, and enough nodes to choose
well."""
_NODES: Final = 64
"""The nodes of a domain that are read to find some that count."""
_SPAN: Final = 1024
"""The domains or nodes among which one choice after another moves on. Skipping all of them takes 10 µs."""


class PodTopology(Plugin[PodInfo]):
    """A pod's own constraints on other pods, and the terms of others about it.

    Attributes:
        counts: the counts of pods by domain.
        has_terms: whether a bound or nominated pod has or had an anti-affinity term, so that answers may depend on
            labels.
    """

    name: ClassVar = "InterPodAffinity"
    causes: ClassVar = {
        EXISTING_ANTI_AFFINITY: Cause.RULES,
        SKEWED: Cause.RULES,
        AFFINITY: Cause.RULES,
        ANTI_AFFINITY: Cause.RULES,
        NO_DOMAIN: Cause.NODE,
    }
    resolvable: ClassVar = frozenset({EXISTING_ANTI_AFFINITY, ANTI_AFFINITY, SKEWED})

    def __init__(self, cache: Cache) -> None:
        """Follow the pods and nodes of a cache."""
        self._cache = cache
        self._listeners: list[Callable[[Collection[Hashable]], None]] = []
        self.has_terms = False
        self.counts = PodCounts(cache.infos, self._announce)
        self._existing = ExistingAntiAffinity(self.counts.labels_of)
        # By node, also one that does not exist: its pods close no domain.
        self._terms: defaultdict[NodeName, dict[PodUid, tuple[AffinityTerm, ...]]] = defaultdict(dict)
        cache.observers.append(self)

    def pre_filter(self, info: PodInfo) -> PodInfo:
        """The pod: terms of others may be about any pod."""
        return info

    def sign(self, info: PodInfo) -> object:  # noqa: ARG002 - see there
        """Nothing: `PodInfo.constraints.key` is a part of each signature, and see `state`."""
        return None

    def filter(self, wanted: PodInfo, node: NodeInfo) -> tuple[str, ...]:
        """The reason against a node, as it is and, as in kube-scheduler, with the pods that are nominated for it."""
        dry_run: TopologyDryRun | None = node.dry_run.get(self.name)
        name = NodeName(node.node.metadata.name)
        reason = (
            dry_run.problem() if dry_run is not None else self.problem(wanted.pod, wanted.constraints, name)
        )
        if reason is None and node.nominated:
            reason = (dry_run or self.dry_run(wanted, name, node.nominated)).problem_with_nominated()
        return () if reason is None else (reason,)

    def gains(self, node: Node, old: Node) -> Cause:
        """With other labels, the node may be in another domain."""
        return Cause.RULES | Cause.NODE if node.metadata.labels != old.metadata.labels else NOTHING

    def node_changed(self, name: NodeName, old: NodeInfo | None, now: NodeInfo | None) -> None:
        """Count the pods of a node that came, changed or left."""
        if old is None or now is None or _counting(old.node) != _counting(now.node):
            self.counts.node_changed(name)
        before, after = {} if old is None else old.labels, {} if now is None else now.labels
        if before != after and name in self._terms:
            terms = [term for terms in self._terms[name].values() for term in terms]
            self._existing.add(terms, after)
            self._announce(self._existing.remove(terms, before))

    def pod_changed(self, old: AssignedPod | None, now: AssignedPod | None) -> None:
        """Count a pod on its node, and let its anti-affinity terms close domains while it is there."""
        if old is not None and now is not None and old.takes_as(now):
            self.counts.pod_changed(now.node, old.pod, now.pod)
            return
        if old is not None:
            self.counts.pod_changed(old.node, old.pod, None)
            if old.anti_affinity:
                del self._terms[old.node][old.uid]
                if not self._terms[old.node]:
                    del self._terms[old.node]
                self._announce(self._existing.remove(old.anti_affinity, self.labels_of(old.node)))
        if now is not None:
            self.counts.pod_changed(now.node, None, now.pod)
            if now.anti_affinity:
                self._terms[now.node][now.uid] = now.anti_affinity
                self._existing.add(now.anti_affinity, self.labels_of(now.node))
                self._note_terms()

    def nomination_changed(self) -> None:
        """Heed labels once a nominated pod has an anti-affinity term."""
        if self._cache.nominator.anti_affinity:
            self._note_terms()

    def namespace_changed(self, name: str, labels: Mapping[str, str]) -> None:
        """Take the labels of a namespace; none for one that is gone."""
        before = self.counts.labels_of(name)
        self.counts.namespace_changed(name, labels)
        self._announce(self._existing.namespace_changed(name, before, labels))

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
            for term in self._cache.nominator.anti_affinity
            if inter_pod_affinity.selects(term, pod, self.counts.labels_of)
        )
        own = self.counts.counted(constraints).state if constraints.key else None
        return (against.identity, nominated), (own, against.state)

    def topics(self, pod: Pod, constraints: PodConstraints) -> frozenset[Hashable]:
        """Names of the changes after which the constraints may let a pod in, see `on_change`."""
        own = (constraints.key,) if constraints.key else ()
        return frozenset((*own, *self.terms_against(pod).terms))

    def problem(self, pod: Pod, constraints: PodConstraints, name: NodeName) -> str | None:
        """The reason why constraints of this pod, or terms of others, keep the pod from a node; None if they do not.

        Nothing changes. The cost grows with the number of constraints.
        """
        labels = self.labels_of(name)
        reason = _filter(self.counts.counted(constraints), labels) if constraints.key else None
        if reason is None and self.terms_against(pod).blocking(labels):
            reason = EXISTING_ANTI_AFFINITY
        return reason

    def dry_run(self, info: PodInfo, node: NodeName, nominated: Sequence[Nomination]) -> "TopologyDryRun":
        """The answer of `problem` for a node that exists, with pods removed; good until a pod or a node changes.

        The nominated pods may count as if they had the node.
        """
        pods = [(node, one.pod) for one in nominated]
        return TopologyDryRun(self, info.pod, info.constraints, self.labels_of(node), pods)

    def scores(self, constraints: PodConstraints) -> tuple[NodeScore, ...]:
        """The scores by preferred constraints with the counts of now; good until a pod or node changes."""
        counted = self.counts.known(constraints)
        if counted is None:
            return ()
        found = (pod_topology_spread.score(counted), inter_pod_affinity.score(counted))
        return tuple(one for one in found if one is not None)

    def promising(self, constraints: PodConstraints, most: int) -> list[NodeName]:
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
            nodes = self._nodes_of(counts, domains, counted.searches * each)
            found.update(dict.fromkeys(islice(nodes, each)))
        return list(islice(found, most))

    def _note_terms(self) -> None:
        """Note that a pod has an anti-affinity term. Pods with one answer may differ by labels from now on."""
        if not self.has_terms:
            self.has_terms = True
            self._cache.announce(None, EVERYTHING)

    def assigned(self, uid: PodUid) -> AssignedPod | None:
        """A pod with a node."""
        return self._cache.assigned.find(uid)

    def labels_of(self, name: NodeName) -> Mapping[str, str]:
        """The labels of a node; none for a node that does not exist."""
        return self._cache.labels_of(name) or {}

    def _nodes_of(self, counts: DomainCounts, domains: Collection[str], start: int) -> Iterator[NodeName]:
        """Nodes of these domains that count."""
        for domain in domains:
            having = self._cache.labels.having((counts.domains.topology_key, domain))
            for node in _window(having, _NODES, start):
                if node in counts.domains.by_node:
                    yield node

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
        plugin: PodTopology,
        pod: Pod,
        constraints: PodConstraints,
        labels: Mapping[str, str],
        nominated: Collection[tuple[NodeName, Pod]],
    ) -> None:
        """Remove no pod yet; see `PodTopology.dry_run`. `labels` are the node's."""
        self._plugin, self._labels = plugin, labels
        self._own = plugin.counts.counted(constraints) if constraints.key else None
        self._all_blocking = plugin.terms_against(pod).blocking(labels)
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

    def problem(self) -> str | None:
        """The reason against the node without the pods that are removed, or None."""
        return self._reason(self._changes, is_blocked=False)

    def problem_with_nominated(self) -> str | None:
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
            pod = self._plugin.assigned(uid)
            known = self._pods[uid] = _Counted(NodeName("")) if pod is None else self._of(pod)
        return known

    def _of(self, pod: AssignedPod) -> _Counted:
        own, there = self._own, self._plugin.labels_of(pod.node)
        blocking = [
            term
            for term in pod.anti_affinity
            if term in self._all_blocking and there.get(term.topology_key) == self._labels[term.topology_key]
        ]
        matching = self._plugin.counts.that_count(own, pod.pod) if own is not None else ()
        return _Counted(pod.node, matching, blocking)

    def _blocks(self, pod: Pod, node: NodeName, nominated: Pod) -> bool:
        """Whether a term of a nominated pod, on its node, keeps the new pod from this node."""
        there, labels_of = self._plugin.labels_of(node), self._plugin.counts.labels_of
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


def _window(things: Collection[T], most: int, start: int) -> Iterator[T]:
    """This many things, beginning at one of them; after the last comes the first."""
    if not things:
        return iter(())
    first = islice(things, start % min(len(things), _SPAN), None)
    return islice(chain(first, things), min(most, len(things)))


def _counting(node: Node) -> object:
    """All that decides for which constraints the pods on a node count."""
    return node.metadata.labels or {}, node.spec.taints
