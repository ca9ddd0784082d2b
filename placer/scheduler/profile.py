"""The plugins of this scheduler in the order in which they filter, and pods as these plugins read them.

To add a rule of placement, write its plugin (`placer.scheduler.framework.Plugin`), and name it here.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from placer.core.booking import Booking
from placer.core.ledger import Ledger
from placer.core.node_scores import count_of_checks, node_scores
from placer.core.owners import owner_of
from placer.core.planning import check_supported
from placer.core.policies import Policy, policy_named
from placer.core.policy_context import Request
from placer.scheduler.cache.cache import Cache
from placer.scheduler.framework import UNKNOWN_NODE, Framework, Plugin, run_filters
from placer.scheduler.node_info import NodeInfo
from placer.scheduler.plugins.gpu import Gpu
from placer.scheduler.plugins.kubelet_admission import OperatingSystem, SupplementalGroups
from placer.scheduler.plugins.node_affinity import NodeAffinity
from placer.scheduler.plugins.node_declared_features import NodeDeclaredFeatures
from placer.scheduler.plugins.node_ports import NodePorts
from placer.scheduler.plugins.node_resources_fit import NodeResourcesFit
from placer.scheduler.plugins.node_unschedulable import NodeUnschedulable
from placer.scheduler.plugins.node_volume_limits import PlimsollVolume
from placer.scheduler.plugins.opt_out import OptOut
from placer.scheduler.plugins.taint_toleration import TaintToleration
from placer.scheduler.plugins.topology import PodTopology
from placer.scheduler.plugins.volume_plugins import VolumePlugins
from placer.scheduler.plugins.volumes.store import VolumeStore
from placer.scheduler.pods.assigned_pods import priority_of
from placer.scheduler.pods.constraints import preferred_of, required_of
from placer.scheduler.pods.held import refuse_unheld
from placer.scheduler.pods.needs import Needs, needs_of
from placer.scheduler.pods.node_rules import rules_of
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.pods.refusals import refuse_long, refuse_unhandled
from placer.scheduler.queue.queueing_hints import Cause
from plimsoll.contract import POLICY, refuse_answers, refuse_long_annotations
from plimsoll.demand import PodDemand, parse_pod
from plimsoll.ids import NodeName, PodUid
from plimsoll.kube.models import Node, Pod

NODE_PLUGINS: Final[tuple[Plugin[Any], ...]] = (
    OptOut(),
    NodeUnschedulable(),
    TaintToleration(),
    NodeAffinity(),
    OperatingSystem(),
    SupplementalGroups(),
    NodeDeclaredFeatures(),
    NodePorts(),
    NodeResourcesFit(),
)
"""The rules about a node alone. They are cheap, so they come before the rules about volumes and other pods."""

CHECKS: Final = 128
"""This many checks of a pod's own requirements take as long as all other work on a node, some 20 µs. The numbers of
nodes in `placer.scheduler.scheduling` are for a pod with fewer checks. For any other pod they are smaller."""
RULE_CHECKS: Final = 4
"""The time that each rule about other pods takes on one node, in checks."""
CLAIM_CHECKS: Final = 32
"""The time that each claim takes on one node, in checks."""
CONTAINER_CHECKS: Final = 64
"""The time that each further container with a GPU takes on one node, in checks."""


class Profile:
    """The plugins of one placer, over one cache of the cluster.

    Attributes:
        cache: the nodes and their pods.
        volumes: the plugins for volumes.
        topology: the plugins with constraints on other pods.
        framework: all plugins.
    """

    def __init__(
        self,
        ledger: Ledger,
        on_doubt: Callable[[Booking], None] = lambda _: None,
    ) -> None:
        """An empty cluster; for the arguments see `Cache`."""
        self.cache = Cache(ledger, self._gains, on_doubt)
        cache = self.cache
        store = VolumeStore(
            cache.changes.note, lambda node: cache.announce(node, Cause.VOLUMES), cache.labels.having
        )
        self.volumes = VolumePlugins(store)
        cache.observers.append(self.volumes)
        self.topology = PodTopology(self.cache)
        self.framework = Framework((*NODE_PLUGINS, PlimsollVolume(store), self.volumes, self.topology, Gpu()))

    def filter(self, info: PodInfo, name: NodeName) -> tuple[str, ...]:
        """The reasons why a node is unfit for a pod, apart from its GPUs; empty for a fit node.

        For any pod that is not nominated for the node: the room that is held for others counts as taken.
        """
        held = self.cache.nominator.against_others(priority_of(info.pod), name)
        return self.filter_as(info, self.cache.node_beside(name, held))

    def filter_as(self, info: PodInfo, node: NodeInfo | None) -> tuple[str, ...]:
        """The same for a node as it is given; None for one that does not exist."""
        if node is None:
            return (UNKNOWN_NODE,)
        if self.cache.paused is not None:
            return (self.cache.paused,)
        if info.filters is None:
            info.filters = self.framework.pre_filter(info)
        return run_filters(info.filters, node)

    def named(self, info: PodInfo, most: int) -> list[NodeName] | None:
        """The nodes that a pod's selectors and volumes may allow; None if they are more than `most`, or all."""
        selected = self.cache.labels.named(info.pod, most)
        tied = self.volumes.nodes_for(info.pod, info.needs.mounts, most)
        return min((nodes for nodes in (selected, tied) if nodes is not None), key=len, default=None)

    def _gains(self, node: Node, old: Node) -> Cause:
        return self.framework.gains(node, old)


