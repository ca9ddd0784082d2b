"""All GPUs of all nodes, ranked one by one: the index of policies that judge GPU by GPU.

What always holds: a GPU is ranked by its room, so a GPU that is full of promises sinks at once. A search reads GPUs
that have the asked room, and few others: GPUs are ranked apart by model and free share, and a ranking knows the
largest free memory of each of its parts. It passes over GPUs without the asked CPU beside them, in a third of a
microsecond each.
"""

from collections.abc import Callable, Collection, Iterator
from heapq import merge
from typing import Final

from placer.core.index import Surroundings
from placer.core.policy_context import Request, Rooms
from placer.core.ranking import Rankings
from placer.core.room import SHARERS_PER_GPU, Room
from plimsoll.demand import ContainerDemand, hardest_first
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.percent import most_pct

Rank = Callable[[Room], float]
"""The score of a GPU for the container that it suits best: no score there is higher."""

_GpuRank = tuple[float, NodeName, GpuUuid]
_NodeRank = tuple[float, NodeName]

_Bucket = tuple[str, str, int, bool]
"""Kind of demand (`_ANY`, `_DECLARED`, `_BEST_EFFORT`, `_PERCENT`), model, free share in percent, and whether the GPU
is idle."""

_Place = tuple[str | None, _Bucket, _GpuRank, int]
"""The exclusion label of the GPU's pods, and the GPU's bucket, key and size."""

_EmptyPlace = tuple[frozenset[str], _NodeRank, int]
"""The models of a node's empty GPUs, the node's key, and the number of these GPUs."""

_ANY: Final = "any"
_DECLARED: Final = "declared"
_BEST_EFFORT: Final = "best effort"
"""A GPU that has as much room for declared memory as for undeclared stands under `_ANY`, else under the other two."""
_PERCENT: Final = "percent"
"""Each GPU stands here too, with the percentage of its memory that can be declared, once a pod has declared one."""


