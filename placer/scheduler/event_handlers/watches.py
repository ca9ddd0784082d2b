"""The watches of a cluster: pods, nodes, namespaces, disruption budgets, and the objects of volumes.

What always holds: a heartbeat of a node changes nothing. A node that cannot be read is not used, and is logged.
"""

import asyncio
import math
from dataclasses import dataclass, field
from typing import Final

from placer.scheduler.event_handlers.pods import PodEventHandler
from placer.scheduler.event_handlers.wakeups import Wakeups
from placer.scheduler.failures.renewal import Renewal
from placer.scheduler.plugins.default_preemption.budgets import Budgets
from placer.scheduler.plugins.volume_binding.binder import VolumeBinding
from placer.scheduler.profile import Profile
from placer.scheduler.queue.hints import EVERYTHING
from plimsoll.cordons import cordoned_gpus, pause_of
from plimsoll.ids import NodeName
from plimsoll.kube.models import DisruptionBudget, Namespace, Node, Pod
from plimsoll.kube.reflector import Added, Change, Deleted, Modified, Reflector, Synced, Timing
from plimsoll.kube.transport import Transport
from plimsoll.part.errors import InputError
from plimsoll.part.log import get_logger

TIMING: Final = Timing(longest_backoff_s=2.0)
"""The timing of each watch that a decision depends on. After an outage nothing is placed before these watches are
tried again. A cluster has a few placers of some ten watches each, so frequent attempts are no load for a server that
is coming up."""


@dataclass(slots=True)
class Watches:
    """Watches from `start` on.

    Attributes:
        transport: the connection to the API server.
        profile: takes nodes and namespaces.
        pod_changes: takes pods.
        budgets: takes disruption budgets.
        claims: has watches of its own, of claims and volumes.
        renewal: learns that nodes changed.
        wakeups: wakes pods that could not preempt before the budgets were read.
        namespace: see `KubeOptions`.
        pods: the watch of pods; of no use before `start`.
    """

    transport: Transport
    profile: Profile
    pod_changes: PodEventHandler
    budgets: Budgets
    claims: VolumeBinding
    renewal: Renewal
    wakeups: Wakeups
    namespace: str
    pods: Reflector[Pod] = field(init=False)
    _nodes: Reflector[Node] = field(init=False)
    _namespaces: Reflector[Namespace] = field(init=False)
    _nodes_synced: asyncio.Event = field(default_factory=asyncio.Event)
    _namespaces_synced: asyncio.Event = field(default_factory=asyncio.Event)
    _have_started: bool = False

    def __post_init__(self) -> None:
        to = self.transport
        self.pods = Reflector(to, "/api/v1/pods", Pod, self.pod_changes.take, timing=TIMING)
        self._nodes = Reflector(to, "/api/v1/nodes", Node, self.on_node, timing=TIMING)
        self._namespaces = Reflector(to, "/api/v1/namespaces", Namespace, self.on_namespace, timing=TIMING)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Watch until the group ends."""
        path = "/apis/policy/v1/poddisruptionbudgets"
        # With the longer pauses that are the default: nothing but preemption waits for budgets.
        budgets = Reflector(self.transport, path, DisruptionBudget, self.on_budget)
        group.create_task(self._nodes.run(), name="kube: watch nodes")
        group.create_task(self.pods.run(), name="kube: watch pods")
        group.create_task(budgets.run(), name="kube: watch disruption budgets")
        group.create_task(self._namespaces.run(), name="kube: watch namespaces")
        self.claims.watches.start(group)
        self._have_started = True

    async def until_synced(self) -> None:
        """Wait until all pods, nodes, namespaces and objects of volumes were read once."""
        await self._nodes_synced.wait()
        await self.pod_changes.synced.wait()
        await self._namespaces_synced.wait()
        await self.claims.watches.synced.wait()

    def broken_s(self) -> float:
        """The longest `Reflector.broken_s` of all watches: 0 while all are live, infinite before the lists."""
        if not self._have_started:
            return math.inf
        watches = (self.pods, self._nodes, self._namespaces)
        return max(self.claims.watches.broken_s(), *(watch.broken_s() for watch in watches))

    def on_node(self, change: Change[Node]) -> None:
        """Take in a change of a node."""
        match change:
            case Added(node) | Modified(node):
                old = change.old if isinstance(change, Modified) else None
                if old is not None and self._is_same(node, old):
                    return  # a heartbeat
                self.renewal.note()
                self.claims.binder.note_nodes()
                try:
                    self.profile.cache.put_node(node)
                except InputError as error:
                    get_logger().error("node not used", node=node.metadata.name, error=str(error))
            case Deleted(node):
                self.profile.cache.remove_node(NodeName(node.metadata.name))
                self.claims.binder.note_nodes()
                self.renewal.note()
            case Synced():
                self._nodes_synced.set()

    def on_namespace(self, change: Change[Namespace]) -> None:
        """Take in a change of a namespace."""
        match change:
            case Added(namespace) | Modified(namespace):
                meta = namespace.metadata
                self.profile.topology.namespace_changed(meta.name, meta.labels or {})
                self._pause(namespace.metadata.name, pause_of(namespace.metadata.annotations))
            case Deleted(namespace):
                self.profile.topology.namespace_changed(namespace.metadata.name, {})
                self._pause(namespace.metadata.name, None)
            case Synced():
                self._namespaces_synced.set()

    def _pause(self, namespace: str, reason: str | None) -> None:
        if namespace == self.namespace:
            self.profile.cache.pause(reason)
            self.renewal.note()

    def on_budget(self, change: Change[DisruptionBudget]) -> None:
        """Take in a change of a disruption budget."""
        were_read = self.budgets.are_read
        self.budgets.on_change(change)
        if self.budgets.are_read and not were_read:
            self.wakeups.wake(EVERYTHING)  # pods that could not preempt until now

    def _is_same(self, node: Node, old: Node) -> bool:
        """Whether only changed what nothing here reads, as at a heartbeat."""
        new, before = node.metadata, old.metadata
        return (
            (node.spec, node.status, new.labels) == (old.spec, old.status, before.labels)
            # Other annotations change often, and matter to nothing here but a plugin that says so.
            and cordoned_gpus(new.annotations) == cordoned_gpus(before.annotations)
            and self.profile.framework.reads(node) == self.profile.framework.reads(old)
        )
