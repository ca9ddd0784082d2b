"""A pod that this scheduler can place, as its decision reads it: its demand, its rules, and its kind."""

import hashlib
from dataclasses import dataclass, field
from typing import Final

import msgspec

from placer.core.fit import Needs, NodeRules, needs_of, rules_of
from placer.core.node_scores import NodeScore, count_of_checks, node_scores
from placer.core.owners import owner_of
from placer.core.planning import check_supported
from placer.core.policies import Policy, policy_named
from placer.core.site import Request
from placer.scheduler.cache.assigned_pods import priority_of
from placer.scheduler.plugins.pod_counts.constraints import (
    NO_CONSTRAINTS,
    PodConstraints,
    preferred_of,
    required_of,
)
from placer.scheduler.pods.held import refuse_unheld
from placer.scheduler.pods.lengths import refuse_long
from placer.scheduler.pods.unhandled import refuse_unhandled
from plimsoll.contract import POLICY, refuse_answers, refuse_long_annotations
from plimsoll.demand import PodDemand, parse_pod
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Pod

CHECKS: Final = 128
"""This many checks of a pod's own requirements take as long as all other work on a node, some 20 µs. The numbers of
nodes in `placer.scheduler.choice` are for a pod with fewer checks. For any other pod they are smaller."""
RULE_CHECKS: Final = 4
"""The time that each rule about other pods takes on one node, in checks."""
CLAIM_CHECKS: Final = 32
"""The time that each claim takes on one node, in checks."""
CONTAINER_CHECKS: Final = 64
"""The time that each further container with a GPU takes on one node, in checks."""


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod that this scheduler can place, as its decision reads it.

    Attributes:
        pod: the pod as the watch showed it.
        request: its demand of GPUs.
        needs: its needs apart from GPUs.
        rules: its rules about its node.
        constraints: its required constraints on other pods.
        policy: the order among GPUs that fit.
        kind: equal for pods that get the same answer: a digest of everything that their decision reads, but their
            labels and namespace, which anti-affinity rules of other pods read, and their volumes, which change (see
            `NodeChoice.volume_state`).
        weight: the time that its check on one node takes, as a multiple of that for a small pod; 1 or more.
        scores: its preferences about its node, as far as a node alone can meet them.
        preferred: its preferred constraints on other pods.
        found: nodes where the last explanation found a place. The next decision tries them, so it finds a node that
            it would not come to by itself.
    """

    pod: Pod
    request: Request
    needs: Needs
    rules: NodeRules
    constraints: PodConstraints
    policy: Policy
    kind: bytes
    weight: int
    scores: tuple[NodeScore, ...] = field(default=(), compare=False)
    preferred: PodConstraints = field(default=NO_CONSTRAINTS, compare=False)
    found: list[NodeName] = field(default_factory=list, compare=False)


def understood(pod: Pod, default: Policy) -> PodInfo:
    """Read a pod's demand.

    Args:
        pod: the pod.
        default: the policy for a pod that names none.

    Raises:
        InputError: the pod is malformed, or uses a feature that is not handled.
    """
    refuse_long(pod)
    refuse_long_annotations(pod)
    demand = parse_pod(pod)
    refuse_answers(pod)
    check_supported(demand)
    refuse_unhandled(pod)
    named = demand.policy
    policy = policy_named(named, f"metadata.annotations[{POLICY}]") if named else default
    needs, rules = needs_of(pod), rules_of(pod)
    request = Request(PodUid(pod.metadata.uid), demand, owner_of(pod), needs.amounts.get("cpu", 0))
    constraints = required_of(pod, rules)
    preferred = preferred_of(pod, rules)
    kind = _kind(pod, request, needs, rules, constraints, policy)
    about_pods = constraints.count + (preferred.count if preferred.key else 0)
    weight = _weight(pod, request, needs, rules, about_pods)
    scores = node_scores(pod, rules.tolerations)
    return PodInfo(pod, request, needs, rules, constraints, policy, kind, weight, scores, preferred)


@dataclass(frozen=True, slots=True)
class PodReader:
    """Reads pods under a placer's options.

    Attributes:
        policy: the policy for pods that name none.
        places_unheld: take pods with containers that nothing would hold to their lines, see `pods.held`.
    """

    policy: Policy
    places_unheld: bool = False

    def understood(self, pod: Pod) -> PodInfo:
        """A pod of this scheduler as its decision reads it.

        Raises:
            InputError: the pod is malformed, uses a feature that is not handled, or nothing would hold it.
        """
        info = understood(pod, self.policy)
        self.check_held(pod, info.request.demand)
        return info

    def check_held(self, pod: Pod, demand: PodDemand) -> None:
        """Refuse a pod that nothing would hold to this demand.

        Raises:
            InputError: the message names the container, and what it lacks.
        """
        if not self.places_unheld:
            refuse_unheld(pod, (one.container for one in demand.containers))


def _kind(
    pod: Pod, request: Request, needs: Needs, rules: NodeRules, constraints: PodConstraints, policy: Policy
) -> bytes:
    spec, demand = pod.spec, request.demand
    affinity = spec.affinity.nodeAffinity if spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    learns = any(container.best_effort for container in demand.containers)  # from its owner's other pods
    owner = request.owner if learns else None
    read = (demand, owner, needs.amounts, sorted(needs.ports), policy.name, constraints.key)
    rank = (priority_of(pod), pod.spec.preemptionPolicy)  # room is held against some priorities
    abilities = (sorted(rules.systems), rules.strict_groups, sorted(rules.features), rules.uses_volume)
    places = (spec.nodeSelector, required, spec.tolerations, abilities)
    return hashlib.sha256(msgspec.json.encode((read, rank, places), order="sorted")).digest()


def _weight(pod: Pod, request: Request, needs: Needs, rules: NodeRules, about_pods: int) -> int:
    checks = rules.selector.checks + count_of_checks(pod) + len(needs.amounts) + len(needs.ports)
    checks += len(pod.metadata.labels or ())
    checks += RULE_CHECKS * about_pods
    checks += CLAIM_CHECKS * len(needs.mounts.claims)
    further = max(0, len(request.demand.containers) - 1)
    return 1 + (checks + CONTAINER_CHECKS * further) // CHECKS
