"""One decision: the node for a pod and the GPUs for its containers, or the reasons why no node will do.

`plan_on` plans on one node, `plan` on the best of several. Both read nothing but their arguments. The caller books
the plan before awaiting anything.

A container needs room beside those that run at the same time (`plimsoll.lifespan`). So an init container that ends
takes nothing from the pod's containers, and gets their GPUs where it fits on them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

from placer.core.ledger import Booking, Grant, Ledger, grant_of
from placer.core.policies.policy import Policy, PolicyError
from placer.core.reasons import Reason, unhealthy
from placer.core.room import SHARERS_PER_GPU, Room, misfit, room_on
from placer.core.site import NO_ROOMS, Choice, Request, Rooms, Site
from placer.core.topology.near_cpus import near_cpus
from placer.core.view import GpuView, NodeView
from plimsoll.contract import AFFINITY, ContainerDemand, PodDemand, hardest_first
from plimsoll.ids import ContainerName, GpuUuid, NodeName
from plimsoll.lifespan import peak
from plimsoll.part.errors import InputError

WISHES: Final = "wishes"
"""The sub-scores of a pod's wishes; no container and GPU have this key, which has no slash."""

NodeFit = Callable[[NodeName], tuple[str, ...]]
"""The reasons why a node is unfit apart from its GPUs; empty for a fit node."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The place of a pod.

    Attributes:
        booking: the pod's node and grants, to be booked.
        policy: the name of the policy that chose.
        score: the lowest score among the pod's containers.
        sub_scores: the parts of the score, by container and GPU (`<container>/<uuid>`). `WISHES` has those of the
            pod's wishes, which are no part of the score.
        expected: what containers that declare no memory are expected to need, and whence, for people; empty if all
            declare it.
        cpus: the CPUs near the GPUs of each container of a pod that wants to be bound to them, as Linux lists them. A
            container whose CPUs are not known is missing.
        note: more about the place, for people, such as what is not known of the node; empty for nothing.
    """

    booking: Booking
    policy: str
    score: float
    sub_scores: Mapping[str, Mapping[str, float]]
    expected: str = ""
    cpus: Mapping[ContainerName, str] = field(default_factory=dict)
    note: str = ""

    def wished(self, parts: Mapping[str, float]) -> "Plan":
        """This plan with the parts of the wishes that its node meets; as it is without any."""
        return replace(self, sub_scores={**self.sub_scores, WISHES: parts}) if parts else self

    @property
    def gpus(self) -> dict[ContainerName, tuple[GpuUuid, ...]]:
        """The GPUs of each container, in the order of its grants."""
        return chosen_gpus(self.booking.grants)


