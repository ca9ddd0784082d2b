"""The candidates of decisions: all GPUs of all reported nodes, in memory, in the order of each policy's own index.

What always holds: the room of a GPU is computed once and kept until a booking or a report changes it, and the indexes
take in each change before the next search.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from math import inf
from typing import Final

from placer.core.changes import Changes
from placer.core.index import Index, Surroundings
from placer.core.ledger import Ledger
from placer.core.policies.policy import Policy
from placer.core.policy_context import NO_ROOMS, Candidate, Request, Rooms
from placer.core.pool import Pool
from placer.core.ranking import ReadCount
from placer.core.room import Room, closed_room, room_on
from placer.core.view import NodeView, node_view
from plimsoll.events import NodeState
from plimsoll.ids import GpuUuid, NodeName

REFRESHED_TOGETHER: Final = 64
"""The most nodes whose rooms are computed anew at a time, in some 5 ms, so that no decision has to do more of it."""

Listener = Callable[[NodeName, Rooms, Rooms], None]


class Candidates:
    """All GPUs of all reported nodes, ranked. Not thread-safe: one event loop owns it.

    Attributes:
        changes: the nodes whose room changed, up to the last `refresh`; each search refreshes first.
        reads: the entries of rankings that searches have read.
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
        self.reads = ReadCount()
        self._ledger = ledger
        self._view_of = view_of
        self._nodes: dict[NodeName, Candidate] = {}
        self._holders: defaultdict[GpuUuid, set[NodeName]] = defaultdict(set)
        self._indexes: dict[str, Index] = {}
        # By policy, the nodes that its index lacks so far.
        self._unranked: dict[str, dict[NodeName, None]] = {}
        self._outdated: dict[NodeName, set[GpuUuid] | None] = {}  # None: all GPUs of the node
        self._rebooked: set[NodeName] = set()
        self._listeners: list[Listener] = []
        ledger.on_change(self._note_booking)
        ledger.spare_cpu.on_change(self._note_cpu)
        self._pool.on_change(self._note_pool_part)

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
        """Rank by a policy from now on. Else the first decision with the policy ranks all GPUs: 1.2 s for 160 000.

        Each ranking is kept up with every booking and report, so only policies that are used should have one. The
        same holds for percentages of memory.
        """
        self._index_of(policy)

    def rank(self, policy: Policy, most: int) -> bool:
        """Rank this many more nodes by a policy that is used from now on; returns whether all are ranked."""
        index = self._indexes.get(policy.name)
        if index is None:
            index = self._indexes[policy.name] = policy.index(
                Surroundings(self._ledger, self._nodes, self.reads)
            )
            self._unranked[policy.name] = dict.fromkeys(self._nodes)
        left = self._unranked.get(policy.name)
        if left is None:
            return True
        for node in tuple(islice(left, most)):
            del left[node]
            if (known := self._nodes.get(node)) is not None:
                index.move(node, NO_ROOMS, known.rooms, known.rooms)
        if not left:
            del self._unranked[policy.name]
        return not left

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
        seen: set[NodeName] = set()
        for bound, node in self._index_of(policy).best_first(request):
            if node not in seen:
                seen.add(node)
                known = self._nodes[node]
                yield Candidate(known.node, known.rooms, bound)

    def rooms_of(self, state: NodeState) -> Collection[Room]:
        """The rooms of the GPUs in a report, by promises now, for readers.

        No pod gets GPUs outside of the pool, with faults, cordoned ones, and those of a node that takes no pods. So
        nothing is free there.
        """
        known = self.find(state.node)
        is_shut = bool(self._pool.schedulability(state.node).closed) or (
            known is not None and known.node.is_silent
        )
        if known is None or known.node.order != state.order:
            known = Candidate(self._pool.split(node_view(state)), NO_ROOMS, inf)
        view, rooms = known.node, known.rooms
        here = [rooms.get(gpu.uuid) or room_on(state.node, gpu, self._ledger) for gpu in view.gpus]
        shut = [room_on(state.node, gpu, self._ledger) for gpu in (*view.outside, *view.faulty)]
        return [*(map(closed_room, here) if is_shut else here), *map(closed_room, shut)]

    def take_rebooked(self) -> set[NodeName]:
        """The nodes whose promises, or part of the pool, changed since the last call."""
        taken, self._rebooked = self._rebooked, set()
        return taken

    def _note_pool_part(self, node: NodeName) -> None:
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

    def _index_of(self, policy: Policy) -> Index:
        self.rank(policy, len(self._nodes))
        return self._indexes[policy.name]

    def _indexes_with(self, node: NodeName) -> Iterator[Index]:
        """The indexes that have a node, or may get it now."""
        return (index for name, index in self._indexes.items() if node not in self._unranked.get(name, ()))

    def _note_cpu(self, node: NodeName) -> None:
        known = self._nodes.get(node)
        if known is not None and node not in self._outdated:
            for index in self._indexes_with(node):
                index.move(node, known.rooms, known.rooms, ())

    def refresh(self) -> None:
        """Compute the rooms that changed, rank their GPUs anew, and note their nodes in `changes`."""
        while self._outdated:
            node, gpus = self._outdated.popitem()
            self._refresh_node(node, gpus)

    def _refresh_node(self, name: NodeName, gpus: set[GpuUuid] | None) -> None:
        known, view = self._nodes.get(name), self._pool.seen(self._view_of(name))
        before = known.rooms if known is not None else NO_ROOMS
        rooms = NO_ROOMS
        if view is None:
            self._nodes.pop(name, None)
        else:
            # A new report may change every GPU; a booking changes the GPUs that it names.
            outdated = None if known is None or known.node is not view else gpus
            rooms = self._rooms_now(view, before, outdated)
            self._nodes[name] = Candidate(view, rooms, inf)
        self._index_holders(name, before, rooms)
        changed = [uuid for uuid in {**before, **rooms} if before.get(uuid) is not rooms.get(uuid)]
        for index in self._indexes_with(name):
            index.move(name, before, rooms, changed)
        if (
            (known is None) != (view is None)
            or _prospects(known) != _prospects(self._nodes.get(name))
            or any(_fitness(before.get(uuid)) != _fitness(rooms.get(uuid)) for uuid in changed)
        ):
            self.changes.note(name)
            for listener in self._listeners:
                listener(name, before, rooms)

    def _rooms_now(self, view: NodeView, before: Rooms, outdated: set[GpuUuid] | None) -> Rooms:
        """The rooms of a node: new ones on the outdated GPUs, or on all for None; none on a silent node."""
        if view.is_silent:
            return NO_ROOMS
        return {
            gpu.uuid: room_on(view.node, gpu, self._ledger)
            if outdated is None or gpu.uuid in outdated
            else before[gpu.uuid]
            for gpu in view.gpus
        }

    def _index_holders(self, name: NodeName, before: Rooms, rooms: Rooms) -> None:
        if before.keys() == rooms.keys():
            return
        for uuid in before.keys() - rooms.keys():
            self._holders[uuid].discard(name)
            if not self._holders[uuid]:
                del self._holders[uuid]
        for uuid in rooms.keys() - before.keys():
            self._holders[uuid].add(name)


def _prospects(candidate: Candidate | None) -> tuple[object, ...]:
    """The reasons, besides rooms, for which a pod waits: the node's GPUs outside of the pool, and its faults."""
    if candidate is None:
        return ()
    node = candidate.node
    return node.acquirable, node.faults, *((gpu.uuid, gpu.used_bytes) for gpu in node.outside)


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
