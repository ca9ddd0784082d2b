"""The GPUs of one node for each container of a pod, as a policy arranges them.

A container needs room beside those that run at the same time (`plimsoll.lifespan`). So an init container that ends
takes nothing from the pod's containers, and gets their GPUs where it fits on them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from placer.core.booking import Booking, Grant, grant_of
from placer.core.ledger import Ledger
from placer.core.policies.policy import Policy, PolicyError
from placer.core.policy_context import AssignedGpu, Context, Request, Rooms
from placer.core.reasons import Reason
from placer.core.refusal import Refusal
from placer.core.room import Room, misfit, room_on
from placer.core.view import GpuView
from plimsoll.demand import ContainerDemand, PodDemand, hardest_first
from plimsoll.ids import GpuUuid, NodeName


def assigned(context: Context, policy: Policy) -> list[AssignedGpu] | Refusal:
    """The GPUs of each container of a pod: the hardest to place chooses first, init containers that end come last.

    The first try follows the policy's order of GPUs. That is greedy and may leave a container without a GPU although
    a place for all exists, so further tries take the tightest GPU each time. The refusal is the one of the last try.

    Raises:
        PolicyError: the policy gave GPUs that it may not give.
    """
    assignment = _Assignment(context, policy)
    tried: list[AssignedGpu] | Refusal = Refusal()
    for way in _ways(context.request.demand, policy):
        tried = assignment.run(way)
        if not isinstance(tried, Refusal):
            break
    return tried


_Arrange = Callable[[Context, ContainerDemand, Sequence[Room]], Sequence[Room]]


@dataclass(frozen=True, slots=True)
class _Way:
    """An order in which the containers of a pod get their GPUs.

    Attributes:
        order: the containers, the first to choose first.
        arrange: gives the GPUs for a container among those that fit, see `Policy.arrange`.
    """

    order: tuple[ContainerDemand, ...]
    arrange: _Arrange


def _ways(demand: PodDemand, policy: Policy) -> Iterator[_Way]:
    """The ways to place a pod, each for the case that those before it leave a container without a GPU."""
    if len(demand.containers) == 1:
        yield _Way(demand.containers, policy.arrange)
        return
    running = sorted((one for one in demand.containers if not one.lifespan.ends), key=hardest_first)
    ending = sorted((one for one in demand.containers if one.lifespan.ends), key=hardest_first)
    yield _Way((*running, *ending), policy.arrange)
    yield _Way((*running, *ending), _tightest)
    if ending and any(one.lifespan.sidecar for one in running):
        # A sidecar stands in the way of an init container that is harder to place.
        yield _Way(tuple(sorted(demand.containers, key=hardest_first)), _tightest)


def _tightest(_: Context, __: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:
    return sorted(fitting, key=lambda room: room.free_ratio)


@dataclass(frozen=True, slots=True)
class _Assignment:
    """Places the containers of one pod on the GPUs of one node, greedily."""

    context: Context
    policy: Policy

    def run(self, way: _Way) -> list[AssignedGpu] | Refusal:
        if len(way.order) == 1:  # as of most pods; no other container needs the room that is left
            return self._place(way.order[0], self.context.rooms.values(), (), way.arrange)
        chosen: list[AssignedGpu] = []
        # The rooms at each time at which a container ends, or all run.
        times = {one.lifespan.last: dict(self.context.rooms) for one in way.order}
        for demand in way.order:
            lifespan = demand.lifespan
            during = {time: left for time, left in times.items() if lifespan.runs_at(time)}
            more = self._place(demand, _narrowest(during.values()), chosen, way.arrange)
            if isinstance(more, Refusal):
                return more
            chosen += more
            for one in more:
                for time, left in during.items():
                    left[one.grant.gpu] = self._room_after(left[one.grant.gpu], one, chosen, time)
        return chosen

    def _place(
        self,
        demand: ContainerDemand,
        rooms: Collection[Room],
        chosen: Collection[AssignedGpu],
        arrange: _Arrange,
    ) -> list[AssignedGpu] | Refusal:
        best_effort_bytes = self.context.ledger.best_effort_bytes(self.context.request.owner)
        context = replace(self.context, chosen=tuple(chosen)) if chosen else self.context
        fitting: list[Room] = []
        short: list[Room] = []
        whys: set[str] = set()
        for room in rooms:
            reason = misfit(room, demand, best_effort_bytes, context.request.demand.locality)
            why = reason.value if reason is not None else self.policy.objection(context, room, demand)
            if why is None:
                fitting.append(room)
            else:
                whys.add(why)
                if reason is Reason.GPU_MEMORY:
                    short.append(room)
        if len(fitting) >= demand.gpus:
            arranged = arrange(context, demand, fitting)
            self._check_arranged(arranged, demand, fitting)
            found = _own_first(arranged, _own_gpus(demand, chosen))
            return [_assigned_gpu(demand, room) for room in found[: demand.gpus]]
        if fitting or not whys:
            whys = {Reason.GPU_COUNT.value}
        open_bytes = (
            room.open_to(demand) for room in short if self.policy.objection(context, room, demand) is None
        )
        free_bytes = max(open_bytes, default=None)
        return Refusal({self.context.node.node: tuple(sorted(whys))}, free_bytes)

    def _check_arranged(
        self, arranged: Sequence[Room], demand: ContainerDemand, fitting: Iterable[Room]
    ) -> None:
        """Refuse an answer that is not some of the GPUs that fit, each once, and as many as asked for.

        Raises:
            PolicyError: the policy's answer has other GPUs.
        """
        known = {id(room) for room in arranged}
        if len(known) < demand.gpus or len(known) < len(arranged):
            problem = (
                f"arrange gave {len(arranged)} GPUs, {len(known)} different, where {demand.gpus} are wanted"
            )
            raise PolicyError(self.policy.name, problem)
        if not known.issubset(map(id, fitting)):
            raise PolicyError(self.policy.name, "arrange gave a GPU that does not fit")

    def _room_after(self, before: Room, one: AssignedGpu, chosen: Iterable[AssignedGpu], time: int) -> Room:
        """The room at a time after a choice; `chosen` are all choices so far, this one among them."""
        grant, ledger, request = one.grant, self.context.ledger, self.context.request
        if request.pod in before.gpu.measured_bytes:
            there = (one.grant for one in chosen if one.grant.gpu == grant.gpu)
            pending = _pending(
                request, self.context.node.node, *(one for one in there if one.lifespan.runs_at(time))
            )
            return room_on(self.context.node.node, before.gpu, ledger, pending)
        booking = _pending(request, self.context.node.node, grant)
        return before.after(grant, ledger.expected_bytes(booking, grant.gpu))


def rooms_on(
    request: Request, node: NodeName, gpus: Iterable[GpuView], ledger: Ledger, known: Rooms
) -> Rooms:
    """The room on each GPU; measured memory of the pod itself takes nothing from it."""
    pending = _pending(request, node)
    rooms: dict[GpuUuid, Room] = {}
    for gpu in gpus:
        room = known.get(gpu.uuid)
        if room is None or request.pod in gpu.measured_bytes:
            room = room_on(node, gpu, ledger, pending)
        rooms[gpu.uuid] = room
    return rooms


def _pending(request: Request, node: NodeName, *grants: Grant) -> Booking:
    return Booking(request.pod, node, grants, request.owner)


def _assigned_gpu(demand: ContainerDemand, room: Room) -> AssignedGpu:
    here = demand.on(room.gpu.usable_bytes)
    return AssignedGpu(here, grant_of(here, room.gpu.uuid, room.open_to(here)), room)


def _narrowest(during: Iterable[Mapping[GpuUuid, Room]]) -> Collection[Room]:
    """The room on each GPU for a container that runs at all of these times."""
    first, *others = during
    if not others:
        return first.values()
    return [reduce(Room.within, (left[uuid] for left in others), room) for uuid, room in first.items()]


def _own_first(arranged: Sequence[Room], own: Collection[GpuUuid]) -> Sequence[Room]:
    return sorted(arranged, key=lambda room: room.gpu.uuid not in own) if own else arranged


def _own_gpus(demand: ContainerDemand, chosen: Iterable[AssignedGpu]) -> Collection[GpuUuid]:
    """The GPUs that a container takes first: an init container that ends, those of the containers that run on."""
    if not demand.lifespan.ends:
        return ()
    return {one.grant.gpu for one in chosen if not one.demand.lifespan.ends}
