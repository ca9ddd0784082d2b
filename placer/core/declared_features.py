"""A pod that uses certain features of Kubernetes needs a node that declares them in `status.declaredFeatures`.

The rules are those of Kubernetes 1.36: `component-helpers/nodedeclaredfeatures/features`, and the filter is that of
`pkg/scheduler/framework/plugins/nodedeclaredfeatures`. A pod can need two of the features that a kubelet declares
from its start. The others matter to a later change of the pod. Pure.
"""

from typing import Final

from plimsoll.kube.models import Node, Pod

REASON: Final = "node(s) didn't match Pod's required features"

RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
"""A rule of a container restarts the whole pod."""
HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"
"""The pod has a user namespace of its own on the host's network."""

_RESTARTS_ALL: Final = "RestartAllContainers"
_NO_FEATURES: Final[frozenset[str]] = frozenset()


def features_of(pod: Pod) -> frozenset[str]:
    """The features that the node must declare; nearly all pods need none."""
    spec = pod.spec
    restarts_all = any(
        rule.action == _RESTARTS_ALL
        for container in (*spec.containers, *(spec.initContainers or ()))
        for rule in container.restartPolicyRules or ()
    )
    shares_network = bool(spec.hostNetwork) and spec.hostUsers is False
    if not restarts_all and not shares_network:
        return _NO_FEATURES
    return frozenset(
        name for name, needed in ((RESTART_ALL, restarts_all), (HOST_NETWORK, shares_network)) if needed
    )


def declares(node: Node, features: frozenset[str]) -> bool:
    """Whether the node declares all these features."""
    return features.issubset(node.status.declaredFeatures or ())
