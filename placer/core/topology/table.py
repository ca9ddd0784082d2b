"""The bounds of nodes for the policy `topology`: the score of the best GPUs for the pod's hardest container."""

from collections.abc import Collection, Hashable, Iterator

import numpy as np

from placer.core.index import Surroundings
from placer.core.node_index import NO_PLACE, Bounds, NodeIndex, Slots
from placer.core.room import misfit
from placer.core.site import Request, Rooms
from placer.core.topology.choice import chosen, empty_among, links_of, owner_models, worth
from plimsoll.demand import hardest_first
from plimsoll.ids import GpuUuid, NodeName


class TopologyTable:
    """All nodes, by slot: a `placer.core.node_index.Table`."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._nodes: dict[int, tuple[NodeName, Rooms]] = {}

    def put(self, slot: int, node: NodeName, rooms: Rooms) -> None:
        """Keep a node's rooms."""
        self._nodes[slot] = node, rooms

    def kind(self, request: Request) -> Hashable:
        """Everything that `_bound` reads of a pod."""
        demand, ledger = request.demand, self._around.ledger
        hardest = min(demand.containers, key=hardest_first)
        asked = (hardest.gpus, hardest.memory_bytes, hardest.memory_pct, hardest.share_pct, hardest.whole)
        expected = ledger.best_effort_bytes(request.owner) if hardest.best_effort else None
        models = frozenset(demand.gpu_models), owner_models(request, ledger)
        return asked, expected, models, demand.locality, demand.gpu_name is None

    def version(self) -> Hashable:
        """Bounds depend on the pod's kind and on the nodes alone."""
        return None

    def bounds(self, request: Request, slots: Slots) -> Bounds:
        """The bound of each node."""
        allowed = owner_models(request, self._around.ledger)
        return np.array([self._bound(request, allowed, *self._nodes[slot]) for slot in slots.tolist()])

    def _bound(self, request: Request, allowed: Collection[str], node: NodeName, rooms: Rooms) -> float:
        demand, models = request.demand, request.demand.gpu_models
        hardest = min(demand.containers, key=hardest_first)
        expected_bytes = self._around.ledger.best_effort_bytes(request.owner)
        usable = {gpu: room for gpu, room in rooms.items() if not models or room.gpu.model in models}
        fitting = [
            room
            for room in usable.values()
            if (not allowed or room.gpu.model in allowed)
            and misfit(room, hardest, expected_bytes, demand.locality) is None
        ]
        if len(fitting) < hardest.gpus:
            return float(NO_PLACE)
        if demand.gpu_name is not None:
            return 1.0  # each GPU is planned alone, and has no neighbour then
        links = links_of(self._around.nodes[node].node, usable)
        empty = empty_among(links, usable)
        return worth(links, empty, chosen(links, empty, fitting, hardest.gpus))


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
