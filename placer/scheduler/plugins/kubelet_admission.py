"""Rules of the kubelet that kube-scheduler lacks. A pod that was bound against one would fail for good.

Follows Kubernetes 1.36, `pkg/kubelet/lifecycle/predicate.go`.
"""

from typing import ClassVar, Final

from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.kube.models import Node

OPERATING_SYSTEM: Final = "node(s) didn't match Pod's operating system"
SUPPLEMENTAL_GROUPS: Final = "node(s) didn't support SupplementalGroupsPolicy=Strict"

_OS_LABEL: Final = "kubernetes.io/os"
_STRICT: Final = "Strict"


class OperatingSystem(Plugin[list[str]]):
    """The node has each operating system that the pod names, in its spec and by its label (`PodOSNotSupported`)."""

    name: ClassVar = "KubeletOperatingSystem"
    causes: ClassVar = {OPERATING_SYSTEM: Cause.NODE}

    def pre_filter(self, info: PodInfo) -> list[str] | None:
        """The systems that the pod names; None for a pod that names none."""
        named = ((info.pod.spec.os or {}).get("name"), (info.pod.metadata.labels or {}).get(_OS_LABEL))
        return sorted({name for name in named if name}) or None

    def filter(self, wanted: list[str], node: NodeInfo) -> tuple[str, ...]:
        """The reason against a node of another system; a node without the label is of any."""
        system = node.traits.get(_OS_LABEL)
        return () if system is None or wanted == [system] else (OPERATING_SYSTEM,)

    def gains(self, node: Node, old: Node) -> Cause:
        """Labels changed."""
        return Cause.NODE if node.metadata.labels != old.metadata.labels else NOTHING


class SupplementalGroups(Plugin[bool]):
    """The node's runtime can keep `supplementalGroupsPolicy: Strict` (`SupplementalGroupsPolicyNotSupported`)."""

    name: ClassVar = "KubeletSupplementalGroups"
    causes: ClassVar = {SUPPLEMENTAL_GROUPS: Cause.NODE}

    def pre_filter(self, info: PodInfo) -> bool | None:
        """None for the policy `Merge`, the default, which works on every node."""
        context = info.pod.spec.securityContext
        return True if context is not None and context.supplementalGroupsPolicy == _STRICT else None

    def filter(self, wanted: bool, node: NodeInfo) -> tuple[str, ...]:  # noqa: ARG002, FBT001 - it is always True
        """The reason against a node that does not say that it can."""
        features = node.node.status.features
        return () if features is not None and features.supplementalGroupsPolicy else (SUPPLEMENTAL_GROUPS,)

    def gains(self, node: Node, old: Node) -> Cause:
        """The node's features changed."""
        return Cause.NODE if node.status.features != old.status.features else NOTHING
