"""A node that is taken out of Plimsoll by its label takes no new pods."""

from typing import ClassVar, Final

from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.contract import opt_out_of
from plimsoll.kube.models import Node

REASON: Final = "node(s) had opted out of Plimsoll by label"


class OptOut(Plugin[bool]):
    """No pod goes to a node that has the opt-out label."""

    name: ClassVar = "PlimsollOptOut"
    causes: ClassVar = {REASON: Cause.NODE}

    def pre_filter(self, info: PodInfo) -> bool:  # noqa: ARG002 - the same for all pods
        """Nothing of the pod is read."""
        return True

    def filter(self, wanted: bool, node: NodeInfo) -> tuple[str, ...]:  # noqa: ARG002, FBT001 - likewise
        """The reason against a node with the label."""
        return (REASON,) if opt_out_of(node.labels) is not None else ()

    def gains(self, node: Node, old: Node) -> Cause:
        """Labels changed."""
        return Cause.NODE if node.metadata.labels != old.metadata.labels else NOTHING
