"""A pod with `supplementalGroupsPolicy: Strict` needs a node whose container runtime can keep the policy.

kube-scheduler does not look at this. The kubelet does, and fails the pod for good:
`SupplementalGroupsPolicyNotSupported` in Kubernetes 1.36, `pkg/kubelet/lifecycle/predicate.go`. Pure.
"""

from typing import Final

from plimsoll.kube.models import Node, Pod

REASON: Final = "node(s) didn't support SupplementalGroupsPolicy=Strict"

_STRICT: Final = "Strict"


def is_strict(pod: Pod) -> bool:
    """Whether the pod has the policy. `Merge`, the default, works on every node."""
    context = pod.spec.securityContext
    return context is not None and context.supplementalGroupsPolicy == _STRICT


def keeps_policy(node: Node) -> bool:
    """Whether the node says that its runtime can keep the policy."""
    features = node.status.features
    return features is not None and bool(features.supplementalGroupsPolicy)
