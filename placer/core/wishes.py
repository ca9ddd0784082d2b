"""A pod's wishes about its node. They decide among places that are nearly as good, and make no node fit or unfit.

GPUs decide first: a place that is better by more than `WISHES_SHARE` is taken against all wishes. Every place of a
pod without a GPU is as good as any other, so wishes decide there. A decision asks for wishes on the nodes that it
reads anyway, and reads no further node once the best one meets all of them.

Weights are those of kube-scheduler's plugins (Kubernetes 1.36, `apis/config/v1/default_plugins.go`). Deviation: that
scheduler compares with the best of all nodes that fit, so it has to read them all. Here each wish is compared with
its full satisfaction.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from placer.core.selector import LabelledNode, checks_of
from placer.core.tolerations import Tolerations
from plimsoll.kube.models import Pod

WISHES_SHARE: Final = 0.05
"""The difference in score that a wholly met wish makes up for. Scores are 0–1. This is one twentieth of an idle GPU's
memory: less than the room of a usual container, and more than the noise of two idle GPUs' measurements."""

UNTAINTED: Final = "untainted"
PREFERRED: Final = "preferred-node-affinity"

_TAINTS_WEIGHT: Final = 3
_NODE_AFFINITY_WEIGHT: Final = 2
_DISCOURAGING: Final = "PreferNoSchedule"


@dataclass(frozen=True, slots=True)
class Wish:
    """One wish of a pod.

    Attributes:
        name: its name among the decision's sub-scores.
        weight: its weight beside the pod's other wishes, 1 or more.
        met_by: how far a node meets it, 0 (not at all) to 1 (wholly). Costs the same however many nodes or pods there
            are.
    """

    name: str
    weight: int
    met_by: Callable[[LabelledNode], float]


@dataclass(frozen=True, slots=True)
class Met:
    """How far a node meets a pod's wishes.

    Attributes:
        ratio: all wishes together, 0–1.
        parts: each wish by its name, 0–1, for people; empty where all are met wholly and the pod states none itself.
    """

    ratio: float
    parts: Mapping[str, float]

    @property
    def score(self) -> float:
        """The part of a place's score, 0 to `WISHES_SHARE`."""
        return WISHES_SHARE * self.ratio


WHOLLY_MET: Final = Met(1.0, {})
"""The answer for a pod without wishes."""


def wishes_of(pod: Pod, tolerations: Tolerations) -> tuple[Wish, ...]:
    """The wishes of a pod that a node alone can meet: no `PreferNoSchedule` taint, and preferred node affinity.

    Those about other pods are in `placer.scheduler.topology.wishes`.
    """
    preferred = _preferred(pod)
    return (_untainted(tolerations),) if preferred is None else (_untainted(tolerations), preferred)


def met(wishes: Iterable[Wish], offer: LabelledNode) -> Met:
    """How far a node meets these wishes."""
    parts = {wish.name: (wish.weight, wish.met_by(offer)) for wish in wishes}
    if all(part == 1 for _, part in parts.values()) and not parts.keys() - {UNTAINTED}:
        return WHOLLY_MET
    ratio = sum(weight * part for weight, part in parts.values()) / sum(
        weight for weight, _ in parts.values()
    )
    return Met(ratio, {name: round(part, 6) for name, (_, part) in parts.items()})


def _untainted(tolerations: Tolerations) -> Wish:
    def met_by(offer: LabelledNode) -> float:
        taints = offer.node.spec.taints
        if not taints:
            return 1.0
        against = sum(one.effect == _DISCOURAGING and not tolerations.tolerate(one) for one in taints)
        return 1 / (1 + against)

    return Wish(UNTAINTED, _TAINTS_WEIGHT, met_by)


def _preferred(pod: Pod) -> Wish | None:
    affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
    stated = affinity.preferredDuringSchedulingIgnoredDuringExecution if affinity else None
    # Kubernetes: an empty term selects no node and a term of weight 0 has no effect.
    terms = [
        (one.weight, checks) for one in stated or () if one.weight and (checks := checks_of(one.preference))
    ]
    if not terms:
        return None
    total = sum(weight for weight, _ in terms)

    def met_by(offer: LabelledNode) -> float:
        return sum(weight for weight, checks in terms if all(holds(offer.traits) for holds in checks)) / total

    return Wish(PREFERRED, _NODE_AFFINITY_WEIGHT, met_by)


def count_of_checks(pod: Pod) -> int:
    """The number of checks that the pod's own wishes take on one node."""
    affinity = pod.spec.affinity.nodeAffinity if pod.spec.affinity else None
    stated = affinity.preferredDuringSchedulingIgnoredDuringExecution if affinity else None
    return sum(
        len(one.preference.matchExpressions or ()) + len(one.preference.matchFields or ())
        for one in stated or ()
    )
