"""One replay: a trace, a policy and a seed give the share of GPUs that stays unallocated, and the pods that fail.

What always holds: places come from the placer's own cores, in the way of `placer.decide`: candidates best first, CPU
and memory of the node checked, a plan on the node, and a booking. Each pod is decided on once. A pod that fits
nowhere has failed, unless others may be moved for it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from typing import Final

from placer.core.booking import Booking
from placer.core.candidates import Candidates
from placer.core.ledger import Ledger
from placer.core.mix import Mix, kind_of, typical_of
from placer.core.plan import Plan
from placer.core.planning import plan_on
from placer.core.policies.policy import Policy
from placer.core.site import Request
from placer.core.topology.hardware import linked
from placer.core.topology.links import Way, Ways
from placer.core.view import GpuView, NodeView
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from plimsoll.quantity import GIB, MIB
from simulator.trace.arrivals import ARRIVED, draw
from simulator.trace.lists import ListedNode, ListedPod, Trace
from simulator.trace.relocation import Resident, relocate

UNLIMITED_BYTES: Final = 1024 * 1024 * GIB
"""The memory of each GPU, which binds no pod: a pod declares a MiB."""


@dataclass(frozen=True, slots=True)
class Point:
    """The mean state while this many percent of the cluster's GPUs have been asked for.

    Attributes:
        unallocated_pct: the part of all GPUs that no pod has.
        failed: the pods without a place, up to the last arrival of this point.
    """

    unallocated_pct: float
    failed: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The result of one replay.

    Attributes:
        points: by the percentage of the cluster's GPUs that has been asked for, failed pods included.
        failed: the pods without a place at the end.
        moves: the pods that were moved, each time that one was.
        pods: the pods that arrived.
        decision_ms: the mean time of a decision.
        longest_ms: the 99th percentile of these times.
    """

    policy: str
    seed: int
    points: dict[int, Point]
    failed: int
    pods: int
    decision_ms: float
    longest_ms: float
    moves: int = 0


def demand_of(pod: ListedPod) -> PodDemand:
    """A pod's demand as the placer reads it: whole GPUs, or a share of one."""
    if not pod.gpus:
        return PodDemand(())
    whole = pod.gpu_milli == 1000
    container = ContainerDemand(
        container=ContainerName("main"),
        gpus=pod.gpus,
        memory_bytes=None if whole else MIB,
        share_pct=0 if whole else pod.gpu_milli // 10,
        limit_pct=100,
        whole=whole,
    )
    return PodDemand((container,), gpu_models=pod.models)


@dataclass(slots=True)
class Cluster:
    """The nodes of a trace as the placer sees them, and the decisions on its pods.

    Attributes:
        ledger: the bookings, the spare CPU of nodes, and the mix of typical pods.
        free_mib: the free memory of each node.
        residents: the pods that have a place.
    """

    ledger: Ledger
    candidates: Candidates
    free_mib: dict[NodeName, int] = field(default_factory=dict)
    residents: dict[PodUid, Resident] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: tuple[ListedNode, ...], mix: Mix) -> "Cluster":
        """An empty cluster."""
        ledger = Ledger(mix)
        views = {view.node: view for view in map(_view, nodes)}
        made = cls(ledger, Candidates(ledger, views.get))
        for node in nodes:
            name = NodeName(node.name)
            made.free_mib[name] = node.memory_mib
            ledger.spare_cpu.note(name, node.cpu_milli)
            made.candidates.note_report(name)
        made.candidates.refresh()
        return made

    def place(self, request: Request, memory_mib: int, policy: Policy) -> Plan | None:
        """Decide on a pod and book its place; None if it fits nowhere."""
        best: Plan | None = None
        for candidate in self.candidates.best_first(request, policy):
            if best is not None and candidate.bound <= best.score:
                break
            node = candidate.node.node
            if (self.ledger.spare_cpu.on(node) or 0) < request.cpu_milli or self.free_mib[node] < memory_mib:
                continue
            tried = plan_on(request, candidate.node, self.ledger, policy, candidate.rooms)
            if isinstance(tried, Plan) and (best is None or tried.score > best.score):
                best = tried
        if best is not None:
            self.put(Resident(request, memory_mib), best.booking)
        return best

    def put(self, resident: Resident, booking: Booking) -> None:
        """Book a place."""
        self.ledger.book(booking)
        self.residents[booking.pod] = resident
        self._take(booking.node, resident, 1)

    def remove(self, pod: PodUid) -> Resident:
        """Free the place of a pod."""
        booking, resident = self.ledger.forget(pod), self.residents.pop(pod)
        assert booking is not None, "a resident has a place"
        self._take(booking.node, resident, -1)
        return resident

    def _take(self, node: NodeName, resident: Resident, sign: int) -> None:
        spare_milli = (self.ledger.spare_cpu.on(node) or 0) - sign * resident.request.cpu_milli
        self.ledger.spare_cpu.note(node, spare_milli)
        self.free_mib[node] -= sign * resident.memory_mib


