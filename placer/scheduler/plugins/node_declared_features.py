"""NodeDeclaredFeatures: a pod that uses certain features of Kubernetes needs a node that declares them.

The rules are those of Kubernetes 1.36: `component-helpers/nodedeclaredfeatures/features`, and the filter is that of
`pkg/scheduler/framework/plugins/nodedeclaredfeatures`. A pod can need two of the features that a kubelet declares
from its start. The others matter to a later change of the pod.
"""

from typing import ClassVar, Final

from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.kube.models import Node

REASON: Final = "node(s) didn't match Pod's required features"

RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
"""A rule of a container restarts the whole pod."""
HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"
"""The pod has a user namespace of its own on the host's network."""

_RESTARTS_ALL: Final = "RestartAllContainers"


class NodeDeclaredFeatures(Plugin[list[str]]):
    """The node lists each feature in `status.declaredFeatures`."""

    name: ClassVar = "NodeDeclaredFeatures"
    causes: ClassVar = {REASON: Cause.NODE}

    def pre_filter(self, info: PodInfo) -> list[str] | None:
        """The features that the node must declare; nearly all pods need none."""
        spec = info.pod.spec
        restarts_all = any(
            rule.action == _RESTARTS_ALL
            for container in (*spec.containers, *(spec.initContainers or ()))
            for rule in container.restartPolicyRules or ()
        )
        shares_network = bool(spec.hostNetwork) and spec.hostUsers is False
        needed = ((RESTART_ALL, restarts_all), (HOST_NETWORK, shares_network))
        return [name for name, is_needed in needed if is_needed] or None

    def filter(self, wanted: list[str], node: NodeInfo) -> tuple[str, ...]:
        """The reason against a node that lacks one of them."""
        declared = node.node.status.declaredFeatures or ()
        return () if all(one in declared for one in wanted) else (REASON,)

    def gains(self, node: Node, old: Node) -> Cause:
        """The declared features changed."""
        return Cause.NODE if node.status.declaredFeatures != old.status.declaredFeatures else NOTHING
