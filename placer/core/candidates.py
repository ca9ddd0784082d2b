"""The candidates of decisions: all GPUs of all reported nodes, in memory, ranked by the room that promises leave.

What always holds: the room of a GPU is computed once and kept until a booking or a report changes it, and a GPU is
ranked by its room, so a GPU that is full of promises sinks at once. A search reads GPUs that have the asked room, and
few others: GPUs are ranked apart by model and free share, and a ranking knows the largest free memory of each of its
parts.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from heapq import merge
from math import inf
from typing import Final

from placer.core.changes import Changes
from placer.core.ledger import Ledger
from placer.core.plan import NO_ROOMS, Request, hardest_first
from placer.core.policies import Policy
from placer.core.pool import Pool
from placer.core.ranking import Rankings, Work
from placer.core.room import SHARERS_PER_GPU, Room, closed_room, room_on
from placer.core.view import NodeView, node_view
from plimsoll.contract import ContainerDemand
from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, NodeName
from plimsoll.percent import most_pct

REFRESHED_TOGETHER: Final = 64
"""The most nodes whose rooms are computed anew at a time, in some 5 ms, so that no decision has to do more of it."""

_Rooms = Mapping[GpuUuid, Room]
Listener = Callable[[NodeName, _Rooms, _Rooms], None]
_GpuRank = tuple[float, NodeName, GpuUuid]
_NodeRank = tuple[float, NodeName]

_Bucket = tuple[str, str, int, bool]
"""Kind of demand (`_ANY`, `_DECLARED`, `_BEST_EFFORT`, `_PERCENT`), model, free share in percent, and whether the GPU
is idle."""

_Place = tuple[str | None, _Bucket, _GpuRank, int]
"""The exclusion label of the GPU's pods, and the GPU's bucket, key and size."""

_ANY: Final = "any"
_DECLARED: Final = "declared"
_BEST_EFFORT: Final = "best effort"
"""A GPU that has as much room for declared memory as for undeclared stands under `_ANY`, else under the other two."""
_PERCENT: Final = "percent"
"""Each GPU stands here too, with the percentage of its memory that can be declared, once a pod has declared one."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that may have a place.

    Attributes:
        node: the node as last reported, with a GPU that fits the pod's hardest container.
        rooms: the room of each of its GPUs.
        bound: no plan on this node has a higher score.
    """

    node: NodeView
    rooms: Mapping[GpuUuid, Room]
    bound: float

    @classmethod
    def without_report(cls, node: NodeName) -> "Candidate":
        """A node that has not reported, and has no GPU that could be used."""
        return cls(NodeView(node, (0, 0), ()), NO_ROOMS, inf)


class Candidates:
    """All GPUs of all reported nodes, ranked. Not thread-safe: one event loop owns it.

    Attributes:
        changes: the nodes whose room changed, up to the last `refresh`; each search refreshes first.
        work: the entries of rankings that searches have read.
    """

    def __init__(
        self, ledger: Ledger, view_of: Callable[[NodeName], NodeView | None], pool: Pool | None = None
    ) -> None:
        """Make it without nodes.

        Args:
            ledger: the bookings of all pods.
            view_of: gives a node as last reported, or None for a node without a report.
            pool: the GPUs that may be used; None: all.
        """
        self._pool = pool or Pool()
        self.changes = Changes()
        self.work = Work()
        self._ledger = ledger
        self._view_of = view_of
        self._nodes: dict[NodeName, Candidate] = {}
        self._holders: defaultdict[GpuUuid, set[NodeName]] = defaultdict(set)
        self._policies: dict[str, _Ranked] = {}
        self._outdated: dict[NodeName, set[GpuUuid] | None] = {}  # None: all GPUs of the node
        self._rebooked: set[NodeName] = set()
        self._listeners: list[Listener] = []
        ledger.on_change(self._note_booking)
        self._pool.on_change(self._note_standing)

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with each node whose rooms a `refresh` changed, and with its rooms before and after.

        A silent node, and a node without a report, has no rooms. The listener must not search.
        """
        self._listeners.append(listener)

    def note_report(self, node: NodeName) -> None:
        """Read a node's report again before the next search: the report was replaced or dropped."""
        self._outdated[node] = None
        self._refresh_many()

    def prepare(self, policy: Policy) -> None:
        """Rank by a policy from now on. Else the first decision with the policy ranks all GPUs: 0.7 s for 160 000.

        Each ranking is kept up with every booking and report, so only policies that are used should have one. The
        same holds for percentages of memory.
        """
        self._ranked_by(policy)

    def find(self, node: NodeName) -> Candidate | None:
        """A node with the rooms of its GPUs, without a bound; None for a node without a report."""
        self.refresh()
        return self._nodes.get(node)

    def has_room(self, request: Request, policy: Policy) -> bool:
        """Whether a GPU anywhere has the room for the pod's hardest container."""
        return next(self.best_first(request, policy), None) is not None

    def best_first(self, request: Request, policy: Policy) -> Iterator[Candidate]:
        """The nodes that may have a place for a pod, the highest bound first; change nothing while you iterate.

        Every node on which `plan_on` finds a place is among them. Equal bounds come in the falling order of names.

        Args:
            request: a pod with at least one container that asks for a GPU.
            policy: the order among GPUs.
        """
        self.refresh()
        demand = request.demand
        if demand.gpu_id is not None:
            holders = sorted(self._holders.get(demand.gpu_id, ()))
            yield from (self._nodes[node] for node in holders)
            return
        tied = self._ledger.fixed(demand)
        if tied:
            node = tied[0][0]
            if node in self._nodes and self._nodes[node].rooms:
                yield self._nodes[node]
            return
        ranked = self._ranked_by(policy)
        container, exclusion = min(demand.containers, key=hardest_first), demand.locality.exclusion
        if container.whole:
            found = ranked.empty(container.gpus, demand.gpu_models)
        elif container.memory_pct is not None:
            ranked.rank_percentages(self._nodes)
            found = ranked.shared(container, container.memory_pct, demand.gpu_models, exclusion)
        else:
            need_bytes = container.memory_bytes or self._ledger.best_effort_bytes(request.owner)
            found = ranked.shared(container, need_bytes, demand.gpu_models, exclusion)
        seen: set[NodeName] = set()
        for rank, node in found:
            if node not in seen:
                seen.add(node)
                known = self._nodes[node]
                yield Candidate(known.node, known.rooms, rank)

    def rooms_of(self, state: NodeState) -> Collection[Room]:
        """The rooms of the GPUs in a report, by promises now; none on GPUs outside the pool or with faults."""
        known = self.find(state.node)
        if known is not None and known.node.order == state.order and not known.node.is_silent:
            closed = [closed_room(gpu) for gpu in (*known.node.outside, *known.node.faulty)]
            return [*known.rooms.values(), *closed] if closed else known.rooms.values()
        view = self._pool.split(node_view(state))
        return (
            *(room_on(state.node, gpu, self._ledger) for gpu in view.gpus),
            *(closed_room(gpu) for gpu in (*view.outside, *view.faulty)),
        )

    def take_rebooked(self) -> set[NodeName]:
        """The nodes whose promises, or part of the pool, changed since the last call."""
        taken, self._rebooked = self._rebooked, set()
        return taken

    def _note_standing(self, node: NodeName) -> None:
        self._rebooked.add(node)  # its scores change
        self.note_report(node)

    def _note_booking(self, node: NodeName, gpu: GpuUuid) -> None:
        self._rebooked.add(node)
        outdated = self._outdated.setdefault(node, set())
        if outdated is not None:
            outdated.add(gpu)
        self._refresh_many()

    def _refresh_many(self) -> None:
        if len(self._outdated) >= REFRESHED_TOGETHER:
            self.refresh()

    def _ranked_by(self, policy: Policy) -> "_Ranked":
        ranked = self._policies.get(policy.name)
        if ranked is None:
            ranked = self._policies[policy.name] = _Ranked(policy, self.work)
            for name, known in self._nodes.items():
                ranked.move(name, NO_ROOMS, known.rooms, known.rooms)
        return ranked

    def refresh(self) -> None:
        """Compute the rooms that changed, rank their GPUs anew, and note their nodes in `changes`."""
        while self._outdated:
            node, gpus = self._outdated.popitem()
            self._refresh_node(node, gpus)

    def _refresh_node(self, name: NodeName, gpus: set[GpuUuid] | None) -> None:
        known, view = self._nodes.get(name), self._pool.seen(self._view_of(name))
        before = known.rooms if known is not None else NO_ROOMS
        if view is None:
            rooms: _Rooms = NO_ROOMS
            self._nodes.pop(name, None)
        elif view.is_silent:
            rooms = NO_ROOMS
            self._nodes[name] = Candidate(view, rooms, inf)
        else:
            # A new report may change every GPU; a booking changes the GPUs that it names.
            outdated = None if known is None or known.node is not view else gpus
            rooms = {
                gpu.uuid: room_on(name, gpu, self._ledger)
                if outdated is None or gpu.uuid in outdated
                else before[gpu.uuid]
                for gpu in view.gpus
            }
            self._nodes[name] = Candidate(view, rooms, inf)
        self._index_holders(name, before, rooms)
        changed = [uuid for uuid in {**before, **rooms} if before.get(uuid) is not rooms.get(uuid)]
        for ranked in self._policies.values():
            ranked.move(name, before, rooms, changed)
        if (
            (known is None) != (view is None)
            or _prospects(known) != _prospects(self._nodes.get(name))
            or any(_fitness(before.get(uuid)) != _fitness(rooms.get(uuid)) for uuid in changed)
        ):
            self.changes.note(name)
            for listener in self._listeners:
                listener(name, before, rooms)

    def _index_holders(self, name: NodeName, before: _Rooms, rooms: _Rooms) -> None:
        if before.keys() == rooms.keys():
            return
        for uuid in before.keys() - rooms.keys():
            self._holders[uuid].discard(name)
            if not self._holders[uuid]:
                del self._holders[uuid]
        for uuid in rooms.keys() - before.keys():
            self._holders[uuid].add(name)


