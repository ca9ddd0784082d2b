"""All wishes of a pod as its decision reads them: those that a node alone can meet, and those about other pods."""

from collections.abc import Iterable
from typing import Final

from placer.core.wishes import WHOLLY_MET, Met, Wish, met
from placer.decide import FOR_TAINTS, MOST_PLANS, NodeWishes
from placer.scheduler.profile import Profile
from placer.scheduler.topology.wishes import DomainWishes
from plimsoll.ids import NodeName

PROMISING: Final = 16
"""The nodes that a decision reads because their domains may meet a pod's wishes about other pods. The best candidates
alone may all be in a domain that does not."""


def node_wishes(
    profile: Profile,
    alone: tuple[Wish, ...],
    about_pods: DomainWishes,
    nodes: Iterable[NodeName] | None,
    most: int,
) -> NodeWishes:
    """The wishes of one decision, with the present counts. Wishes about pods that are not counted yet are left out.

    Args:
        profile: the nodes and the counts.
        alone: the wishes that a node alone can meet.
        about_pods: the wishes about other pods.
        nodes: those that the pod may choose from; only a list keeps other promising nodes out.
        most: the number of promising nodes.
    """
    gauge = profile.pod_rules.gauge(about_pods) if about_pods.key else None
    wishes = alone if gauge is None else alone + gauge.wishes()

    cache = profile.cache

    def _pods(node: NodeName) -> int:
        known = cache.node(node)
        return 0 if known is None else known.requested.pods

    def met_by(node: NodeName) -> Met:
        known = cache.node(node)
        return WHOLLY_MET if known is None else met(wishes, known)

    states_any = len(wishes) > 1  # beside the one about taints, which each pod has
    most_read = MOST_PLANS if states_any else FOR_TAINTS
    if gauge is None:
        return NodeWishes(met_by, most_read)
    counted = gauge

    def promising() -> list[NodeName]:
        some = counted.promising(cache.labels.having, most)
        some.sort(key=_pods)
        return [node for node in some if node in nodes] if isinstance(nodes, list) else some

    return NodeWishes(met_by, most_read, promising)
