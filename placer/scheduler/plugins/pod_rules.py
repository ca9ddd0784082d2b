"""The rules about other pods: of each pod about those with a node, and of those with a node about each pod.

A pod's own rules are counted by `domains`; the anti-affinity rules of other pods close topology domains to it, see
`antiaffinity`. What always holds: assumed pods count as bound ones do, and each change that may let a pod in is
announced.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Mapping

from placer.scheduler.cache.cache import Cache
from placer.scheduler.plugins.rule_check import Counted, RuleCheck
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.topology.antiaffinity import REASON as KEPT_OUT
from placer.scheduler.topology.antiaffinity import Closed, Keepout, Keepouts, readable_keepouts_of
from placer.scheduler.topology.gauge import Gauge
from placer.scheduler.topology.index import DomainIndex
from placer.scheduler.topology.rules import DomainRules
from placer.scheduler.topology.selectors import Member, member_of
from placer.scheduler.topology.wishes import DomainWishes
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Namespace, Pod

RulesListener = Callable[[Collection[Hashable]], None]


class PodRules:
    """Rules about other pods, over the nodes and pods of one cluster. The cluster reports each change to it."""

    def __init__(self, cache: Cache, on_first: Callable[[], None]) -> None:
        """Know no rule yet.

        Args:
            cache: the nodes, the pods with a node, and the nominated ones.
            on_first: called when the first pod with an anti-affinity rule comes.
        """
        self._cache = cache
        self._on_first = on_first
        self._domains = DomainIndex(cache.infos, self._announce)
        self._listeners: list[RulesListener] = []
        self._has_rules = False
        self._keepouts = Keepouts(self._domains.labels_of)
        # The residents with anti-affinity rules; on a node that does not exist, they close no domain.
        self._keepers: defaultdict[NodeName, dict[PodUid, tuple[Keepout, ...]]] = defaultdict(dict)

    def on_change(self, listener: RulesListener) -> None:
        """Call `listener` when a node may have become fit for pods with rules about other pods, or other pods' rules.

        The argument has some of the `topics` of each such pod. The listener must not change the cluster.
        """
        self._listeners.append(listener)

    def closed_to(self, pod: Pod) -> Closed:
        """The domains that anti-affinity rules of other pods close to this pod now."""
        return self._keepouts.closed_to(pod)

    def prepare(self, rules: DomainRules | DomainWishes, most: int) -> bool:
        """Count the pods that a pod's rules or wishes are about; see `DomainIndex.prepare`."""
        return self._domains.prepare(rules, most)

    def gauge(self, wishes: DomainWishes) -> Gauge | None:
        """A pod's wishes about other pods with their counts; None while these are not complete, see `prepare`."""
        return self._domains.gauge(wishes)

    def state(self, pod: Pod, rules: DomainRules) -> tuple[Hashable, Hashable]:
        """The rules of other pods about this pod, and a value that changes whenever rules may answer otherwise.

        A rule of a nominated pod changes answers on the node of its nomination alone, which `Cache.changes` names.
        """
        closed = self.closed_to(pod)
        about = (closed.identity, self._rules_of_nominated(pod))
        return about, (self._domains.state(rules), closed.state)

    def _rules_of_nominated(self, pod: Pod) -> tuple[Keepout, ...]:
        """The anti-affinity rules of nominated pods that select this pod; nearly always none."""
        rules = self._cache.nominator.keepouts
        if not rules:
            return ()
        member = member_of(pod)
        return tuple(rule for rule in rules if rule.selects(member, self._domains.labels_of))

    def topics(self, pod: Pod, rules: DomainRules) -> frozenset[Hashable]:
        """Names of the changes after which rules may let a pod in, see `on_change`."""
        own = (rules.key,) if rules.key else ()
        return frozenset((*own, *self.closed_to(pod).rules))

    def obstacle(self, pod: Pod, rules: DomainRules, name: NodeName) -> str | None:
        """The reason why rules of this pod, or of others about it, keep the pod from a node; None if they do not.

        Nothing changes. The cost grows with the number of rules.
        """
        labels = self._labels_of(name)
        reason = self._domains.obstacle(rules, labels)
        return KEPT_OUT if reason is None and self.closed_to(pod).closes(labels) else reason

    def check(
        self,
        pod: Pod,
        rules: DomainRules,
        name: NodeName,
        beside: Collection[tuple[NodeName, Pod]] = (),
    ) -> RuleCheck:
        """The check of `obstacle`, from which pods can be left out; good until a pod or a node changes.

        Args:
            pod: the pod.
            rules: its rules about other pods.
            name: a node that exists.
            beside: pods that may count as if they had these nodes.
        """
        labels = self._labels_of(name)
        return RuleCheck(
            labels,
            self._domains.tallied(rules) if rules.key else None,
            self.closed_to(pod).closing(labels),
            [(node, member_of(one)) for node, one in beside],
            is_kept_out=self._is_kept_out(pod, labels, beside),
        )

    def counted(self, check: RuleCheck, uid: PodUid) -> Counted:
        """A pod as such a check leaves it out; a pod without a node counts nowhere."""
        found = check.known.get(uid)
        if found is None:
            found = check.known[uid] = self._counted(check, self._cache.assigned.find(uid))
        return found

    def _counted(self, check: RuleCheck, one: AssignedPod | None) -> Counted:
        if one is None:
            return Counted(NodeName(""))
        headcounts = self._domains.counting(check.own, one.member) if check.own is not None else ()
        return Counted(one.node, headcounts, check.closed_by(one.keepouts, self._labels_of(one.node)))

    def _is_kept_out(
        self, pod: Pod, labels: Mapping[str, str], beside: Collection[tuple[NodeName, Pod]]
    ) -> bool:
        """Whether a rule of one of these pods, on its node, closes nodes with these labels to the pod."""
        for node, one in beside:
            there = self._labels_of(node)
            for rule in readable_keepouts_of(one):
                key = rule.topology_key
                shares = key in labels and labels[key] == there.get(key)
                if shares and rule.selects(member_of(pod), self._domains.labels_of):
                    return True
        return False

    @property
    def has_rules(self) -> bool:
        """Whether a bound or nominated pod has or had an anti-affinity rule. Then answers may depend on labels."""
        return self._has_rules

    def put_namespace(self, namespace: Namespace) -> None:
        """Take a namespace that was added or changed."""
        self._take_namespace(namespace.metadata.name, namespace.metadata.labels or {})

    def remove_namespace(self, name: str) -> None:
        """Forget the labels of a namespace that is gone."""
        self._take_namespace(name, {})

    def _take_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        before = self._domains.labels_of(name)
        self._domains.put_namespace(name, labels)
        self._announce(self._keepouts.note_namespace(name, before, labels))

    def put_node(self, name: NodeName) -> None:
        """Count the pods of a node that came, changed (see `counting`) or left."""
        self._domains.put_node(name)

    def relabel(self, name: NodeName, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        """Take a node's labels in place of those before; no labels for a node that was not there, or left."""
        rules = [rule for rules in self._keepers.get(name, {}).values() for rule in rules]
        self._keepouts.add(rules, after)
        self._announce(self._keepouts.remove(rules, before))

    def count(self, node: NodeName, before: Member | None, after: Member | None) -> None:
        """Count a pod on a node otherwise than before; None: not at all."""
        self._domains.put(node, before, after)

    def close(self, pod: AssignedPod) -> None:
        """Let a pod's anti-affinity rules close domains from now on."""
        if pod.keepouts:
            self._keepers[pod.node][pod.uid] = pod.keepouts
            self._keepouts.add(pod.keepouts, self._labels_of(pod.node))
            self.heed()

    def open(self, pod: AssignedPod) -> None:
        """Let a pod's anti-affinity rules close no domain any more."""
        if pod.keepouts:
            del self._keepers[pod.node][pod.uid]
            if not self._keepers[pod.node]:
                del self._keepers[pod.node]
            self._announce(self._keepouts.remove(pod.keepouts, self._labels_of(pod.node)))

    def heed(self) -> None:
        """Note that a pod has an anti-affinity rule, so that answers may depend on labels from now on."""
        if not self._has_rules:
            self._has_rules = True
            self._on_first()

    def _announce(self, topics: Collection[Hashable]) -> None:
        if topics:
            for listener in self._listeners:
                listener(topics)

    def _labels_of(self, name: NodeName) -> Mapping[str, str]:
        """The labels of a node; none for a node that does not exist."""
        return self._cache.labels_of(name) or {}
