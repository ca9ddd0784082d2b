"""The pods and nodes that the search for relocations reads; see `placer.core.relocation.plan.Snapshot`.

What always holds: nothing is changed here, and a place is one that a decision would give, by all rules of Kubernetes
about the node and by the room of its GPUs. Rules about pods of other nodes count as if these pods stayed, but for the
moved pod itself.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from itertools import islice
from typing import Final

from placer.core.booking import Booking
from placer.core.plan import Plan
from placer.core.reasons import Reason
from placer.core.relocation.plan import EvictablePod, Spot
from placer.relocation.evictable import EvictablePods, replacement_of
from placer.scheduler.dry_run import NodeDryRun
from placer.scheduler.pods.assigned_pods import priority_of
from placer.scheduler.pods.nominator import Nomination
from placer.scheduler.pods.pod_info import PodInfo
from placer.scheduler.schedule_pod import PodScheduling
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError

HOSTS: Final = 64
"""The nodes on which pods may be moved for one waiting pod. Those whose cheapest pod costs least come first."""
TARGETS: Final = 16
"""The nodes with room that are tried for a moved pod, as its policy ranks them."""
READ_AT_ONCE: Final = 4
"""The nodes that are read before other tasks run."""

Understand = Callable[[Pod], PodInfo]

_GPU_REASONS: Final = frozenset(reason.value for reason in Reason)


class ClusterSnapshot:
    """The snapshot for one waiting pod."""

    def __init__(
        self, scheduling: PodScheduling, info: PodInfo, understand: Understand, *, spares_idle: bool
    ) -> None:
        """No pod may be moved yet, see `read`.

        Args:
            scheduling: judges nodes.
            info: the waiting pod.
            understand: reads a pod's demand; raises `InputError`.
            spares_idle: no pod is moved to an idle GPU.
        """
        self._scheduling, self._own, self._understand = scheduling, info, understand
        self._spares_idle = spares_idle
        self._evictable: dict[NodeName, list[EvictablePod]] = {}
        self._infos: dict[PodUid, PodInfo | None] = {info.request.pod: info}
        self._spots: dict[PodUid, list[Spot]] = {}
        self._host_spots: dict[PodUid, list[Spot]] = {info.request.pod: []}
        self._traffic: dict[tuple[NodeName, GpuUuid], float] = {}
        self._narrow: dict[tuple[PodUid, NodeName], bool] = {}

    async def read(self, evictable: EvictablePods) -> None:
        """Read which pods may be moved for the waiting pod. Other tasks run meanwhile."""
        cache, priority = self._scheduling.cache, priority_of(self._own.pod)
        found: list[tuple[float, NodeName, list[EvictablePod]]] = []
        for number, node in enumerate(tuple(cache.assigned.relocatable_nodes())):
            if not number % READ_AT_ONCE:
                await asyncio.sleep(0)  # decisions run between two pieces
            on_node = evictable.on(node, priority) if cache.has_node(node) else []
            if on_node:
                found.append((on_node[0].cost, node, on_node))
        for number, (_, node, on_node) in enumerate(sorted(found, key=lambda one: one[:2])[:HOSTS]):
            if not number % READ_AT_ONCE:
                await asyncio.sleep(0)  # decisions run between two pieces
            self._evictable[node] = on_node
            self._host_spots[self._own.request.pod] += self._own_hosts(node)

    def _own_hosts(self, node: NodeName) -> list[Spot]:
        """The spots of a node for the waiting pod.

        None unless the end of pods can lift all reasons against the node, and one is about GPUs.
        """
        reasons = self._scheduling.reasons_against(self._own, node)
        if not self._scheduling.profile.framework.is_resolvable(reasons) or _GPU_REASONS.isdisjoint(reasons):
            return []
        return self._spots_on(self._own.request.pod, node)

    @property
    def is_empty(self) -> bool:
        """Whether no pod may be moved."""
        return not self._evictable

    def spots(self, pod: PodUid) -> Sequence[Spot]:
        """See `Snapshot`. The waiting pod was refused by all nodes as they are."""
        if pod == self._own.request.pod:
            return ()
        if pod not in self._spots:
            self._spots[pod] = [spot for node in self._targets(pod) for spot in self._spots_on(pod, node)]
        return self._spots[pod]

    def hosts(self, pod: PodUid) -> Sequence[Spot]:
        """See `Snapshot`."""
        if pod not in self._host_spots:
            self._host_spots[pod] = [spot for node in self._evictable for spot in self._spots_on(pod, node)]
        return self._host_spots[pod]

    def evictable(self, pod: PodUid, spot: Spot) -> Sequence[EvictablePod]:
        """See `Snapshot`."""
        is_narrow = spot.gpu is not None and self._is_narrow(pod, spot.node)
        return [
            one
            for one in self._evictable.get(spot.node, ())
            if one.pod != pod and (not is_narrow or spot.gpu in one.gpus)
        ]

    def place(
        self, pod: PodUid, spot: Spot, gone: Collection[PodUid], there: Collection[Booking]
    ) -> Booking | None:
        """See `Snapshot`."""
        if self.info(pod) is None:
            return None
        beside = [self.nomination(one) for one in there]
        dry_run = self._dry_run(pod, spot.node, spot.gpu, beside)
        for uid in gone:
            one = self._scheduling.cache.assigned.find(uid)
            if one is None:
                return None  # it ended meanwhile
            dry_run.remove(one)
        if pod != self._own.request.pod and pod not in gone:
            dry_run.leave_out(pod)
        plan = dry_run.plan()
        return plan.booking if isinstance(plan, Plan) else None

    def traffic_pct(self, node: NodeName, gpu: GpuUuid) -> float:
        """See `Snapshot`."""
        if (node, gpu) not in self._traffic:
            found = self._scheduling.decider.candidates.find(node)
            for one in found.node.gpus if found is not None else ():
                self._traffic[node, one.uuid] = one.memory_busy_pct or 0.0
        return self._traffic.setdefault((node, gpu), 0.0)

    def info(self, pod: PodUid) -> PodInfo | None:
        """The demand of the waiting pod, or of the replacement of a pod that moves; None if it cannot be read."""
        if pod not in self._infos:
            known = self._scheduling.cache.assigned.find(pod)
            try:
                info = self._understand(replacement_of(known.pod)) if known is not None else None
            except InputError:
                info = None  # other settings may refuse it now
            self._infos[pod] = info
            if info is not None:
                self._infos[info.request.pod] = info
        return self._infos[pod]

    def nomination(self, booking: Booking, leaving: Collection[EvictablePod] = ()) -> Nomination:
        """The nomination that holds a place of a plan, in which these pods leave their nodes."""
        info = self._infos[booking.pod]
        assert info is not None, "a place was planned for it"
        victims = frozenset(one.pod for one in leaving if one.node == booking.node)
        return Nomination(info.pod, booking.node, info.needs, booking, victims)

    def _dry_run(
        self, pod: PodUid, node: NodeName, gpu: GpuUuid | None, beside: Sequence[Nomination] = ()
    ) -> NodeDryRun:
        scheduling, info = self._scheduling, self.info(pod)
        assert info is not None, "only pods whose demand can be read are tried"
        return NodeDryRun(scheduling.decider, scheduling.profile, info, node, gpu, beside=beside)

    def _targets(self, pod: PodUid) -> list[NodeName]:
        """The nodes that have room for a moved pod, and its own node, which has other GPUs."""
        info, known = self.info(pod), self._scheduling.cache.assigned.find(pod)
        if info is None or known is None:
            return []
        best = self._scheduling.decider.candidates.best_first(info.request, info.policy)
        names = (one.node.node for one in islice(best, TARGETS))
        return list(dict.fromkeys((*names, known.node)))

    def _spots_on(self, pod: PodUid, node: NodeName) -> list[Spot]:
        info = self.info(pod)
        containers = info.request.demand.containers if info is not None else ()
        found = self._scheduling.decider.candidates.find(node)
        if found is None or not self._scheduling.cache.has_node(node):
            return []
        is_kept_off = self._spares_idle and pod != self._own.request.pod
        if len(containers) != 1 or containers[0].gpus != 1:
            return [] if is_kept_off else [Spot(node, None)]
        return [Spot(node, uuid) for uuid, room in found.rooms.items() if not (is_kept_off and room.is_empty)]

    def _is_narrow(self, pod: PodUid, node: NodeName) -> bool:
        """Whether only GPUs are short for a pod, so that pods on other GPUs need not leave."""
        key = pod, node
        if key not in self._narrow:
            self._narrow[key] = not self._dry_run(pod, node, None).filter()
        return self._narrow[key]
