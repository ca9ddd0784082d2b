"""The watches of a cluster, each with the handler that takes its changes."""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Final

from placer.scheduler.event_handlers.cluster_events import ClusterEvents
from placer.scheduler.event_handlers.namespaces import NamespaceEventHandler
from placer.scheduler.event_handlers.nodes import NodeEventHandler
from placer.scheduler.event_handlers.pods import PodEventHandler
from placer.scheduler.plugins.volumes.watches import VolumeWatches
from placer.scheduler.preemption.budgets import Budgets
from placer.scheduler.queue.queueing_hints import EVERYTHING
from plimsoll.kube.models import DisruptionBudget, Namespace, Node, Pod
from plimsoll.kube.reflector import Change, Reflector, Timing
from plimsoll.kube.transport import Transport

TIMING: Final = Timing(longest_pause_s=2.0)
"""The timing of each watch that a decision depends on. After an outage nothing is placed before these watches are
tried again. A cluster has a few placers of some ten watches each, so frequent attempts are no load for a server that
is coming up."""


@dataclass(slots=True)
class Watches:
    """Watches from `start` on.

    Attributes:
        transport: the connection to the API server.
        pod_events: takes pods.
        node_events: takes nodes.
        namespace_events: takes namespaces.
        volumes: the watches of claims, volumes and the like.
        budgets: takes disruption budgets.
        cluster_events: brings pods back that could not preempt before the budgets were read.
        pods, nodes, namespaces: their watches; of no use before `start`.
    """

    transport: Transport
    pod_events: PodEventHandler
    node_events: NodeEventHandler
    namespace_events: NamespaceEventHandler
    volumes: VolumeWatches
    budgets: Budgets
    cluster_events: ClusterEvents
    pods: Reflector[Pod] = field(init=False)
    nodes: Reflector[Node] = field(init=False)
    namespaces: Reflector[Namespace] = field(init=False)
    _have_started: bool = False

    def __post_init__(self) -> None:
        to, namespaces = self.transport, self.namespace_events
        self.pods = Reflector(to, "/api/v1/pods", Pod, self.pod_events.take, timing=TIMING)
        self.nodes = Reflector(to, "/api/v1/nodes", Node, self.node_events.take, timing=TIMING)
        self.namespaces = Reflector(to, "/api/v1/namespaces", Namespace, namespaces.take, timing=TIMING)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Watch until the group ends."""
        # With the longer pauses that are the default: nothing but preemption waits for budgets.
        path = "/apis/policy/v1/poddisruptionbudgets"
        budgets = Reflector(self.transport, path, DisruptionBudget, self.on_budget)
        group.create_task(self.nodes.run(), name="kube: watch nodes")
        group.create_task(self.pods.run(), name="kube: watch pods")
        group.create_task(budgets.run(), name="kube: watch disruption budgets")
        group.create_task(self.namespaces.run(), name="kube: watch namespaces")
        self.volumes.start(group)
        self._have_started = True

    async def until_synced(self) -> None:
        """Wait until all pods, nodes, namespaces and objects of volumes were read once."""
        for one in (self.node_events, self.pod_events, self.namespace_events, self.volumes):
            await one.synced.wait()

    def broken_s(self) -> float:
        """The longest `Reflector.broken_s` of all watches: 0 while all are live, infinite before the lists."""
        if not self._have_started:
            return math.inf
        watches = (self.pods, self.nodes, self.namespaces)
        return max(self.volumes.broken_s(), *(watch.broken_s() for watch in watches))

    def on_budget(self, change: Change[DisruptionBudget]) -> None:
        """Take in a change of a disruption budget."""
        were_read = self.budgets.are_read
        self.budgets.on_change(change)
        if self.budgets.are_read and not were_read:
            self.cluster_events.move_on(EVERYTHING)  # pods that could not preempt until now