class GpuIndex:
    """All GPUs, ranked by one policy: a `placer.core.index.Index`."""

    def __init__(self, rank: Rank, around: Surroundings) -> None:
        self._rank = rank
        self._around = around
        # The size is the bytes that a container may be expected to need, or under `_PERCENT` the percentage.
        # GPUs with an exclusion label are no places for other pods, so they stand apart, under their labels.
        self._shared: dict[str | None, Rankings[_Bucket, _GpuRank]] = {None: Rankings(around.reads)}
        self._has_percentages = False
        # By the models of the empty GPUs; the size is their number.
        self._empty: Rankings[frozenset[str], _NodeRank] = Rankings(around.reads)
        self._empty_at: dict[NodeName, _EmptyPlace] = {}

    def best_first(self, request: Request) -> Iterator[tuple[float, NodeName]]:
        """The nodes with a GPU that fits the pod's hardest container; all nodes for a pod that asks for none."""
        demand = request.demand
        if not demand.containers:
            return ((0.0, node) for node in self._around.nodes)
        container = min(demand.containers, key=hardest_first)
        if container.whole:
            return self._empty_on(container.gpus, request)
        if container.memory_pct is not None:
            self._rank_percentages()
            return self._shared_on(container, container.memory_pct, request)
        need_bytes = container.memory_bytes or self._around.ledger.best_effort_bytes(request.owner)
        return self._shared_on(container, need_bytes, request)

    def _rank_percentages(self) -> None:
        """Rank all GPUs by percentages of their memory too, from the first call on."""
        if self._has_percentages:
            return
        self._has_percentages = True
        for node, known in self._around.nodes.items():
            for room in known.rooms.values():
                for place in self._places(node, room):
                    if place[1][0] == _PERCENT:
                        self._add(place)

    def _shared_on(self, container: ContainerDemand, need: int, request: Request) -> Iterator[_NodeRank]:
        """The nodes of GPUs that a container fits on, best first, each with the GPU's rank; nodes may repeat.

        Args:
            container: the demand on each GPU.
            need: the bytes that the container is expected to need on each GPU, or the percentage that it declares.
            request: its pod. Only GPUs of its models are given, on nodes with its CPU, and only those that have its
                exclusion label, or may get it. A pod without such a label gets no GPU that has one.
        """
        kinds: tuple[str, ...] = (_PERCENT,)
        if container.memory_pct is None:
            kinds = (_ANY, _DECLARED if container.memory_bytes is not None else _BEST_EFFORT)

        def admits(bucket: _Bucket) -> bool:
            kind, model, share, _ = bucket
            return kind in kinds and share >= container.share_pct and (not models or model in models)

        pod, cpu = request.demand, self._around.ledger.spare_cpu.suffices_for(request.cpu_milli)
        size, models, exclusion = max(need, 1), pod.gpu_models, pod.locality.exclusion

        def has_cpu(key: _GpuRank) -> bool:
            return cpu(key[1])

        if exclusion is None:
            found = self._shared[None].descending(size, admits, has_cpu)
        else:
            idle = self._shared[None].descending(size, lambda bucket: bucket[3] and admits(bucket), has_cpu)
            own = self._shared.get(exclusion)
            found = idle if own is None else merge(own.descending(size, admits, has_cpu), idle, reverse=True)
        return ((rank, node) for rank, node, _ in found)

    def _empty_on(self, gpus: int, request: Request) -> Iterator[_NodeRank]:
        """The nodes with this many empty GPUs and the pod's CPU, best first, each with the rank of its best one."""
        models = request.demand.gpu_models
        cpu = self._around.ledger.spare_cpu.suffices_for(request.cpu_milli)
        return self._empty.descending(
            gpus, lambda bucket: not models or not bucket.isdisjoint(models), lambda key: cpu(key[1])
        )

    def move(self, node: NodeName, before: Rooms, after: Rooms, changed: Collection[GpuUuid]) -> None:
        """Rank the GPUs of a node by their rooms now."""
        for uuid in changed:
            old, new = self._places(node, before.get(uuid)), self._places(node, after.get(uuid))
            if old != new:
                for exclusion, bucket, key, _ in old:
                    self._shared[exclusion].remove(bucket, key)
                    if exclusion is not None and self._shared[exclusion].is_empty:
                        del self._shared[exclusion]
                for place in new:
                    self._add(place)
        if any(_is_empty(before.get(uuid)) or _is_empty(after.get(uuid)) for uuid in changed):
            self._move_empty(node, after)

    def _move_empty(self, node: NodeName, after: Rooms) -> None:
        was, now = self._empty_at.pop(node, None), self._empty_place(node, after)
        if now is not None:
            self._empty_at[node] = now
        if was != now:
            if was is not None:
                self._empty.remove(was[0], was[1])
            if now is not None:
                self._empty.add(*now)

    def _add(self, place: _Place) -> None:
        exclusion, bucket, key, size = place
        if exclusion not in self._shared:
            self._shared[exclusion] = Rankings(self._around.reads)
        self._shared[exclusion].add(bucket, key, size)

    def _places(self, node: NodeName, room: Room | None) -> tuple[_Place, ...]:
        if room is None or room.taken_whole or room.sharers >= SHARERS_PER_GPU:
            return ()
        if len(room.labels.exclusions) > 1:
            return ()  # somebody else bound pods there, and no pod has both labels
        declared, undeclared = room.declarable_bytes, room.undeclared_bytes
        apart = {_DECLARED: declared, _BEST_EFFORT: undeclared}
        sizes = {_ANY: declared} if declared == undeclared else apart
        if self._has_percentages:
            sizes[_PERCENT] = most_pct(room.gpu.usable_bytes, declared)
        key = (self._rank(room), node, room.gpu.uuid)
        model, share = room.gpu.model, room.free_share_pct
        exclusion, idle = next(iter(room.labels.exclusions), None), room.labels.is_idle
        return tuple(
            (exclusion, (kind, model, share, idle), key, size) for kind, size in sizes.items() if size > 0
        )

    def _empty_place(self, node: NodeName, rooms: Rooms) -> _EmptyPlace | None:
        empty = [room for room in rooms.values() if room.is_empty]
        if not empty:
            return None
        models = frozenset(room.gpu.model for room in empty)
        return models, (max(self._rank(room) for room in empty), node), len(empty)


def _is_empty(room: Room | None) -> bool:
    return room is not None and room.is_empty