def chosen_gpus(grants: Iterable[Grant]) -> dict[ContainerName, tuple[GpuUuid, ...]]:
    """The GPUs of each container, in the order of its grants."""
    given: dict[ContainerName, tuple[GpuUuid, ...]] = {}
    for grant in grants:
        given[grant.container] = (*given.get(grant.container, ()), grant.gpu)
    return given


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons why no node will do.

    Attributes:
        reasons: by node.
        best_free_bytes: the most memory that was free on one GPU of these nodes that lacks memory and is refused for
            nothing else; None without such a GPU.
        is_final: no other node has a place either. False: the decision left out nodes that may have one.
    """

    reasons: dict[NodeName, tuple[str, ...]] = field(default_factory=dict)
    best_free_bytes: int | None = None
    is_final: bool = True


def together(refusals: Iterable[Refusal]) -> Refusal:
    """The refusals of several nodes, or pages of nodes, as one."""
    reasons: dict[NodeName, tuple[str, ...]] = {}
    best_free_bytes: int | None = None
    for refusal in refusals:
        reasons |= refusal.reasons
        best_free_bytes = _greater(best_free_bytes, refusal.best_free_bytes)
    return Refusal(reasons, best_free_bytes)


def _greater(one: int | None, other: int | None) -> int | None:
    return max((size for size in (one, other) if size is not None), default=None)


def plan(
    request: Request, nodes: Sequence[NodeView], ledger: Ledger, policy: Policy, fit: NodeFit = lambda _: ()
) -> Plan | Refusal:
    """Find the best place among these nodes.

    Every given node is considered. Among equal scores the earlier node wins.

    Args:
        request: the pod.
        nodes: in order of preference.
        ledger: the bookings of all pods; not changed.
        policy: the order among GPUs that fit.
        fit: the front end's own filter (CPU, taints, …); its reasons join the refusal.
    """
    best: Plan | None = None
    refusals: list[Refusal] = []
    for node in nodes:
        unfit = fit(node.node)
        tried = Refusal({node.node: unfit}) if unfit else plan_on(request, node, ledger, policy)
        if isinstance(tried, Refusal):
            refusals.append(tried)
        elif best is None or tried.score > best.score:
            best = tried
    return together(refusals) if best is None else best


def check_supported(demand: PodDemand) -> None:
    """Refuse the demands that no policy handles, so that no pod is placed as if it had not made them.

    Raises:
        InputError: the pod makes such a demand; the message names it.
    """
    several = next((one for one in demand.containers if one.gpus > 1), None)
    named = demand.gpu_id or demand.gpu_name
    if named is not None and several is not None:
        problem = f"names one GPU and container {several.container} asks for {several.gpus}"
        raise InputError("metadata.annotations[plimsoll.dev/gpu-id]", named, problem, "ask for 1 GPU")
    label = demand.locality.stated.affinity
    if label is not None and several is not None:
        problem = f"names one GPU and container {several.container} asks for {several.gpus}"
        raise InputError(f"metadata.annotations[{AFFINITY}]", label, problem, "ask for 1 GPU")


def plan_on(
    request: Request,
    node: NodeView,
    ledger: Ledger,
    policy: Policy,
    rooms: Rooms = NO_ROOMS,
) -> Plan | Refusal:
    """Plan on one node, see `_plan_in_pool`.

    A refusal says whether one more GPU in the pool would do, and which GPUs of the node are unhealthy; or that the
    policy failed.
    """
    try:
        return _plan_on(request, node, ledger, policy, rooms)
    except PolicyError as error:
        return Refusal({node.node: (str(error),)})


def _plan_on(
    request: Request, node: NodeView, ledger: Ledger, policy: Policy, rooms: Rooms
) -> Plan | Refusal:
    planned = _plan_in_pool(request, node, ledger, policy, rooms)
    if isinstance(planned, Plan) or node.is_silent:
        return planned
    if not node.outside:
        return _with_faults(planned, request.demand, node)
    supposed = replace(node, gpus=(*node.gpus, *node.outside), outside=())
    joined = _plan_in_pool(request, supposed, ledger, policy, rooms)
    if isinstance(joined, Refusal):
        return _with_faults(joined, request.demand, node)
    outside = {gpu.uuid for gpu in node.outside}
    if len({grant.gpu for grant in joined.booking.grants} & outside) <= node.acquirable:
        return Refusal({node.node: (Reason.ACQUIRING.value,)}, planned.best_free_bytes)
    why = (*(planned.reasons[node.node] if node.gpus else ()), Reason.OUTSIDE_POOL.value)
    return Refusal({node.node: tuple(sorted(why))}, planned.best_free_bytes)


def _with_faults(refusal: Refusal, demand: PodDemand, node: NodeView) -> Refusal:
    """A refusal that also names the faults of GPUs which the pod might have had otherwise."""
    faults = [
        fault.reason
        for fault in node.faults
        if (not demand.gpu_models or fault.model in demand.gpu_models) and demand.gpu_id in (None, fault.gpu)
    ]
    if not faults:
        return refusal
    # Without a GPU that would do, these are the node's only reason.
    nothing = {Reason.NO_REPORT.value, Reason.GPU_MODEL.value, Reason.GPU_ID.value}
    others = tuple(one for one in refusal.reasons[node.node] if one not in nothing)
    return replace(refusal, reasons={node.node: (*others, unhealthy(faults))})


def _plan_in_pool(
    request: Request, node: NodeView, ledger: Ledger, policy: Policy, rooms: Rooms
) -> Plan | Refusal:
    """Plan on the GPU that has the pod's name or affinity label; where none has it, on those that may get it."""
    demand = request.demand
    ties = demand.gpu_name is not None or demand.locality.affinity is not None
    if not ties or not demand.containers or not node.gpus or node.is_silent:
        return _plan_among(request, node, ledger, policy, rooms)
    open_gpus = _tied(node, ledger, demand)
    if isinstance(open_gpus, Reason):
        return Refusal({node.node: (open_gpus.value,)})
    if len(demand.containers) == 1:
        return _plan_among(request, replace(node, gpus=open_gpus), ledger, policy, rooms)
    # All containers of the pod go to the one GPU that gets the name or the label.
    tried = [_plan_among(request, replace(node, gpus=(gpu,)), ledger, policy, rooms) for gpu in open_gpus]
    plans = [one for one in tried if isinstance(one, Plan)]
    return (
        max(plans, key=lambda plan: plan.score)
        if plans
        else _on_no_gpu(one for one in tried if isinstance(one, Refusal))
    )