def shortages(cache: Cache, pod: Pod, needs: Needs, name: NodeName) -> tuple[str, ...]:
    """The ports and resources that a node lacks for a pod, beside the room that is held for others.

    The kubelet would fail the pod for each.
    """
    node = cache.node_beside(name, cache.nominator.against(pod, name))
    if node is None:
        return (UNKNOWN_NODE,)
    ports, resources = NodePorts(), NodeResourcesFit()
    return ports.filter(sorted(needs.ports), node) or resources.filter(needs.amounts, node)


@dataclass(frozen=True, slots=True)
class PodReader:
    """Reads pods under a placer's options.

    Attributes:
        policy: the policy for pods that name none.
        plugins: all plugins that read pods.
        places_unheld: take pods with containers that nothing would hold to their lines, see `pods.held`.
    """

    policy: Policy
    plugins: tuple[Plugin[Any], ...]
    places_unheld: bool = False

    def understood(self, pod: Pod) -> PodInfo:
        """A pod of this scheduler as its decision reads it.

        Raises:
            InputError: the pod is malformed, uses a feature that is not handled, or nothing would hold it.
        """
        info = understood(pod, self.policy, self.plugins)
        self.check_held(pod, info.request.demand)
        return info

    def check_held(self, pod: Pod, demand: PodDemand) -> None:
        """Refuse a pod that nothing would hold to this demand.

        Raises:
            InputError: the message names the container, and what it lacks.
        """
        if not self.places_unheld:
            refuse_unheld(pod, (one.container for one in demand.containers))


def understood(pod: Pod, default: Policy, plugins: tuple[Plugin[Any], ...] = NODE_PLUGINS) -> PodInfo:
    """Read a pod's demand.

    Args:
        pod: the pod.
        default: the policy for a pod that names none.
        plugins: those whose `sign` is a part of the signature.

    Raises:
        InputError: the pod is malformed, or uses a feature that is not handled.
    """
    refuse_long(pod)
    refuse_long_annotations(pod)
    demand = parse_pod(pod)
    refuse_answers(pod)
    check_supported(demand)
    refuse_unhandled(pod)
    named = demand.policy
    needs, rules = needs_of(pod), rules_of(pod)
    info = PodInfo(
        pod,
        Request(PodUid(pod.metadata.uid), demand, owner_of(pod), needs.amounts.get("cpu", 0)),
        needs,
        rules,
        required_of(pod, rules),
        policy_named(named, f"metadata.annotations[{POLICY}]") if named else default,
        node_scores(pod, rules.tolerations),
        preferred_of(pod, rules),
    )
    info.signature = _signature(info, plugins)
    info.weight = _weight(info)
    return info


def _signature(info: PodInfo, plugins: tuple[Plugin[Any], ...]) -> bytes:
    demand = info.request.demand
    learns = any(container.best_effort for container in demand.containers)  # from its owner's other pods
    owner = info.request.owner if learns else None
    rank = (priority_of(info.pod), info.pod.spec.preemptionPolicy)  # room is held against some priorities
    read = (demand, owner, info.policy.name, info.constraints.key, rank, [one.sign(info) for one in plugins])
    return hashlib.sha256(msgspec.json.encode(read, order="sorted")).digest()


def _weight(info: PodInfo) -> int:
    pod, needs = info.pod, info.needs
    checks = info.rules.selector.checks + count_of_checks(pod) + len(needs.amounts) + len(needs.ports)
    checks += len(pod.metadata.labels or ())
    checks += RULE_CHECKS * (info.constraints.count + info.preferred.count)
    checks += CLAIM_CHECKS * len(needs.mounts.claims)
    further = max(0, len(info.request.demand.containers) - 1)
    return 1 + (checks + CONTAINER_CHECKS * further) // CHECKS
