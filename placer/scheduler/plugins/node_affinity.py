"""NodeAffinity: a pod's `nodeSelector` and its required node affinity select the node."""

from typing import ClassVar, Final

from placer.core.selector import Selector
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.kube.models import Node

REASON: Final = "node(s) didn't match Pod's node affinity/selector"


class NodeAffinity(Plugin[Selector]):
    """The node has the labels and the name that the pod asks for."""

    name: ClassVar = "NodeAffinity"
    causes: ClassVar = {REASON: Cause.NODE}

    def pre_filter(self, info: PodInfo) -> Selector | None:
        """The selectors; None for a pod without any."""
        selector = info.rules.selector
        return selector if selector.labels or selector.terms is not None else None

    def sign(self, info: PodInfo) -> object:
        """The selectors as they are written."""
        affinity = info.pod.spec.affinity.nodeAffinity if info.pod.spec.affinity else None
        required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
        return info.pod.spec.nodeSelector, required

    def filter(self, wanted: Selector, node: NodeInfo) -> tuple[str, ...]:
        """The reason against a node that is not selected."""
        return () if wanted.selects(node.traits) else (REASON,)

    def gains(self, node: Node, old: Node) -> Cause:
        """Labels changed."""
        return Cause.NODE if node.metadata.labels != old.metadata.labels else NOTHING
