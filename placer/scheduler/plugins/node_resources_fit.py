"""NodeResourcesFit: the node has the CPU, memory, pods and other resources that a pod requests.

The kubelet fails a pod that was bound against this rule (`OutOfcpu`). Order and arithmetic follow Kubernetes 1.36:
`pkg/scheduler/framework/plugins/noderesources` and `component-helpers/resource`.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar, Final

from placer.core.requests import Amounts, amounts_of
from placer.scheduler.framework import Plugin
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.pods.needs import Needs
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.queue.queueing_hints import NOTHING, Cause
from plimsoll.contract import RESOURCES
from plimsoll.kube.models import Node
from plimsoll.part.errors import InputError

TOO_MANY_PODS: Final = "Too many pods"
INSUFFICIENT: Final = "Insufficient "
"""The name of the resource follows."""

MOST_SHORTAGES: Final = 32
"""The most resources that one refusal names. A tenant may ask for thousands that no node has."""


class NodeResourcesFit(Plugin[Amounts]):
    """Each requested amount is free on the node."""

    name: ClassVar = "NodeResourcesFit"
    causes: ClassVar = {TOO_MANY_PODS: Cause.RESOURCES, INSUFFICIENT: Cause.RESOURCES}
    resolvable: ClassVar = frozenset({TOO_MANY_PODS, INSUFFICIENT})

    def pre_filter(self, info: PodInfo) -> Amounts:
        """The requested amounts."""
        return info.needs.amounts

    def filter(self, wanted: Amounts, node: NodeInfo) -> tuple[str, ...]:
        """A reason for every resource that is short, up to `MOST_SHORTAGES`."""
        return tuple(islice(_shortages(wanted, node), MOST_SHORTAGES))

    def gains(self, node: Node, old: Node) -> Cause:
        """An allocatable amount rose, or differs and one of the two cannot be read."""
        amounts, before = node.status.allocatable or {}, old.status.allocatable or {}
        if amounts == before:
            return NOTHING
        try:
            now, was = amounts_of(amounts, "status.allocatable"), amounts_of(before, "status.allocatable")
        except InputError:
            return Cause.RESOURCES
        # An amount that vanished counts too: the kubelet does not enforce resources that its node does not advertise.
        is_larger = any(amount > was.get(name, 0) for name, amount in now.items()) or was.keys() - now.keys()
        return Cause.RESOURCES if is_larger else NOTHING


def is_too_small(needs: Needs, node: NodeInfo, reasons: Iterable[str]) -> bool:
    """Whether a pod that lacks resources on a node asks for more than the empty node has."""
    for reason in reasons:
        name = reason.removeprefix(INSUFFICIENT)
        if name in needs.amounts and needs.amounts[name] > node.allocatable.get(name, 0):
            return True
    return False


def _shortages(wanted: Amounts, node: NodeInfo) -> Iterator[str]:
    allocatable, requested = node.allocatable, node.requested
    if requested.pods + 1 > allocatable.get("pods", 0):
        yield TOO_MANY_PODS
    for name, amount in wanted.items():
        # The kubelet ignores extended resources that its node does not advertise. Plimsoll's may be advertised late,
        # or not at all; the ledger decides on them.
        if name in RESOURCES and name not in allocatable:
            continue
        if amount > 0 and amount > allocatable.get(name, 0) - requested.amounts[name]:
            yield f"{INSUFFICIENT}{name}"
