"""The state of pods and nodes, as far as it concerns the pool, indexed by node as the watches show them.

What always holds: each pod counts once, in its last form. A pod that has ended holds nothing. The index depends on
the objects alone, not on their order.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from placer.core.requests import amounts_of, effective_requests
from plimsoll.contract import GPU_MEMORY, SCHEDULER_NAME, assigned_gpus
from plimsoll.cordons import cordoned_gpus
from plimsoll.demand import PodDemand, parse_pod
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import TERMINAL_PHASES, Node, Pod
from plimsoll.part.errors import InputError
from plimsoll.pool import DEVICE, Reservation, is_dedicated, is_reservation, reservation_of, wanted_nodes

_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node.

    Attributes:
        devices: the GPUs that its device plugin has to give, to anybody.
        dedicated: its GPUs are in the pool without reservations.
        ready: its kubelet is there.
        schedulable: it takes new pods.
        gpu_bytes: the memory of one of its GPUs, roughly; None where it is not known.
        cordoned: the UUIDs of its GPUs that take no new pods.
    """

    devices: int = 0
    dedicated: bool = False
    ready: bool = False
    schedulable: bool = False
    gpu_bytes: int | None = None
    cordoned: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class User:
    """A pod with GPUs of the pool.

    Attributes:
        namespace, name: of the pod.
    """

    uid: PodUid
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class _Entry:
    """The part of one pod in the index.

    Attributes:
        node: the node that it has; for a reservation, that of its GPU.
        devices: the GPUs that it has of the device plugin.
        gpus: the GPUs of the pool that it uses.
        named: the nodes where a GPU may be acquired for it, while it waits.
        demand: for such a pod; else None.
        reservation: the reservation of a reservation pod; else None.
    """

    node: NodeName
    user: User
    devices: int = 0
    gpus: frozenset[GpuUuid] = frozenset()
    named: tuple[NodeName, ...] = ()
    demand: PodDemand | None = None
    reservation: Reservation | None = None


