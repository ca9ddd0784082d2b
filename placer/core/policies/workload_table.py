"""The idle parts of all nodes as arrays, and policies that weigh a place by the loss of what they offer typical pods.

A node is worth what its idle GPUs offer the target workload (`placer.core.target_workload`). A place costs the worth
that the node loses by it. What always holds: the worth of a node depends on its idle GPUs and spare CPU alone, and
sums over GPUs enter it, so a search looks up a few numbers for each node and typical pod.

GPUs have one measure here: the lesser of free share and free memory, in thousandths of the GPU.
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from placer.core.index import Index, Surroundings
from placer.core.ledger import Ledger
from placer.core.node_index import NO_PLACE, Bounds, NodeIndex, Slots
from placer.core.policies.policy import Judgement, Policy
from placer.core.policy_context import AssignedGpu, Context, Request, Rooms
from placer.core.room import SHARERS_PER_GPU, Room
from placer.core.target_workload import GpuType, PodType, TargetWorkload, pod_type_of
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import NodeName

LEVELS: Final = 1001
"""The idle parts that a GPU may have, 0 to 1000 thousandths."""

MEASURED_AGAIN: Final = 100
"""The changes of nodes after which the scarcity of places is measured again: then all bounds are computed anew."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def idle_milli(room: Room) -> int:
    """The idle part of a GPU, in thousandths; 1000 only for one that can be given whole."""
    if room.is_empty:
        return 1000
    if room.taken_whole or room.sharers >= SHARERS_PER_GPU:
        return 0
    of_memory = 1000 * max(room.declarable_bytes, 0) // room.gpu.usable_bytes
    return max(min(10 * room.free_share_pct, of_memory, 999), 0)


@dataclass(frozen=True, slots=True)
class States:
    """The states of some nodes.

    Attributes:
        offers: for each node, measure and typical pod, the sum over its GPUs, see `WorkloadPolicy.offers`.
        cpu_milli: the spare CPU of each; infinite where unknown.
        gpu_type: the number of each node's type of GPUs.
    """

    offers: Floats
    cpu_milli: Floats
    gpu_type: Ints


class TypicalPods:
    """The typical pods that ask for GPUs as arrays; T pod types and C types of GPUs.

    Attributes:
        cpu_milli, gpus: of each pod type.
        need_milli: by type of GPU and pod type, the part of each GPU.
        weight: by type of GPU and pod type, the popularity; 0 where the model is not acceptable.
        offers: by type of GPU and idle part, for each measure and pod type, see `WorkloadPolicy.offers`.
        per_place: by type of GPU and pod type, the worth of a place, in thousandths of a GPU.
        serial: rises with each change of the scarcity of places.
        gpu_type_count: the number of types of GPUs, C.
    """

    def __init__(self, workload: TargetWorkload, policy: "WorkloadPolicy") -> None:
        gpu_types = list(workload.gpu_types)
        typical = [one for one in workload.typical if one.pod_type.gpus]
        pod_types = [one.pod_type for one in typical]
        shape = (len(gpu_types), len(pod_types))
        self.gpu_type_count = len(gpu_types)
        self.cpu_milli: Floats = np.array([pod_type.cpu_milli for pod_type in pod_types], float)
        self.gpus: Floats = np.array([pod_type.gpus for pod_type in pod_types], float)
        needs = [
            [pod_type.need_milli(gpu_type.usable_bytes) for pod_type in pod_types] for gpu_type in gpu_types
        ]
        self.need_milli: Floats = np.array(needs, float).reshape(shape)
        admits = [[_admits(pod_type, gpu_type.model) for pod_type in pod_types] for gpu_type in gpu_types]
        popularity = np.array([one.popularity for one in typical], float)
        self.weight: Floats = np.array(admits, float).reshape(shape) * popularity
        levels = np.arange(LEVELS, dtype=float)[:, None]
        offers = [policy.offers(levels, np.maximum(need, 1.0)) for need in self.need_milli]
        self.offers: Floats = np.stack(offers)
        self.set_scarcity(np.ones(len(pod_types)))
        self.serial = 0

    def set_scarcity(self, scarcity: Floats) -> None:
        """Set the factor by which the places of each pod type count."""
        self._scarcity = scarcity
        self.per_place: Floats = self.weight * self.need_milli * (self.gpus * scarcity)

    @classmethod
    def of(cls, workload: TargetWorkload, policy: "WorkloadPolicy") -> "TypicalPods":
        """Those of the workload as it is, and of all types of GPUs that were seen."""
        known = workload.derived.get(policy.name)
        if isinstance(known, TypicalPods) and known.gpu_type_count == len(workload.gpu_types):
            return known
        made = workload.derived[policy.name] = cls(workload, policy)
        if isinstance(known, TypicalPods):
            made.set_scarcity(known._scarcity)  # noqa: SLF001 - of the same class
            made.serial = known.serial + 1
        return made


