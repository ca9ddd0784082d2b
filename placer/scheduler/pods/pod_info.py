"""A pod that this scheduler can place, as its decision reads it: its demand, its rules, and its signature."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from placer.core.node_scores import NodeScore
from placer.core.policies import Policy
from placer.core.policy_context import Request
from placer.scheduler.pods.constraints import NO_CONSTRAINTS, PodConstraints
from placer.scheduler.pods.needs import Needs
from placer.scheduler.pods.node_rules import NodeRules
from plimsoll.ids import NodeName
from plimsoll.kube.models import Pod


@dataclass(slots=True, eq=False)
class PodInfo:
    """A pod that this scheduler can place, as its decision reads it.

    Attributes:
        pod: the pod as the watch showed it.
        request: its demand of GPUs.
        needs: its needs apart from GPUs.
        rules: its rules about its node that other rules read too.
        constraints: its required constraints on other pods.
        policy: the order among GPUs that fit.
        scores: its preferences about its node, as far as a node alone can meet them.
        preferred: its preferred constraints on other pods.
        filters: the plugins that have something to say about the pod, each with what it read of it
            (`placer.scheduler.framework.Filters`); None before the first decision.
        signature: equal for pods that get the same answer: a digest of all that their decision reads, but their
            labels and namespace, which anti-affinity rules of other pods read, and their volumes, which change (see
            `PodScheduling.volume_state`).
        weight: the time that its check on one node takes, as a multiple of that for a small pod; 1 or more.
        found: nodes where the last explanation found a place. The next decision tries them, so it finds a node that
            it would not come to by itself.
    """

    pod: Pod
    request: Request
    needs: Needs
    rules: NodeRules
    constraints: PodConstraints
    policy: Policy
    scores: tuple[NodeScore, ...] = ()
    preferred: PodConstraints = NO_CONSTRAINTS
    filters: Sequence[tuple[Any, Any]] | None = None
    signature: bytes = b""
    weight: int = 1
    found: list[NodeName] = field(default_factory=list)


def same_pod(pod: Pod, old: Pod) -> bool:
    """Whether nothing changed that a decision reads. The placer's own patches of conditions do not count."""
    ours, before = pod.metadata, old.metadata
    return pod.spec == old.spec and (ours.annotations, ours.labels) == (before.annotations, before.labels)
