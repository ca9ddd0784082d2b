"""PodTopologySpread and InterPodAffinity: the node's domains have the pods that the rules about pods ask for."""

from collections.abc import Sequence
from typing import ClassVar, Final

from placer.scheduler.cache.cache import Cache
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.plugins.pod_rules import PodRules
from placer.scheduler.plugins.rule_check import RuleCheck
from placer.scheduler.pods.assigned_pods import AssignedPod
from placer.scheduler.pods.nominator import Nomination
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import EVERYTHING, NOTHING, Cause
from placer.scheduler.topology.antiaffinity import REASON as KEPT_OUT
from placer.scheduler.topology.check import NO_DOMAIN, NOT_APART, NOT_BESIDE, SKEWED
from plimsoll.ids import NodeName
from plimsoll.kube.models import Node

NAME: Final = "InterPodAffinity"


class PodTopology(Plugin[PodInfo]):
    """The pod's own rules about other pods, and the rules of others about it."""

    name: ClassVar = NAME
    causes: ClassVar = {
        KEPT_OUT: Cause.RULES,
        SKEWED: Cause.RULES,
        NOT_BESIDE: Cause.RULES,
        NOT_APART: Cause.RULES,
        NO_DOMAIN: Cause.NODE,
    }
    resolvable: ClassVar = frozenset({KEPT_OUT, NOT_APART, SKEWED})

    def __init__(self, cache: Cache) -> None:
        """Follow the pods and nodes of a cache."""
        self._cache = cache
        self.rules = PodRules(cache, lambda: cache.announce(None, EVERYTHING))
        cache.observers.append(self)

    def pre_filter(self, info: PodInfo) -> PodInfo:
        """The pod: rules of others may be about any pod."""
        return info

    def sign(self, info: PodInfo) -> object:  # noqa: ARG002 - see there
        """Nothing: `PodInfo.domains.key` is a part of each signature, and see `PodRules.state`."""
        return None

    def filter(self, wanted: PodInfo, node: NodeInfo) -> tuple[str, ...]:
        """The reason against a node, as it is and, as in kube-scheduler, with the pods that are nominated for it."""
        check: RuleCheck | None = node.dry_run.get(NAME)
        name = NodeName(node.node.metadata.name)
        reason = self.rules.obstacle(wanted.pod, wanted.domains, name) if check is None else check.obstacle()
        if reason is None and node.nominated:
            check = check or self.check(wanted, name, node.nominated)
            reason = check.obstacle_beside()
        return () if reason is None else (reason,)

    def check(self, wanted: PodInfo, node: NodeName, beside: Sequence[Nomination]) -> RuleCheck:
        """The check of one node, from which pods can be left out."""
        return self.rules.check(wanted.pod, wanted.domains, node, [(node, one.pod) for one in beside])

    def gains(self, node: Node, old: Node) -> Cause:
        """With other labels, the node may be in another domain."""
        return Cause.RULES | Cause.NODE if node.metadata.labels != old.metadata.labels else NOTHING

    def node_changed(self, name: NodeName, old: NodeInfo | None, now: NodeInfo | None) -> None:
        """Count the pods of a node that came, changed or left."""
        if old is None or now is None or _counting(old.node) != _counting(now.node):
            self.rules.put_node(name)
        before, after = {} if old is None else old.labels, {} if now is None else now.labels
        if before != after:
            self.rules.relabel(name, before, after)

    def pod_changed(self, old: AssignedPod | None, now: AssignedPod | None) -> None:
        """Count a pod with a node."""
        same = old is not None and now is not None and old.takes_as(now)
        if old is not None and now is not None and same:
            if old.member != now.member:  # as for a pod that is being deleted
                self.rules.count(now.node, old.member, now.member)
            return
        if old is not None:
            self.rules.count(old.node, old.member, None)
            self.rules.open(old)
        if now is not None:
            self.rules.count(now.node, None, now.member)
            self.rules.close(now)

    def nomination_changed(self) -> None:
        """Heed labels once a nominated pod has an anti-affinity rule."""
        if self._cache.nominator.keepouts:
            self.rules.heed()


def _counting(node: Node) -> object:
    """All that decides for which rules the pods on a node count."""
    return node.metadata.labels or {}, node.spec.taints