def _view(node: ListedNode) -> NodeView:
    found = tuple(
        GpuView(GpuUuid(f"{node.name}/{number}"), node.model, UNLIMITED_BYTES, 0, 100.0, 1.0, {})
        for number in range(node.gpus)
    )
    return NodeView(
        NodeName(node.name), (1, 1), found, hardware=linked([gpu.uuid for gpu in found], _ways(node.gpus))
    )


@cache
def _ways(gpus: int) -> Ways:
    """The links of a node, of which a trace says nothing: an assumption, by which only `topology` chooses.

    Two GPUs share a PCIe switch, and four a socket.
    """

    def way(one: int, other: int) -> Way:
        return Way("PIX" if one // 2 == other // 2 else "NODE" if one // 4 == other // 4 else "SYS")

    return tuple(tuple(way(one, other) for other in range(gpus)) for one in range(gpus))


def mix_of(trace: Trace) -> Mix:
    """The typical pods of a trace: those of its list of pods, as in the paper."""
    return Mix(typical_of(Counter(kind_of(demand_of(pod), pod.cpu_milli) for pod in trace.pods)))


def replay(
    trace: Trace,
    policy: Policy,
    seed: int,
    arrived: float = ARRIVED,
    note: Callable[[int], None] = lambda _: None,
    most_moves: int = 0,
) -> Replay:
    """Replay a trace.

    Args:
        trace: the nodes and pods.
        policy: gives the places.
        seed: the seed of the draw.
        arrived: the GPU that all pods ask for, in relation to the cluster's.
        note: is given the percentage of GPUs asked for, each time that it rises.
        most_moves: the most pods that are moved for one that fits nowhere.
    """
    drawn = draw(trace, seed, arrived)
    cluster = Cluster.of(drawn.nodes, mix_of(trace))
    demands = {pod: demand_of(pod) for pod in trace.pods}
    curve = _Curve(trace.capacity_milli)
    times_s: list[float] = []
    moves = 0
    for number, pod in enumerate(drawn.pods):
        request = Request(PodUid(f"pod-{number}"), demands[pod], cpu_milli=pod.cpu_milli)
        began_s = perf_counter()
        is_placed = cluster.place(request, pod.memory_mib, policy) is not None
        times_s.append(perf_counter() - began_s)
        if not is_placed and most_moves:
            moved = relocate(cluster, policy, Resident(request, pod.memory_mib), most_moves)
            is_placed, moves = moved is not None, moves + (moved or 0)
        if curve.add(pod.total_milli, placed=is_placed):
            note(curve.pct)
    times_s.sort()
    return Replay(
        policy=f"{policy.name}+relocation" if most_moves else policy.name,
        seed=seed,
        points=curve.points(),
        failed=curve.failed,
        pods=len(drawn.pods),
        decision_ms=1000 * sum(times_s) / len(times_s),
        longest_ms=1000 * times_s[len(times_s) * 99 // 100],
        moves=moves,
    )


@dataclass(slots=True)
class _Curve:
    """The allocated GPUs at each percentage of arrival: the mean over the arrivals that round to it."""

    capacity_milli: int
    arrived_milli: int = 0
    allocated_milli: int = 0
    failed: int = 0
    pct: int = 0
    sums: Counter[int] = field(default_factory=Counter)
    events: Counter[int] = field(default_factory=Counter)
    failures: dict[int, int] = field(default_factory=dict)

    def add(self, milli: int, *, placed: bool) -> bool:
        """Count a pod; returns whether the percentage rose."""
        self.arrived_milli += milli
        self.allocated_milli += milli if placed else 0
        self.failed += not placed
        before, self.pct = self.pct, round(100 * self.arrived_milli / self.capacity_milli)
        self.sums[self.pct] += self.allocated_milli
        self.events[self.pct] += 1
        self.failures[self.pct] = self.failed
        return self.pct > before

    def points(self) -> dict[int, Point]:
        return {
            pct: Point(100 - 100 * self.sums[pct] / events / self.capacity_milli, self.failures[pct])
            for pct, events in self.events.items()
        }
