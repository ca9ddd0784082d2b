"""One replay: a trace, a policy and a seed give the share of GPUs that stays unallocated, and the pods that fail.

What always holds: places come from the placer's own cores, in the way of `placer.decide`: candidates best first, CPU
and memory of the node checked, a plan on the node, and a booking. Each pod is decided on once. A pod that fits
nowhere has failed, unless others may be moved for it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

from placer.core.policies.policy import Policy
from placer.core.policy_context import Request
from placer.core.target_workload import TargetWorkload, pod_type_of, typical_of
from plimsoll.demand import ContainerDemand, PodDemand
from plimsoll.ids import ContainerName, PodUid
from plimsoll.quantity import MIB
from simulator.trace.arrivals import ARRIVED, draw
from simulator.trace.cluster import Resident, TraceCluster
from simulator.trace.lists import ListedPod, Trace
from simulator.trace.relocation import relocate


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
class TraceReplay:
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


def workload_of(trace: Trace) -> TargetWorkload:
    """The typical pods of a trace: those of its list of pods, as in the paper."""
    return TargetWorkload(
        typical_of(Counter(pod_type_of(demand_of(pod), pod.cpu_milli) for pod in trace.pods))
    )


def replay(
    trace: Trace,
    policy: Policy,
    seed: int,
    arrived: float = ARRIVED,
    note: Callable[[int], None] = lambda _: None,
    most_moves: int = 0,
) -> TraceReplay:
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
    decisions = _Decisions(TraceCluster.of(drawn.nodes, workload_of(trace)), policy, most_moves)
    demands = {pod: demand_of(pod) for pod in trace.pods}
    curve = _Curve(trace.capacity_milli)
    for number, pod in enumerate(drawn.pods):
        request = Request(PodUid(f"pod-{number}"), demands[pod], cpu_milli=pod.cpu_milli)
        if curve.add(pod.total_milli, placed=decisions.place(Resident(request, pod.memory_mib))):
            note(curve.pct)
    times_s = sorted(decisions.times_s)
    return TraceReplay(
        policy=f"{policy.name}+relocation" if most_moves else policy.name,
        seed=seed,
        points=curve.points(),
        failed=curve.failed,
        pods=len(drawn.pods),
        decision_ms=1000 * sum(times_s) / len(times_s),
        longest_ms=1000 * times_s[len(times_s) * 99 // 100],
        moves=decisions.moves,
    )


@dataclass(slots=True)
class _Decisions:
    """The decisions of a replay, the time of each, and the moves that they needed."""

    cluster: TraceCluster
    policy: Policy
    most_moves: int
    times_s: list[float] = field(default_factory=list)
    moves: int = 0

    def place(self, pod: Resident) -> bool:
        """Place a pod, by moving others if need be; returns whether it has a place."""
        began_s = perf_counter()
        plan = self.cluster.place(pod.request, pod.memory_mib, self.policy)
        self.times_s.append(perf_counter() - began_s)
        if plan is not None or not self.most_moves:
            return plan is not None
        moved = relocate(self.cluster, self.policy, pod, self.most_moves)
        self.moves += moved or 0
        return moved is not None


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
