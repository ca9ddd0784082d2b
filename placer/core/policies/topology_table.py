"""The bounds of nodes for the policy `topology`: the score of the best GPUs for the pod's hardest container."""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from placer.core.index import Surroundings
from placer.core.node_index import NO_PLACE, Bounds, NodeIndex, Slots
from placer.core.policies.best_gpus import (
    FRAGMENT,
    Links,
    chosen,
    empty_among,
    links_of,
    owner_models,
    packed,
    worth,
)
from placer.core.policy_context import Request, Rooms
from placer.core.room import Room, misfit
from placer.core.topology.sets import REMEMBERED, Shape, best_set
from placer.core.view import NodeView
from plimsoll.demand import ContainerDemand, PodDemand, hardest_first
from plimsoll.ids import GpuUuid, NodeName


class _State(NamedTuple):
    """A node whose GPUs all have one model, as pods of every type read it.

    Attributes:
        model: the model of its GPUs.
        instances: whether a GPU is a MIG instance.
        links: those between its GPUs.
        empty: the places of its empty GPUs.
        alike: whether a container that fits on one empty GPU fits on all of them.
        used: its GPUs in use, the fullest first, each with its packed part.
    """

    model: str
    instances: bool
    links: Links
    empty: frozenset[int]
    alike: bool
    used: Sequence[tuple[float, Room]]


class TopologyTable:
    """All nodes, by slot: a `placer.core.node_index.Table`."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._nodes: dict[int, tuple[NodeName, Rooms]] = {}
        self._states: dict[int, _State | None] = {}  # None: GPUs of several models

    def put(self, slot: int, node: NodeName, rooms: Rooms) -> None:
        """Keep a node's rooms."""
        self._nodes[slot] = node, rooms
        self._states.pop(slot, None)

    def pod_type(self, request: Request) -> Hashable:
        """Everything that bounds depend on, of a pod."""
        demand, ledger = request.demand, self._around.ledger
        hardest = min(demand.containers, key=hardest_first)
        asked = (hardest.gpus, hardest.memory_bytes, hardest.memory_pct, hardest.share_pct, hardest.whole)
        expected = ledger.best_effort_bytes(request.owner) if hardest.best_effort else None
        models = frozenset(demand.gpu_models), owner_models(request, ledger)
        return asked, expected, models, demand.locality, demand.gpu_name is None

    def version(self) -> Hashable:
        """Bounds depend on the pod's type and on the nodes alone."""
        return None

    def bounds(self, request: Request, slots: Slots) -> Bounds:
        """The bound of each node."""
        allowed = owner_models(request, self._around.ledger)
        hardest = min(request.demand.containers, key=hardest_first)
        expected_bytes = self._around.ledger.best_effort_bytes(request.owner)
        asked = _Asked(request.demand, hardest, expected_bytes, allowed)
        return np.array([self._bound(asked, slot) for slot in slots.tolist()])

    def _bound(self, asked: "_Asked", slot: int) -> float:
        node, rooms = self._nodes[slot]
        if slot not in self._states:
            self._states[slot] = _state(self._around.nodes[node].node, rooms)
        state = self._states[slot]
        if (
            state is None
            or asked.pod.gpu_name is not None
            or (asked.hardest.gpus > 1 and not asked.hardest.whole)
        ):
            return asked.bound_among(self._around.nodes[node].node, rooms)
        if not asked.admits(state.model):
            return NO_PLACE
        return asked.bound_of_whole(state) if asked.hardest.whole else asked.bound_of_part(state, rooms)


def _state(node: NodeView, rooms: Rooms) -> _State | None:
    models = {room.gpu.model for room in rooms.values()}
    if len(models) != 1:
        return None
    links = links_of(node, rooms)
    used = sorted(
        ((packed(room), room) for room in rooms.values() if not room.is_empty), key=lambda one: -one[0]
    )
    instances = any(room.gpu.is_instance for room in rooms.values())
    sizes = {(room.free_bytes, room.promisable_bytes) for room in rooms.values() if room.is_empty}
    return _State(models.pop(), instances, links, empty_among(links, rooms), len(sizes) < 2, used)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The demand of a pod, whose bounds are computed.

    Attributes:
        hardest: its hardest container.
        expected_bytes: see `misfit`.
        allowed: the models of its owner's other pods; none for any.
    """

    pod: PodDemand
    hardest: ContainerDemand
    expected_bytes: int
    allowed: Collection[str]

    def admits(self, model: str) -> bool:
        """Whether the pod may have GPUs of this model."""
        return (not self.pod.gpu_models or model in self.pod.gpu_models) and (
            not self.allowed or model in self.allowed
        )

    def fits(self, room: Room) -> bool:
        """Whether the container fits on the GPU."""
        return misfit(room, self.hardest, self.expected_bytes, self.pod.locality) is None

    def bound_of_whole(self, state: _State) -> float:
        """The score of the best empty GPUs; it depends on nothing but which ones are empty."""
        if len(state.empty) < self.hardest.gpus or (state.instances and self.hardest.gpus > 1):
            return NO_PLACE
        return _worth_of_empty(state.links.shape, state.empty, self.hardest.gpus)

    def bound_of_part(self, state: _State, rooms: Rooms) -> float:
        """The score of the fullest GPU in use that fits, or else of the empty one that later pods need least."""
        for part, room in state.used:
            if room.free_share_pct >= self.hardest.share_pct and self.fits(room):
                return FRAGMENT + (1 - FRAGMENT) * part
        empty = [room for room in rooms.values() if room.is_empty]
        if state.alike:
            fits = bool(empty) and self.fits(empty[0])
            return _worth_of_empty(state.links.shape, state.empty, 1) if fits else NO_PLACE
        fitting = [state.links.places[room.gpu.uuid] for room in empty if self.fits(room)]
        return max(
            (FRAGMENT * state.links.shape.apartness(place, state.empty) for place in fitting),
            default=NO_PLACE,
        )

    def bound_among(self, node: NodeView, rooms: Rooms) -> float:
        """The score of the GPUs that a plan takes, found as a plan finds them."""
        models = self.pod.gpu_models
        usable = {gpu: room for gpu, room in rooms.items() if not models or room.gpu.model in models}
        fitting = [room for room in usable.values() if self.admits(room.gpu.model) and self.fits(room)]
        if len(fitting) < self.hardest.gpus:
            return NO_PLACE
        if self.pod.gpu_name is not None:
            return 1.0  # each GPU is planned alone, and has no neighbour then
        links = links_of(node, usable)
        empty = empty_among(links, usable)
        return worth(links, empty, chosen(links, empty, fitting, self.hardest.gpus))


@lru_cache(REMEMBERED)
def _worth_of_empty(shape: Shape, empty: frozenset[int], count: int) -> float:
    if count == 1:
        return max(FRAGMENT * shape.apartness(place, empty) for place in empty)
    return shape.nearness(best_set(shape, tuple(sorted(empty)), count, empty))


class TopologyIndex:
    """All nodes by their bounds, and in any order for pods without a GPU: a `placer.core.index.Index`."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._nodes = NodeIndex(TopologyTable(around), around)

    def move(self, node: NodeName, before: Rooms, after: Rooms, changed: Collection[GpuUuid]) -> None:
        """Read a node again before the next search."""
        self._nodes.move(node, before, after, changed)

    def best_first(self, request: Request) -> Iterator[tuple[float, NodeName]]:
        """The nodes with a place, the highest bound first."""
        if not request.demand.containers:
            return ((0.0, node) for node in self._around.nodes)
        return self._nodes.best_first(request)