class _Ranked:
    """All GPUs, ranked by one policy."""

    def __init__(self, policy: Policy, work: Work) -> None:
        self._policy = policy
        # The size is the bytes that a container may be expected to need, or under `_PERCENT` the percentage.
        # GPUs with an exclusion label are no places for other pods, so they stand apart, under their labels.
        self._work = work
        self._shared: dict[str | None, Rankings[_Bucket, _GpuRank]] = {None: Rankings(work)}
        self._has_percentages = False
        # By the models of the empty GPUs; the size is their number.
        self._empty: Rankings[frozenset[str], _NodeRank] = Rankings(work)

    def rank_percentages(self, nodes: Mapping[NodeName, Candidate]) -> None:
        """Rank all GPUs by percentages of their memory too, from the first call on."""
        if self._has_percentages:
            return
        self._has_percentages = True
        for node, known in nodes.items():
            for room in known.rooms.values():
                for place in self._places(node, room):
                    if place[1][0] == _PERCENT:
                        self._add(place)

    def shared(
        self, container: ContainerDemand, need: int, models: Collection[str], exclusion: str | None
    ) -> Iterator[_NodeRank]:
        """The nodes of GPUs that a container fits on, best first, each with the GPU's rank; nodes may repeat.

        Args:
            container: the demand on each GPU.
            need: the bytes that the container is expected to need on each GPU, or the percentage that it declares.
            models: the acceptable models; empty means any.
            exclusion: the pod's exclusion label, which the GPUs have too, or which idle ones get; None for a pod that
                has none, and then the GPUs have none.
        """
        kinds: tuple[str, ...] = (_PERCENT,)
        if container.memory_pct is None:
            kinds = (_ANY, _DECLARED if container.memory_bytes is not None else _BEST_EFFORT)

        def admits(bucket: _Bucket) -> bool:
            kind, model, share, _ = bucket
            return kind in kinds and share >= container.share_pct and (not models or model in models)

        size = max(need, 1)
        if exclusion is None:
            found = self._shared[None].descending(size, admits)
        else:
            idle = self._shared[None].descending(size, lambda bucket: bucket[3] and admits(bucket))
            own = self._shared.get(exclusion)
            found = idle if own is None else merge(own.descending(size, admits), idle, reverse=True)
        return ((rank, node) for rank, node, _ in found)

    def empty(self, gpus: int, models: Collection[str]) -> Iterator[_NodeRank]:
        """The nodes with so many empty GPUs, best first, each with the rank of its best one."""
        return self._empty.descending(gpus, lambda bucket: not models or not bucket.isdisjoint(models))

    def move(self, node: NodeName, before: _Rooms, after: _Rooms, changed: Collection[GpuUuid]) -> None:
        """Rank the GPUs of a node by their rooms now.

        Args:
            node: the node.
            before: the rooms by which its GPUs are ranked.
            after: their rooms now.
            changed: the GPUs whose rooms differ.
        """
        for uuid in changed:
            old, new = self._places(node, before.get(uuid)), self._places(node, after.get(uuid))
            if old != new:
                for exclusion, bucket, key, _ in old:
                    self._shared[exclusion].remove(bucket, key)
                    if exclusion is not None and self._shared[exclusion].is_empty:
                        del self._shared[exclusion]
                for place in new:
                    self._add(place)
        if not any(_is_empty(before.get(uuid)) or _is_empty(after.get(uuid)) for uuid in changed):
            return
        was, now = self._empty_place(node, before), self._empty_place(node, after)
        if was != now:
            if was is not None:
                self._empty.remove(was[0], was[1])
            if now is not None:
                self._empty.add(*now)

    def _add(self, place: _Place) -> None:
        exclusion, bucket, key, size = place
        if exclusion not in self._shared:
            self._shared[exclusion] = Rankings(self._work)
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
        key = (self._policy.rank(room), node, room.gpu.uuid)
        model, share = room.gpu.model, room.free_share_pct
        exclusion, idle = next(iter(room.labels.exclusions), None), room.labels.is_idle
        return tuple(
            (exclusion, (kind, model, share, idle), key, size) for kind, size in sizes.items() if size > 0
        )

    def _empty_place(self, node: NodeName, rooms: _Rooms) -> tuple[frozenset[str], _NodeRank, int] | None:
        empty = [room for room in rooms.values() if room.is_empty]
        if not empty:
            return None
        models = frozenset(room.gpu.model for room in empty)
        return models, (max(self._policy.rank(room) for room in empty), node), len(empty)


def _prospects(candidate: Candidate | None) -> tuple[object, ...]:
    """The reasons, besides rooms, for which a pod waits: the node's standing outside of the pool, and its faults."""
    if candidate is None:
        return ()
    node = candidate.node
    return node.acquirable, node.faults, *((gpu.uuid, gpu.used_bytes) for gpu in node.outside)


def _is_empty(room: Room | None) -> bool:
    return room is not None and room.is_empty


def _fitness(room: Room | None) -> tuple[object, ...] | None:
    """The part of a room that decides what fits on the GPU."""
    if room is None:
        return None
    return (
        room.free_bytes,
        room.promisable_bytes,
        room.gpu.usable_bytes,
        room.gpu.model,
        room.free_share_pct,
        room.sharers,
        room.unattributed_bytes,
        room.taken_whole,
        room.labels,
    )
