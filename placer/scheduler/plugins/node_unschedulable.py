"""NodeUnschedulable: a cordoned node takes only pods that tolerate it."""

from typing import ClassVar, Final

from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.kube.models import Node, Taint

REASON: Final = "node(s) were unschedulable"

_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(Plugin[bool]):
    """`spec.unschedulable` keeps out pods that do not tolerate its taint."""

    name: ClassVar = "NodeUnschedulable"
    causes: ClassVar = {REASON: Cause.NODE}

    def pre_filter(self, info: PodInfo) -> bool | None:
        """None for a pod that tolerates cordons."""
        return None if info.rules.tolerations.tolerate(_TAINT) else True

    def filter(self, wanted: bool, node: NodeInfo) -> tuple[str, ...]:  # noqa: ARG002, FBT001 - it is always True
        """The reason against a cordoned node."""
        return (REASON,) if node.node.spec.unschedulable else ()

    def gains(self, node: Node, old: Node) -> Cause:
        """A node was uncordoned."""
        return Cause.NODE if old.spec.unschedulable and not node.spec.unschedulable else NOTHING