@dataclass(slots=True)
class Facts:
    """The index. Not thread-safe: one event loop owns it.

    Attributes:
        namespace: the namespace of reservations.
        nodes: all nodes.
        devices: by node, the GPUs of the device plugin that pods with this node have.
        users: by node and GPU, the pods that use it.
        waiting: by the nodes that the placer named, the demands of the pods that wait for a GPU on one of them.
        reservations: the reservations by node.
        strangers: the names of other pods in the namespace of reservations, which no reservation can have.
    """

    namespace: str
    nodes: dict[NodeName, NodeFacts] = field(default_factory=dict)
    devices: Counter[NodeName] = field(default_factory=Counter)
    users: defaultdict[NodeName, defaultdict[GpuUuid, set[User]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )
    waiting: defaultdict[tuple[NodeName, ...], dict[PodUid, PodDemand]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    reservations: defaultdict[NodeName, dict[PodUid, Reservation]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    strangers: dict[PodUid, str] = field(default_factory=dict)
    _entries: dict[PodUid, _Entry] = field(default_factory=dict)

    def put_node(self, node: Node) -> bool:
        """Take a node that is new or changed; returns whether that changed anything here."""
        name, found = NodeName(node.metadata.name), _node_facts(node)
        if self.nodes.get(name) == found:
            return False
        self.nodes[name] = found
        return True

    def remove_node(self, name: NodeName) -> None:
        """Forget a node that is gone. Its pods count until they are gone too."""
        self.nodes.pop(name, None)

    def put_pod(self, pod: Pod) -> bool:
        """Take a pod that is new or changed; returns whether that changed anything here."""
        uid = PodUid(pod.metadata.uid)
        if pod.metadata.namespace == self.namespace and not is_reservation(pod, self.namespace):
            self.strangers[uid] = pod.metadata.name
        else:
            self.strangers.pop(uid, None)
        entry, known = self._entry(pod), self._entries.get(uid)
        if entry == known:
            return False
        self._forget(uid)
        if entry is None:
            return True
        self._entries[uid] = entry
        self.devices[entry.node] += entry.devices
        for gpu in entry.gpus:
            self.users[entry.node][gpu].add(entry.user)
        if entry.demand is not None:
            self.waiting[entry.named][uid] = entry.demand
        if entry.reservation is not None:
            self.reservations[entry.node][uid] = entry.reservation
        return True

    def remove_pod(self, uid: PodUid) -> bool:
        """Forget a pod that is gone; returns whether it counted."""
        self.strangers.pop(uid, None)
        return self._forget(uid)

    def _forget(self, uid: PodUid) -> bool:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return False
        node = entry.node
        self.devices[node] -= entry.devices
        for gpu in entry.gpus:
            self.users[node][gpu].discard(entry.user)
            if not self.users[node][gpu]:
                del self.users[node][gpu]
        if entry.demand is not None:
            del self.waiting[entry.named][uid]
            if not self.waiting[entry.named]:
                del self.waiting[entry.named]
        self.reservations[node].pop(uid, None)
        for index in (self.users, self.reservations):
            if not index[node]:
                del index[node]
        return True

    def concerned(self) -> list[NodeName]:
        """The nodes about which there may be something to do, in order of their names."""
        named = {node for several in self.waiting for node in several}
        return sorted({*self.reservations, *named, *self.users})

    def _entry(self, pod: Pod) -> _Entry | None:
        user = User(PodUid(pod.metadata.uid), pod.metadata.namespace, pod.metadata.name)
        bound = NodeName(pod.spec.nodeName or "")
        over = pod.status.phase in TERMINAL_PHASES
        devices = _devices(pod) if bound and not over else 0
        if is_reservation(pod, self.namespace):
            reservation = reservation_of(pod)
            return _Entry(reservation.node, user, devices, reservation=reservation)
        if over:
            return None
        if bound:
            given = assigned_gpus(pod)
            gpus = frozenset(gpu for several in given.values() for gpu in several)
            return _Entry(bound, user, devices, gpus) if gpus or devices else None
        named = _acquiring_on(pod)
        demand = _demand(pod) if named else None
        return _Entry(NodeName(""), user, named=named, demand=demand) if demand is not None else None


def _acquiring_on(pod: Pod) -> tuple[NodeName, ...]:
    """The nodes where a pod waits for a GPU, by its condition."""
    if pod.spec.schedulerName != SCHEDULER_NAME or pod.metadata.deletionTimestamp or pod.spec.schedulingGates:
        return ()
    condition = next((one for one in pod.status.conditions or () if one.type == "PodScheduled"), None)
    if condition is None or condition.status != "False":
        return ()
    return wanted_nodes(condition.message or "")


def _demand(pod: Pod) -> PodDemand | None:
    try:
        return parse_pod(pod)
    except InputError:
        return None  # the placer refuses it by name


def _devices(pod: Pod) -> int:
    try:
        return effective_requests(pod).get(DEVICE, 0)
    except InputError:
        return 0  # the API server admits no such amount


def _node_facts(node: Node) -> NodeFacts:
    name = node.metadata.name
    try:
        allocatable = amounts_of(node.status.allocatable, f"nodes/{name}: status.allocatable")
    except InputError:
        allocatable = {}
    devices, memory_bytes = allocatable.get(DEVICE, 0), allocatable.get(GPU_MEMORY, 0)
    taints = node.spec.taints or ()
    return NodeFacts(
        devices=devices,
        dedicated=is_dedicated(node),
        ready=any(one.type == "Ready" and one.status == "True" for one in node.status.conditions or ()),
        schedulable=not node.spec.unschedulable
        and not any(one.effect in _REPELLING and one.key.startswith("node.kubernetes.io/") for one in taints),
        gpu_bytes=memory_bytes // devices if devices and memory_bytes else None,
        cordoned=cordoned_gpus(node.metadata.annotations),
    )
