"""The cluster as the search for relocations plays on it; see `placer.core.relocation.plan.Board`.

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
from placer.core.relocation.plan import Movable, Spot
from placer.kube.choice import NodeChoice
from placer.kube.cluster.trial import NodeTrial
from placer.kube.pods.nominations import Nomination
from placer.kube.pods.occupants import priority_of
from placer.kube.pods.wanted import Wanted
from placer.kube.preemption.liftable import are_liftable
from placer.kube.relocation.movers import Mover, Movers, replacement_of
from plimsoll.ids import GpuUuid, NodeName, PodUid
from plimsoll.kube.models import Pod
from plimsoll.part.errors import InputError

HOSTS: Final = 64
"""The nodes on which pods may be moved for one waiting pod. Those whose cheapest pod costs least come first."""
TARGETS: Final = 16
"""The nodes with room that are tried for a moved pod, as its policy ranks them."""
READ_AT_ONCE: Final = 4
"""The nodes that are read before other tasks run."""

Understand = Callable[[Pod], Wanted]

_GPU_REASONS: Final = frozenset(reason.value for reason in Reason)


class KubeBoard:
    """The board for one waiting pod; make it by `made`."""

    def __init__(
        self, choice: NodeChoice, wanted: Wanted, understand: Understand, *, spares_idle: bool
    ) -> None:
        """A board on which no pod may be moved yet.

        Args:
            choice: judges nodes.
            wanted: the waiting pod.
            understand: reads a pod's demand; raises `InputError`.
            spares_idle: no pod is moved to an idle GPU.
        """
        self._choice, self._own, self._understand = choice, wanted, understand
        self._spares_idle = spares_idle
        self._movers: dict[NodeName, list[Mover]] = {}
        self.movers: dict[PodUid, Mover] = {}
        self._wanted: dict[PodUid, Wanted | None] = {wanted.request.pod: wanted}
        self._spots: dict[PodUid, list[Spot]] = {}
        self._host_spots: dict[PodUid, list[Spot]] = {wanted.request.pod: []}
        self._traffic: dict[tuple[NodeName, GpuUuid], float] = {}
        self._narrow: dict[tuple[PodUid, NodeName], bool] = {}

    @classmethod
    async def made(
        cls, choice: NodeChoice, wanted: Wanted, movers: Movers, understand: Understand, *, spares_idle: bool
    ) -> "KubeBoard":
        """A board with the pods that may be moved for a waiting pod; see `__init__`."""
        board = cls(choice, wanted, understand, spares_idle=spares_idle)
        occupants = choice.cluster.occupants
        priority = priority_of(wanted.pod)
        found: list[tuple[float, NodeName, list[Mover]]] = []
        for number, node in enumerate(tuple(occupants.relocatable_nodes())):
            if not number % READ_AT_ONCE:
                await asyncio.sleep(0)  # decisions run between two pieces
            on_node = movers.on(node, priority) if choice.cluster.has_node(node) else []
            if on_node:
                found.append((on_node[0].movable.cost, node, on_node))
        for number, (_, node, on_node) in enumerate(sorted(found, key=lambda one: one[:2])[:HOSTS]):
            if not number % READ_AT_ONCE:
                await asyncio.sleep(0)  # decisions run between two pieces
            board._offer(node, on_node)
        return board

    def _offer(self, node: NodeName, movers: list[Mover]) -> None:
        """Let pods of a node move.

        The waiting pod may go there if the end of pods can lift all reasons against the node, and one is about GPUs.
        """
        self._movers[node] = movers
        for one in movers:
            self.movers[one.movable.pod] = one
        reasons = self._choice.reasons_against(self._own, node)
        if are_liftable(reasons) and not _GPU_REASONS.isdisjoint(reasons):
            self._host_spots[self._own.request.pod] += self._spots_on(self._own.request.pod, node)

    @property
    def is_empty(self) -> bool:
        """Whether no pod may be moved."""
        return not self._movers

    def spots(self, pod: PodUid) -> Sequence[Spot]:
        """See `Board`. The waiting pod was refused by all nodes as they are."""
        if pod == self._own.request.pod:
            return ()
        if pod not in self._spots:
            self._spots[pod] = [spot for node in self._targets(pod) for spot in self._spots_on(pod, node)]
        return self._spots[pod]

    def hosts(self, pod: PodUid) -> Sequence[Spot]:
        """See `Board`."""
        if pod not in self._host_spots:
            self._host_spots[pod] = [spot for node in self._movers for spot in self._spots_on(pod, node)]
        return self._host_spots[pod]

    def movable(self, pod: PodUid, spot: Spot) -> Sequence[Movable]:
        """See `Board`."""
        movers = self._movers.get(spot.node, ())
        is_narrow = spot.gpu is not None and self._is_narrow(pod, spot.node)
        return [
            one.movable
            for one in movers
            if one.movable.pod != pod and (not is_narrow or spot.gpu in one.movable.gpus)
        ]

    def place(
        self, pod: PodUid, spot: Spot, gone: Collection[PodUid], there: Collection[Booking]
    ) -> Booking | None:
        """See `Board`."""
        if self.wanted(pod) is None:
            return None
        beside = [self.nomination(one) for one in there]
        trial = self._trial(pod, spot.node, spot.gpu, beside)
        for uid in gone:
            one = self._choice.cluster.occupants.find(uid)
            if one is None:
                return None  # it ended meanwhile
            trial.remove(one)
        mover = self.movers.get(pod)
        if mover is not None and pod not in gone:
            trial.leave_out(pod)
        plan = trial.plan()
        return plan.booking if isinstance(plan, Plan) else None

    def traffic_pct(self, node: NodeName, gpu: GpuUuid) -> float:
        """See `Board`."""
        if (node, gpu) not in self._traffic:
            found = self._choice.decider.candidates.find(node)
            for one in found.node.gpus if found is not None else ():
                self._traffic[node, one.uuid] = one.memory_busy_pct or 0.0
        return self._traffic.setdefault((node, gpu), 0.0)

    def wanted(self, pod: PodUid) -> Wanted | None:
        """The demand of the waiting pod, or of the replacement of a pod that moves; None if it cannot be read."""
        if pod not in self._wanted:
            try:
                wanted = self._understand(replacement_of(self.movers[pod].occupant.pod))
            except InputError:
                wanted = None  # other settings may refuse it now
            self._wanted[pod] = wanted
            if wanted is not None:
                self._wanted[wanted.request.pod] = wanted
        return self._wanted[pod]

    def nomination(self, booking: Booking, leaving: Collection[Movable] = ()) -> Nomination:
        """The nomination that holds a place of a plan, in which these pods leave their nodes."""
        wanted = self._wanted[booking.pod]
        assert wanted is not None, "a place was planned for it"
        victims = frozenset(one.pod for one in leaving if one.node == booking.node)
        return Nomination(wanted.pod, booking.node, wanted.needs, booking, victims)

    def _trial(
        self, pod: PodUid, node: NodeName, gpu: GpuUuid | None, beside: Sequence[Nomination] = ()
    ) -> NodeTrial:
        choice, wanted = self._choice, self.wanted(pod)
        assert wanted is not None, "only pods whose demand can be read are tried"
        return NodeTrial(choice.decider, choice.cluster, wanted, node, gpu, beside=beside)

    def _targets(self, pod: PodUid) -> list[NodeName]:
        """The nodes that have room for a moved pod, and its own node, which has other GPUs."""
        wanted = self.wanted(pod)
        if wanted is None:
            return []
        best = self._choice.decider.candidates.best_first(wanted.request, wanted.policy)
        names = (one.node.node for one in islice(best, TARGETS))
        return list(dict.fromkeys((*names, self.movers[pod].movable.node)))

    def _spots_on(self, pod: PodUid, node: NodeName) -> list[Spot]:
        wanted = self.wanted(pod)
        containers = wanted.request.demand.containers if wanted is not None else ()
        found = self._choice.decider.candidates.find(node)
        if found is None or not self._choice.cluster.has_node(node):
            return []
        is_kept_off = self._spares_idle and pod != self._own.request.pod
        if len(containers) != 1 or containers[0].gpus != 1:
            return [] if is_kept_off else [Spot(node, None)]
        return [Spot(node, uuid) for uuid, room in found.rooms.items() if not (is_kept_off and room.is_empty)]

    def _is_narrow(self, pod: PodUid, node: NodeName) -> bool:
        """Whether only GPUs are short for a pod, so that pods on other GPUs need not leave."""
        key = pod, node
        if key not in self._narrow:
            self._narrow[key] = not self._trial(pod, node, None).misfits()
        return self._narrow[key]
