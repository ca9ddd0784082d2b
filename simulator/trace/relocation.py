"""Relocation in a replay: a pod that fits nowhere gets a place by the moves that the placer's own search finds.

Only pods with a part of a GPU are moved, each at the same cost. A move takes no time here, and costs the moved pod
nothing: a replay counts places and moves, not lost work.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from placer.core.booking import Booking
from placer.core.dry_run import GpuDryRun
from placer.core.plan import Plan
from placer.core.policies.policy import Policy
from placer.core.relocation.plan import EvictablePod, Spot
from placer.core.relocation.search import result, search
from placer.core.room import Room
from plimsoll.ids import GpuUuid, NodeName, PodUid
from simulator.trace.cluster import Resident, TraceCluster

HOSTS: Final = 16
"""The spots that are searched for one pod: those from which fewest pods have to leave."""
TARGETS: Final = 8
"""The nodes that are tried for a moved pod, as the policy ranks them."""
MOST_TRIALS: Final = 300
REPLACED: Final = "/replacement"
"""Ends the uid of a moved pod at its new place."""


@dataclass(slots=True)
class ReplaySnapshot:
    """The cluster of a replay as the search sees it; see `placer.core.relocation.plan.Snapshot`."""

    cluster: TraceCluster
    policy: Policy
    own: Resident
    most_moves: int
    _spots: dict[PodUid, list[Spot]] = field(default_factory=dict)
    _host_spots: list[Spot] = field(default_factory=list)

    def spots(self, pod: PodUid) -> Sequence[Spot]:
        """See `Snapshot`."""
        if pod == self.own.request.pod:
            return ()
        if pod not in self._spots:
            self._spots[pod] = self._targets(pod)
        return self._spots[pod]

    def hosts(self, pod: PodUid) -> Sequence[Spot]:
        """See `Snapshot`. For a moved pod, no further pods leave GPUs but those of the waiting pod's hosts."""
        del pod
        if not self._host_spots:
            self._host_spots += self._hosts()
        return self._host_spots

    def evictable(self, pod: PodUid, spot: Spot) -> Sequence[EvictablePod]:
        """See `Snapshot`."""
        node = self.cluster.candidates.find(spot.node)
        gpus = [spot.gpu] if spot.gpu is not None else list(node.rooms if node is not None else ())
        found = {one.pod: one for gpu in gpus for one in self.cluster.ledger.on_gpu(spot.node, gpu)}
        return [
            EvictablePod(one.pod, spot.node, frozenset(grant.gpu for grant in one.grants), 1.0)
            for one in found.values()
            if one.pod != pod and not any(grant.whole for grant in one.grants)
        ]

    def place(
        self, pod: PodUid, spot: Spot, gone: Collection[PodUid], there: Collection[Booking]
    ) -> Booking | None:
        """See `Snapshot`."""
        resident = self._resident(pod)
        left = [self._resident(uid) for uid in gone]
        come = [self._resident(one.pod) for one in there]
        if not self._has_room(spot.node, resident, left, come):
            return None
        found = self.cluster.candidates.find(spot.node)
        if found is None:
            return None
        supposed = GpuDryRun(found.node, self.cluster.ledger, there, spot.gpu)
        for uid in gone:
            supposed.remove(uid)
        request = resident.request
        if pod != self.own.request.pod:  # its own booking may count on the node, or be left out
            request = replace(request, pod=PodUid(pod + REPLACED))
        tried = supposed.plan(request, self.policy)
        return tried.booking if isinstance(tried, Plan) else None

    def traffic_pct(self, node: NodeName, gpu: GpuUuid) -> float:
        """A trace measures no bandwidth."""
        del node, gpu
        return 0.0

    def _has_room(
        self,
        node: NodeName,
        resident: Resident,
        gone: Collection[Resident] = (),
        there: Collection[Resident] = (),
    ) -> bool:
        """Whether a node has the CPU and the memory for a pod, without some of its pods and with some others."""
        cpu_milli, memory_mib = self.cluster.ledger.spare_cpu.on(node) or 0, self.cluster.free_mib[node]
        for one in gone:
            cpu_milli, memory_mib = cpu_milli + one.request.cpu_milli, memory_mib + one.memory_mib
        for one in (*there, resident):
            cpu_milli, memory_mib = cpu_milli - one.request.cpu_milli, memory_mib - one.memory_mib
        return cpu_milli >= 0 and memory_mib >= 0

    def _resident(self, pod: PodUid) -> Resident:
        """A pod, also by the uid of its replacement."""
        uid = PodUid(pod.removesuffix(REPLACED))
        return self.own if uid == self.own.request.pod else self.cluster.residents[uid]

    def _hosts(self) -> list[Spot]:
        """The spots from which fewest pods have to leave."""
        demand = self.own.request.demand.containers[0]
        models, found = self.own.request.demand.gpu_models, list[tuple[int, Spot]]()
        for node in self.cluster.free_mib:
            known = self.cluster.candidates.find(node)
            rooms = (
                [room for room in known.rooms.values() if not models or room.gpu.model in models]
                if known is not None
                else []
            )
            if len(rooms) < demand.gpus:
                continue
            if demand.gpus == 1:
                each = [(self._leaving(node, room), Spot(node, room.gpu.uuid)) for room in rooms]
            else:
                least = sorted(self._leaving(node, room) for room in rooms)[: demand.gpus]
                each = [(sum(least), Spot(node, None))]
            found += [
                (count, spot) for count, spot in each if count <= self.most_moves and self._may_host(spot)
            ]
        return [spot for _, spot in sorted(found, key=lambda one: one[0])[:HOSTS]]

    def _may_host(self, spot: Spot) -> bool:
        """Whether the node has the CPU and the memory for the pod once all that may move has left the spot."""
        gone = [self._resident(one.pod) for one in self.evictable(self.own.request.pod, spot)]
        return self._has_room(spot.node, self.own, gone)

    def _leaving(self, node: NodeName, room: Room) -> int:
        """The fewest pods that have to leave a GPU for one container; more than the most moves if none can."""
        if room.taken_whole:
            return self.most_moves + 1
        demand, free_pct = self.own.request.demand.containers[0], room.free_share_pct
        need_pct = 100 if demand.whole else demand.share_pct
        shares = sorted(
            (one.grants[0].share_pct for one in self.cluster.ledger.on_gpu(node, room.gpu.uuid)), reverse=True
        )
        for count, share_pct in enumerate(shares):
            if free_pct >= need_pct:
                return count
            free_pct += share_pct
        return len(shares) if free_pct >= need_pct else self.most_moves + 1

    def _targets(self, pod: PodUid) -> list[Spot]:
        resident = self._resident(pod)
        best = self.cluster.candidates.best_first(resident.request, self.policy)
        fit = (one for one in best if self._has_room(one.node.node, resident))
        return [Spot(one.node.node, uuid) for one in islice(fit, TARGETS) for uuid in one.rooms]


def relocate(cluster: TraceCluster, policy: Policy, own: Resident, most_moves: int) -> int | None:
    """Give a pod that fits nowhere a place by moving others; returns the number of moves, or None without a plan."""
    if not own.request.demand.containers:
        return None
    snapshot = ReplaySnapshot(cluster, policy, own, most_moves)
    found = result(search(snapshot, own.request.pod, most_moves, MOST_TRIALS))
    if found is None:
        return None
    moved = [(cluster.remove(one.evicted.pod), one.to) for one in found.moves]
    cluster.put(own, found.place)
    for resident, to in moved:
        cluster.put(resident, replace(to, pod=resident.request.pod))
    return len(found.moves)
