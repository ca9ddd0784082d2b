"""PodTopologySpread: pods of one kind are spread over topology domains.

Follows `pkg/scheduler/framework/plugins/podtopologyspread` of Kubernetes 1.36. But a node is scored against the
emptiest and the fullest domain that there are, because a decision does not read all nodes that fit. The order among
nodes is the same. A pod without spread constraints gets no default ones; it goes where fewest pods are. Pure.
"""

from collections.abc import Mapping
from math import log
from typing import Final

from placer.core.node_scores import NodeScore
from placer.core.selector import LabelledNode
from placer.scheduler.plugins.pod_counts.counts import CountChanges, CountedConstraints, changed_by

SKEWED: Final = "node(s) didn't match pod topology spread constraints"
NO_DOMAIN: Final = f"{SKEWED} (missing required label)"

SCORE: Final = "topology-spread"
_WEIGHT: Final = 2


def filter_node(
    counted: CountedConstraints, labels: Mapping[str, str], changes: CountChanges | None = None
) -> str | None:
    """The reason why a node is unfit for a pod with these constraints, or None.

    Args:
        counted: the pod's constraints with complete counts.
        labels: the node's.
        changes: pods to count otherwise than they are counted.
    """
    for constraint, counts in counted.spread:
        domain = labels.get(constraint.topology_key)
        if domain is None:
            return NO_DOMAIN
        changed = changed_by(changes, counts)
        pods = counts.pods.get(domain, 0) + changed.get(domain, 0) + constraint.selects_self
        if pods - counts.least(constraint.min_domains, changed) > constraint.max_skew:
            return SKEWED
    return None


def score(counted: CountedConstraints) -> NodeScore | None:
    """The score by constraints that need not hold; None for a pod without any, and where no node has a domain.

    Domains with fewer pods are better. A node without one of the keys is worst.
    """
    if not counted.spread or not all(counts.domains.sizes for _, counts in counted.spread):
        return None
    parts = []
    lowest = highest = 0.0
    for constraint, counts in counted.spread:
        weight, skew = log(len(counts.domains.sizes) + 2), constraint.max_skew - 1
        parts.append((constraint.topology_key, counts.pods, weight, skew))
        lowest += counts.least() * weight + skew
        highest += counts.most() * weight + skew

    def of(node: LabelledNode) -> float:
        labels = node.node.metadata.labels or {}
        total = 0.0
        for key, pods, weight, skew in parts:
            domain = labels.get(key)
            if domain is None:
                return 0.0
            total += pods.get(domain, 0) * weight + skew
        return 1 - max(0.0, total - lowest) / highest if highest else 1.0

    return NodeScore(SCORE, _WEIGHT, of)
