"""Scores of a node by a pod's preferences. They decide among places that are nearly as good, and make no node fit.

GPUs decide first: a place that is better by more than `PREFERENCES_SHARE` is taken against all preferences. Every
place of a pod without a GPU is as good as any other, so preferences decide there. A decision scores the nodes that it
reads anyway, and reads no further node once the best one meets all preferences.

Weights are those of kube-scheduler's plugins (Kubernetes 1.36, `apis/config/v1/default_plugins.go`). Deviation: that
scheduler compares with the best of all nodes that fit, so it has to read them all. Here each preference is compared
with its full satisfaction.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from placer.core.selector import LabelledNode, checks_of
from placer.core.tolerations import Tolerations
from plimsoll.kube.models import NodeSelectorTerm, Pod

PREFERENCES_SHARE: Final = 0.05
"""The difference in score that wholly met preferences make up for. Scores are 0–1. This is one twentieth of an idle
GPU's memory: less than the room of a usual container, and more than the noise of two idle GPUs' measurements."""

UNTAINTED: Final = "untainted"
PREFERRED: Final = "preferred-node-affinity"

_TAINTS_WEIGHT: Final = 3
_NODE_AFFINITY_WEIGHT: Final = 2
_DISCOURAGING: Final = "PreferNoSchedule"


@dataclass(frozen=True, slots=True)
class NodeScore:
    """One plugin's score of nodes for one pod.

    Attributes:
        name: its name among the decision's sub-scores.
        weight: its weight beside the pod's other preferences, 1 or more.
        of: how far a node meets the preference, 0 (not at all) to 1 (wholly). Costs the same however many nodes or
            pods there are.
    """

    name: str
    weight: int
    of: Callable[[LabelledNode], float]


@dataclass(frozen=True, slots=True)
class TotalScore:
    """How far a node meets a pod's preferences.

    Attributes:
        ratio: all of them together, 0–1.
        parts: each by its name, 0–1, for people; empty where all are met wholly and the pod states none itself.
    """

    ratio: float
    parts: Mapping[str, float]

    @property
    def score(self) -> float:
        """The part of a place's score, 0 to `PREFERENCES_SHARE`."""
        return PREFERENCES_SHARE * self.ratio


FULL_SCORE: Final = TotalScore(1.0, {})
"""The score for a pod without preferences."""


def total_score(scores: Iterable[NodeScore], node: LabelledNode) -> TotalScore:
    """The weighted sum of a node's scores."""
    parts = {score.name: (score.weight, score.of(node)) for score in scores}
    if all(part == 1 for _, part in parts.values()) and not parts.keys() - {UNTAINTED}:
        return FULL_SCORE
    ratio = sum(weight * part for weight, part in parts.values()) / sum(
        weight for weight, _ in parts.values()
    )
    return TotalScore(ratio, {name: round(part, 6) for name, (_, part) in parts.items()})


def node_scores(pod: Pod, tolerations: Tolerations) -> tuple[NodeScore, ...]:
    """The scores by preferences that a node alone can meet; those about other pods are `PodTopology.scores`."""
    affinity = node_affinity_score(pod)
    taints = taint_toleration_score(tolerations)
    return (taints,) if affinity is None else (taints, affinity)


def taint_toleration_score(tolerations: Tolerations) -> NodeScore:
    """TaintToleration: a node is worse the more `PreferNoSchedule` taints it has that the pod does not tolerate."""

    def of(node: LabelledNode) -> float:
        taints = node.node.spec.taints
        if not taints:
            return 1.0
        against = sum(one.effect == _DISCOURAGING and not tolerations.tolerate(one) for one in taints)
        return 1 / (1 + against)

    return NodeScore(UNTAINTED, _TAINTS_WEIGHT, of)


def node_affinity_score(pod: Pod) -> NodeScore | None:
    """NodeAffinity: the weight of the preferred terms that hold, of the weight of all; None for a pod without any."""
    # Kubernetes: an empty term selects no node and a term of weight 0 has no effect.
    terms = [(weight, checks) for weight, term in _preferred(pod) if weight and (checks := checks_of(term))]
    if not terms:
        return None
    total = sum(weight for weight, _ in terms)

    def of(node: LabelledNode) -> float:
        return sum(weight for weight, checks in terms if all(holds(node.traits) for holds in checks)) / total

    return NodeScore(PREFERRED, _NODE_AFFINITY_WEIGHT, of)


def count_of_checks(pod: Pod) -> int:
    """The number of checks that the pod's preferred node affinity takes on one node."""
    return sum(len(term.matchExpressions or ()) + len(term.matchFields or ()) for _, term in _preferred(pod))


def _preferred(pod: Pod) -> list[tuple[int, NodeSelectorTerm]]:
    affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
    stated = affinity.preferredDuringSchedulingIgnoredDuringExecution if affinity else None
    return [(one.weight, one.preference) for one in stated or ()]