def _admits(pod_type: PodType, model: str) -> bool:
    return not pod_type.models or model in pod_type.models


class WorkloadPolicy(Policy):
    """A policy that takes the place whose node loses least of its worth to the workload."""

    __slots__ = ()

    @abstractmethod
    def offers(self, idle_milli: Floats, need_milli: Floats) -> Floats:
        """The offer of one GPU to typical pods, in one or more measures. A node offers the sum over its GPUs.

        Args:
            idle_milli: levels × 1.
            need_milli: the part of a GPU that each of T pod types takes, 1 to 1000.

        Returns:
            Levels × measures × T.
        """

    @abstractmethod
    def places(self, states: States, typicals: TypicalPods) -> Floats:
        """The pods of each type that nodes have places for, nodes × T, as this policy counts; whatever the model."""

    @abstractmethod
    def worth(self, lost_milli: Floats, request_milli: Floats) -> Floats:
        """The scores, 0 to 1, of places by which their nodes lose worth.

        Args:
            lost_milli: the loss of Σ weight × places × the part of GPUs that the pod type takes.
            request_milli: the part of GPUs that the pod takes.
        """

    def scarcity(self, supply: Floats, capacity: Floats) -> Floats | None:  # noqa: ARG002 - for overriding
        """The factor by which the places of each pod type count; None: all alike, for ever.

        Args:
            supply: the places that all nodes have now for each of T pod types.
            capacity: the places that they would have if all their GPUs were idle, whatever their models and CPU.
        """
        return None

    def value(self, states: States, typicals: TypicalPods) -> Floats:
        """The worth of nodes to the workload, in thousandths of a GPU."""
        worth: Floats = (self.places(states, typicals) * typicals.per_place[states.gpu_type]).sum(axis=1)
        return worth

    def scores(self, lost_milli: Floats, request_milli: Floats, after: States) -> Floats:  # noqa: ARG002 - for overriding
        """The scores of places that leave nodes in the state `after`; else see `worth`."""
        return self.worth(lost_milli, request_milli)

    def index(self, around: Surroundings) -> Index:
        """An index by pod type."""
        return NodeIndex(WorkloadTable(self, around.ledger), around)

    def arrange(self, context: Context, demand: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:
        """The GPUs by which the node loses least, the first of equal ones first."""
        if demand.whole or len(fitting) == 1:
            return fitting
        node = _Node(self, context, {**context.rooms, **{room.gpu.uuid: room for room in fitting}})
        scores, _ = node.judged([[(room, demand)] for room in fitting])
        return [fitting[place] for place in np.argsort(-scores, kind="stable")]

    def judge(self, context: Context, assigned: Sequence[AssignedGpu]) -> Judgement:
        """Judge by the loss of the node, in GPUs that the workload could have used."""
        if not context.rooms:
            return Judgement(0.0, {})
        node = _Node(self, context, context.rooms)
        (score,), (lost_milli,) = node.judged([[(one.room, one.demand) for one in assigned]])
        parts = {
            f"{one.demand.container}/{one.grant.gpu}": self.sub_scores(one.room, one.demand)
            for one in assigned
        }
        return Judgement(float(score), {**parts, "node": {"lost_gpus": round(float(lost_milli) / 1000, 6)}})

    def rank(self, room: Room) -> float:  # noqa: ARG002 - a GPU by itself says nothing
        """1: the score depends on the pod and on the other GPUs of the node."""
        return 1.0

    def score(self, room: Room, demand: ContainerDemand) -> float:
        """The part of the GPU, 0 to 1, that is in use with the container."""
        return min(1 - (idle_milli(room) - _need_milli(demand, room)) / 1000, 1.0)

    def sub_scores(self, room: Room, demand: ContainerDemand) -> dict[str, float]:
        """The part of the GPU, 0 to 1, that is in use with the container."""
        return {"packed": round(self.score(room, demand), 6)}


def _need_milli(demand: ContainerDemand, room: Room) -> int:
    pod_type = pod_type_of(PodDemand((demand,)), 0)
    return pod_type.need_milli(room.gpu.usable_bytes)


class _Node:
    """One node as a plan sees it, judged by the same arithmetic as in the table."""

    def __init__(self, policy: WorkloadPolicy, context: Context, rooms: Rooms) -> None:
        workload = context.ledger.workload
        self._policy = policy
        self._gpu_type = workload.number(_gpu_type(next(iter(rooms.values()))))
        self._typicals = TypicalPods.of(workload, policy)
        self._idle = {uuid: idle_milli(room) for uuid, room in rooms.items()}
        spare = context.ledger.spare_cpu.on(context.node.node)
        self._cpu_milli = np.inf if spare is None else float(spare)
        self._request = context.request
        self._worth = policy.value(self._states([self._idle.values()], self._cpu_milli), self._typicals)

    def judged(self, places: Sequence[Sequence[tuple[Room, ContainerDemand]]]) -> tuple[Floats, Floats]:
        """The scores of several places, and the losses by them in thousandths of a GPU. A place has these GPUs."""
        left, requests_milli = [], []
        for place in places:
            idle, request_milli = dict(self._idle), 0
            for room, demand in place:
                need = _need_milli(demand, room)
                request_milli += need
                idle[room.gpu.uuid] = max(idle[room.gpu.uuid] - need, 0)
            left.append(idle.values())
            requests_milli.append(request_milli)
        after = self._states(left, self._cpu_milli - self._request.cpu_milli)
        lost_milli = self._worth - self._policy.value(after, self._typicals)
        return self._policy.scores(lost_milli, np.array(requests_milli, float), after), lost_milli

    def _states(self, idle: Sequence[Iterable[int]], cpu_milli: float) -> States:
        offers = self._typicals.offers[self._gpu_type, [list(one) for one in idle]].sum(axis=1)
        return States(offers, np.full(len(idle), cpu_milli), np.full(len(idle), self._gpu_type))


def _gpu_type(room: Room) -> GpuType:
    return GpuType(room.gpu.model, room.gpu.usable_bytes)


class WorkloadTable:
    """The idle parts of all nodes: a `placer.core.node_index.Table`."""

    def __init__(self, policy: WorkloadPolicy, ledger: Ledger) -> None:
        self._policy = policy
        self._ledger = ledger
        # By slot: the idle parts of its GPUs, falling; 0 for no GPU.
        self._idle: Ints = np.zeros((0, 1), np.int64)
        self._cpu_milli: Floats = np.zeros(0)
        self._gpu_type: Ints = np.zeros(0, np.int64)
        self._gpus: Ints = np.zeros(0, np.int64)
        self._is_mixed: Bools = np.zeros(0, np.bool_)
        self._offers: Floats = np.zeros((0, 0, 0))
        self._worth: Floats = np.zeros(0)
        self._typicals: TypicalPods | None = None  # by which the offers are
        self._puts = 0

    def put(self, slot: int, node: NodeName, rooms: Rooms) -> None:
        """Read a node again."""
        gpu_types = list(dict.fromkeys(map(_gpu_type, rooms.values())))
        self._reserve(slot, len(rooms))
        self._idle[slot] = 0
        self._idle[slot, : len(rooms)] = sorted(map(idle_milli, rooms.values()), reverse=True)
        spare = self._ledger.spare_cpu.on(node)
        self._cpu_milli[slot] = np.inf if spare is None else spare
        self._gpu_type[slot] = self._ledger.workload.number(gpu_types[0]) if gpu_types else 0
        self._gpus[slot] = len(rooms)
        self._is_mixed[slot] = len(gpu_types) > 1
        self._puts += 1
        known = self._typicals
        if known is not None and known is TypicalPods.of(self._ledger.workload, self._policy):
            self._offers[slot] = known.offers[self._gpu_type[slot], self._idle[slot]].sum(axis=0)
            self._worth[slot] = self._policy.value(self._states(np.array([slot])), known)[0]

    def pod_type(self, request: Request) -> Hashable:
        """The type of the pod, and whether it has several containers."""
        return pod_type_of(request.demand, request.cpu_milli), len(request.demand.containers) > 1

    def version(self) -> Hashable:
        """The version of the workload, and of the scarcity of its places, which is measured again now and then."""
        workload = self._ledger.workload
        typicals = TypicalPods.of(workload, self._policy)
        if typicals is not self._typicals:
            self._typicals = typicals
            self._offers = typicals.offers[self._gpu_type[:, None], self._idle].sum(axis=1)
            self._worth = self._policy.value(self._states(), typicals)
            self._puts = MEASURED_AGAIN
        if self._puts >= MEASURED_AGAIN:
            self._puts = 0
            self._measure(typicals)
        return workload.version, len(workload.gpu_types), typicals.serial

    def _measure(self, typicals: TypicalPods) -> None:
        states = self._states()
        admits = (typicals.weight > 0)[self._gpu_type]
        sizes = np.maximum(typicals.gpus * typicals.need_milli, 1.0)[self._gpu_type]
        capacity = (1000.0 * self._gpus[:, None] / sizes).sum(axis=0)
        supply = (admits * self._policy.places(states, typicals)).sum(axis=0)
        scarcity = self._policy.scarcity(supply, capacity)
        if scarcity is not None:
            typicals.set_scarcity(scarcity)
            typicals.serial += 1
            self._worth = self._policy.value(states, typicals)

    def _states(self, slots: Slots | None = None) -> States:
        """The states of these nodes, or of all."""
        if slots is None:
            return States(self._offers, self._cpu_milli, self._gpu_type)
        return States(self._offers[slots], self._cpu_milli[slots], self._gpu_type[slots])

    def bounds(self, request: Request, slots: Slots) -> Bounds:
        """The score of the best place on each node; 1 where the pod is more than one demand, or the GPUs differ."""
        pod_type = pod_type_of(request.demand, request.cpu_milli)
        needs = [pod_type.need_milli(one.usable_bytes) for one in self._ledger.workload.gpu_types]
        need: Ints = np.array(needs)[self._gpu_type[slots]]
        fits, has_place = self._fits(pod_type, slots, need)
        found: Bounds = np.full(len(slots), NO_PLACE)
        found[has_place] = 1.0
        exact = has_place & ~self._is_mixed[slots]
        several = len(request.demand.containers) > 1 or (pod_type.gpus > 1 and pod_type.share_milli < 1000)
        if several or not exact.any():
            return found
        if pod_type.gpus and pod_type.share_milli < 1000:
            idle = self._idle[slots]
            fits[:, 1:] &= idle[:, 1:] != idle[:, :-1]  # one of equal GPUs
            fits[~exact] = False
            at, column = np.nonzero(fits)
            taken = idle[at, column]
        else:
            at = np.flatnonzero(exact)
            taken = np.full(len(at), 1000 if pod_type.gpus else 0)
        scores = self._scores(slots[at], taken, need[at], pod_type)
        first = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        found[at[first]] = np.maximum.reduceat(scores, first)
        return found

    def _fits(self, pod_type: PodType, slots: Slots, need: Ints) -> tuple[Bools, Bools]:
        """Whether the pod type fits on each GPU of these nodes, and whether it may have a place on each node."""
        idle = self._idle[slots]
        fits = (idle >= need[:, None]) | (idle + 1 >= need[:, None]) & (need[:, None] < 1000)
        admits = np.array([_admits(pod_type, one.model) for one in self._ledger.workload.gpu_types])
        has_cpu = self._cpu_milli[slots] >= pod_type.cpu_milli
        has_place = (
            admits[self._gpu_type[slots]] & has_cpu & (fits.sum(axis=1) >= pod_type.gpus)
            | self._is_mixed[slots]
        )
        return fits, has_place

    def _scores(self, slots: Slots, taken: Ints, need: Ints, pod_type: PodType) -> Floats:
        """The scores of places, each on a slot: the pod takes `need` of GPUs that are idle in this part."""
        typicals = self._typicals
        assert typicals is not None, "the version was asked for first"
        before = self._states(slots)
        change = typicals.offers[before.gpu_type, np.maximum(taken - need, 0)]
        change -= typicals.offers[before.gpu_type, taken]
        after = States(
            before.offers + pod_type.gpus * change, before.cpu_milli - pod_type.cpu_milli, before.gpu_type
        )
        lost_milli = self._worth[slots] - self._policy.value(after, typicals)
        return self._policy.scores(lost_milli, (pod_type.gpus * need).astype(float), after)

    def _reserve(self, slot: int, gpus: int) -> None:
        """Have room for a slot, and for a node of this many GPUs."""
        slots, width = self._idle.shape
        if slot < slots and gpus <= width:
            return
        size = slots if slot < slots else max(2 * slot, 64)
        idle = np.zeros((size, max(width, gpus)), np.int64)
        idle[:slots, :width] = self._idle
        self._idle = idle
        if size > slots:
            self._cpu_milli, self._gpu_type, self._gpus, self._is_mixed = (
                np.concatenate([one, np.zeros(size - slots, one.dtype)])
                for one in (self._cpu_milli, self._gpu_type, self._gpus, self._is_mixed)
            )
        self._typicals = None  # all offers are summed up again
