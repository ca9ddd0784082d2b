"""TaintToleration: a pod tolerates the taints that repel pods, and a node that is not ready."""

from typing import ClassVar, Final

from placer.core.schedulability import REPELLING, readiness_of
from placer.core.tolerations import Tolerations
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.kube.models import Node, Taint

UNTOLERATED: Final = "node(s) had untolerated taint"
NOT_READY: Final = "node(s) were not ready"

_NOT_READY: Final = Taint(key="node.kubernetes.io/not-ready", effect="NoSchedule")
_UNREACHABLE: Final = Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule")


class TaintToleration(Plugin[Tolerations]):
    """Taints repel pods without a toleration.

    Deviation: kube-scheduler relies on a controller that turns a node's condition `Ready` into a taint, which takes a
    while. The condition counts here at once, for pods that do not tolerate that taint.
    """

    name: ClassVar = "TaintToleration"
    causes: ClassVar = {UNTOLERATED: Cause.NODE, NOT_READY: Cause.NODE}

    def pre_filter(self, info: PodInfo) -> Tolerations:
        """The pod's tolerations."""
        return info.rules.tolerations

    def sign(self, info: PodInfo) -> object:
        """The tolerations as they are written."""
        return info.pod.spec.tolerations

    def filter(self, wanted: Tolerations, node: NodeInfo) -> tuple[str, ...]:
        """The first taint that repels the pod, or the node's condition."""
        for taint in node.node.spec.taints or ():
            if taint.effect in REPELLING and not wanted.tolerate(taint):
                return (f"{UNTOLERATED} {{{taint.key}: {taint.value or ''}}}",)
        ready = readiness_of(node.node)
        if ready == "True" or wanted.tolerate(_NOT_READY if ready == "False" else _UNREACHABLE):
            return ()
        return (NOT_READY,)

    def gains(self, node: Node, old: Node) -> Cause:
        """A taint went, or the node's condition changed: a pod may tolerate one way of not being ready alone."""
        gone = _taints(old) - _taints(node)
        is_readier = readiness_of(old) not in ("True", readiness_of(node))
        return Cause.NODE if gone or is_readier else NOTHING


def _taints(node: Node) -> set[tuple[str, str | None, str]]:
    return {(taint.key, taint.value, taint.effect) for taint in node.spec.taints or ()}
