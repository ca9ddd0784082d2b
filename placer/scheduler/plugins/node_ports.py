"""NodePorts: the ports of the node that a pod opens are free; the kubelet would fail the pod for each that is not."""

from typing import ClassVar, Final

from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.needs import HostPort
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.kube.models import Node

REASON: Final = "node(s) didn't have free ports for the requested pod ports"


class NodePorts(Plugin[list[HostPort]]):
    """No pod of the node has one of the new pod's ports at the same address."""

    name: ClassVar = "NodePorts"
    causes: ClassVar = {REASON: Cause.RESOURCES}
    resolvable: ClassVar = frozenset({REASON})

    def pre_filter(self, info: PodInfo) -> list[HostPort] | None:
        """The ports; None for a pod without any."""
        return sorted(info.needs.ports) or None

    def filter(self, wanted: list[HostPort], node: NodeInfo) -> tuple[str, ...]:
        """The reason against a node where a port is taken."""
        requested = node.requested
        return (REASON,) if requested.ports and any(map(requested.clashes, wanted)) else ()

    def gains(self, node: Node, old: Node) -> Cause:  # noqa: ARG002 - pods have ports, and node objects have none
        """Only a pod that ends frees a port."""
        return NOTHING
