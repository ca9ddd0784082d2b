"""All wishes of a pod as its decision reads them: those that a node alone can meet, and those about other pods."""

from collections.abc import Iterable
from typing import Final

from placer.core.wishes import WHOLLY_MET, Met, Wish, met
from placer.decide import FOR_TAINTS, MOST_PLANS, NodeWishes
from placer.scheduler.cache.cache import Cache
from placer.scheduler.topology.wishes import DomainWishes
from plimsoll.ids import NodeName

PROMISING: Final = 16
"""The nodes that a decision reads because their domains may meet a pod's wishes about other pods. The best candidates
alone may all be in a domain that does not."""


def node_wishes(
    cache: Cache,
    alone: tuple[Wish, ...],
    about_pods: DomainWishes,
    nodes: Iterable[NodeName] | None,
    most: int,
) -> NodeWishes:
    """The wishes of one decision, with the present counts. Wishes about pods that are not counted yet are left out.

    Args:
        cache: the nodes and the counts.
        alone: the wishes that a node alone can meet.
        about_pods: the wishes about other pods.
        nodes: those that the pod may choose from; only a list keeps other promising nodes out.
        most: the number of promising nodes.
    """
    gauge = cache.pod_rules.gauge(about_pods) if about_pods.key else None
    wishes = alone if gauge is None else alone + gauge.wishes()

    def met_by(node: NodeName) -> Met:
        offer = cache.offer(node)
        return WHOLLY_MET if offer is None else met(wishes, offer)

    states_any = len(wishes) > 1  # beside the one about taints, which each pod has
    most_read = MOST_PLANS if states_any else FOR_TAINTS
    if gauge is None:
        return NodeWishes(met_by, most_read)
    counted = gauge

    def promising() -> list[NodeName]:
        some = cache.promising(counted, most)
        return [node for node in some if node in nodes] if isinstance(nodes, list) else some

    return NodeWishes(met_by, most_read, promising)