def _tied(node: NodeView, ledger: Ledger, demand: PodDemand) -> tuple[GpuView, ...] | Reason:
    """The GPUs of a node on which a pod may have its name and its affinity label, or the reason why none may."""
    holder = ledger.holder(demand.gpu_name) if demand.gpu_name is not None else None
    joined = ledger.joined(demand.locality)
    gpus = node.gpus
    if holder is not None:
        gpus = tuple(gpu for gpu in gpus if (node.node, gpu.uuid) == holder)
    elif demand.gpu_name is not None:
        gpus = tuple(gpu for gpu in gpus if not ledger.names_on(node.node, gpu.uuid))
    if not gpus:
        return Reason.GPU_NAMES if holder is None else Reason.GPU_ID
    if joined is not None:
        gpus = tuple(gpu for gpu in gpus if (node.node, gpu.uuid) == joined)
    return gpus or Reason.AFFINITY


def _on_no_gpu(refusals: Iterable[Refusal]) -> Refusal:
    """The refusals of a node's GPUs, each tried alone, as one of the node."""
    reasons: dict[NodeName, set[str]] = {}
    best_free_bytes: int | None = None
    for refusal in refusals:
        best_free_bytes = _greater(best_free_bytes, refusal.best_free_bytes)
        for node, why in refusal.reasons.items():
            reasons.setdefault(node, set()).update(why)
    return Refusal({node: tuple(sorted(why)) for node, why in reasons.items()}, best_free_bytes)


def _plan_among(
    request: Request, node: NodeView, ledger: Ledger, policy: Policy, rooms: Rooms
) -> Plan | Refusal:
    """Plan on a node: containers one by one, the hardest to place first, and then the init containers that end.

    The first try follows the policy's order of GPUs. That is greedy and may leave a container without a GPU although
    a place for all exists, so further tries take the tightest GPU each time.

    Args:
        request: the pod.
        node: the node.
        ledger: the bookings of all pods; not changed.
        policy: the order among GPUs that fit.
        rooms: the rooms of the node's GPUs that are known, as `room_on` gives them without a pending booking.
    """
    if not request.demand.containers:
        return _judged(Site(request, node, rooms, ledger), [], policy)
    usable, reason = _usable_gpus(node, request.demand)
    if reason is not None:
        return Refusal({node.node: (reason.value,)})
    # Otherwise hundreds of containers would be placed before one is refused.
    if _most_sharers(request.demand) > SHARERS_PER_GPU * len(usable):
        return Refusal({node.node: (Reason.GPU_SHARERS.value,)})
    site = Site(request, node, _rooms(request, node.node, usable, ledger, rooms), ledger)
    attempt = _Attempt(site, policy)
    tried: list[Choice] | Refusal = Refusal()
    for way in _ways(request.demand, policy):
        tried = attempt.run(way)
        if not isinstance(tried, Refusal):
            return _judged(site, tried, policy)
    assert isinstance(tried, Refusal), "a way that found a place was taken"
    return tried


def _most_sharers(demand: PodDemand) -> int:
    """The grants of a pod that share GPUs at the same time, over all its GPUs."""
    return peak((one.lifespan, one.gpus) for one in demand.containers if not one.whole)


def _judged(site: Site, chosen: list[Choice], policy: Policy) -> Plan:
    request = site.request
    position = {demand.container: index for index, demand in enumerate(request.demand.containers)}
    chosen = sorted(chosen, key=lambda choice: position[choice.demand.container])
    judgement = policy.judge(site, chosen)
    grants = tuple(choice.grant for choice in chosen)
    near = near_cpus(request.demand, site.node, chosen_gpus(grants))
    return Plan(
        booking=Booking(
            pod=request.pod,
            node=site.node.node,
            grants=grants,
            owner=request.owner,
            gpu_name=request.demand.gpu_name,
            locality=request.demand.locality,
        ),
        policy=policy.name,
        score=judgement.score,
        sub_scores=judgement.sub_scores,
        cpus=near.cpus,
        note="; ".join(filter(None, (judgement.note, near.note))),
    )


_Arrange = Callable[[Site, ContainerDemand, Sequence[Room]], Sequence[Room]]


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


def _tightest(_: Site, __: ContainerDemand, fitting: Sequence[Room]) -> Sequence[Room]:
    return sorted(fitting, key=lambda room: room.free_ratio)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Places the containers of one pod on the GPUs of one node, greedily."""

    site: Site
    policy: Policy

    def run(self, way: _Way) -> list[Choice] | Refusal:
        if len(way.order) == 1:  # as of most pods; the room that is left matters to no other container
            return self._place(way.order[0], self.site.rooms.values(), (), way.arrange)
        chosen: list[Choice] = []
        # The rooms at each time at which a container ends, or all run.
        times = {one.lifespan.last: dict(self.site.rooms) for one in way.order}
        for demand in way.order:
            lifespan = demand.lifespan
            during = {time: left for time, left in times.items() if lifespan.runs_at(time)}
            more = self._place(demand, _narrowest(during.values()), chosen, way.arrange)
            if isinstance(more, Refusal):
                return more
            chosen += more
            for choice in more:
                for time, left in during.items():
                    left[choice.grant.gpu] = self._room_after(left[choice.grant.gpu], choice, chosen, time)
        return chosen

    def _place(
        self, demand: ContainerDemand, rooms: Collection[Room], chosen: Collection[Choice], arrange: _Arrange
    ) -> list[Choice] | Refusal:
        best_effort_bytes = self.site.ledger.best_effort_bytes(self.site.request.owner)
        site = replace(self.site, chosen=tuple(chosen)) if chosen else self.site
        fitting: list[Room] = []
        short: list[Room] = []
        whys: set[str] = set()
        for room in rooms:
            reason = misfit(room, demand, best_effort_bytes, site.request.demand.locality)
            why = reason.value if reason is not None else self.policy.objection(site, room, demand)
            if why is None:
                fitting.append(room)
            else:
                whys.add(why)
                if reason is Reason.GPU_MEMORY:
                    short.append(room)
        if len(fitting) >= demand.gpus:
            arranged = arrange(site, demand, fitting)
            self._check_arranged(arranged, demand, fitting)
            found = _own_first(arranged, _own_gpus(demand, chosen))
            return [_choice(demand, room) for room in found[: demand.gpus]]
        if fitting or not whys:
            whys = {Reason.GPU_COUNT.value}
        open_bytes = (
            room.open_to(demand) for room in short if self.policy.objection(site, room, demand) is None
        )
        free_bytes = max(open_bytes, default=None)
        return Refusal({self.site.node.node: tuple(sorted(whys))}, free_bytes)

    def _check_arranged(
        self, arranged: Sequence[Room], demand: ContainerDemand, fitting: Iterable[Room]
    ) -> None:
        """Refuse an answer that is not some of the GPUs that fit, each once, and as many as asked for.

        Raises:
            PolicyError: the answer is another one.
        """
        known = {id(room) for room in arranged}
        if len(known) < demand.gpus or len(known) < len(arranged):
            problem = (
                f"arrange gave {len(arranged)} GPUs, {len(known)} different, where {demand.gpus} are wanted"
            )
            raise PolicyError(self.policy.name, problem)
        if not known.issubset(map(id, fitting)):
            raise PolicyError(self.policy.name, "arrange gave a GPU that does not fit")

    def _room_after(self, before: Room, choice: Choice, chosen: Iterable[Choice], time: int) -> Room:
        """The room at a time after a choice; `chosen` are all choices so far, this one among them."""
        grant, ledger, request = choice.grant, self.site.ledger, self.site.request
        if request.pod in before.gpu.measured_bytes:
            there = (one.grant for one in chosen if one.grant.gpu == grant.gpu)
            pending = _pending(
                request, self.site.node.node, *(one for one in there if one.lifespan.runs_at(time))
            )
            return room_on(self.site.node.node, before.gpu, ledger, pending)
        booking = _pending(request, self.site.node.node, grant)
        return before.after(grant, ledger.expected_bytes(booking, grant.gpu))


def _rooms(request: Request, node: NodeName, gpus: Iterable[GpuView], ledger: Ledger, known: Rooms) -> Rooms:
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


def _choice(demand: ContainerDemand, room: Room) -> Choice:
    here = demand.on(room.gpu.usable_bytes)
    return Choice(here, grant_of(here, room.gpu.uuid, room.open_to(here)), room)


def _narrowest(during: Iterable[Mapping[GpuUuid, Room]]) -> Collection[Room]:
    """The room on each GPU for a container that runs at all of these times."""
    first, *others = during
    if not others:
        return first.values()
    return [reduce(Room.within, (left[uuid] for left in others), room) for uuid, room in first.items()]


def _own_first(arranged: Sequence[Room], own: Collection[GpuUuid]) -> Sequence[Room]:
    return sorted(arranged, key=lambda room: room.gpu.uuid not in own) if own else arranged


def _own_gpus(demand: ContainerDemand, chosen: Iterable[Choice]) -> Collection[GpuUuid]:
    """The GPUs that a container takes first: an init container that ends, those of the containers that run on."""
    if not demand.lifespan.ends:
        return ()
    return {choice.grant.gpu for choice in chosen if not choice.demand.lifespan.ends}


def _usable_gpus(node: NodeView, demand: PodDemand) -> tuple[tuple[GpuView, ...], Reason | None]:
    if not node.gpus:
        return (), Reason.NO_REPORT
    if node.is_silent:
        return (), Reason.SILENT
    of_model = tuple(gpu for gpu in node.gpus if not demand.gpu_models or gpu.model in demand.gpu_models)
    if not of_model:
        return (), Reason.GPU_MODEL
    named = tuple(gpu for gpu in of_model if demand.gpu_id in (None, gpu.uuid))
    return named, None if named else Reason.GPU_ID
