"""The search for relocations, on toy clusters: each GPU has a size, and a pod takes a part of one GPU."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placer.core.booking import Booking, Grant
from placer.core.relocation.plan import EvictablePod, Relocation, Spot
from placer.core.relocation.search import confirmed, result, search
from plimsoll.ids import ContainerName, GpuUuid, NodeName, PodUid
from tests.slow import examples

WAITING = PodUid("waiting")
SIZE = 10
MOST = 3


@dataclass
class Toy:
    """A cluster of GPUs of size `SIZE`, named by node and number.

    Attributes:
        gpus: the number of GPUs of each node.
        sizes: the sizes of all pods.
        places: the GPU of each pod that runs.
        costs: the costs of the pods that may be moved.
        traffic: the traffic of the GPUs that have any.
    """

    gpus: Mapping[str, int]
    sizes: dict[str, int]
    places: dict[str, Spot] = field(default_factory=dict)
    costs: dict[str, float] = field(default_factory=dict)
    traffic: dict[str, float] = field(default_factory=dict)
    trials: int = 0

    def spots(self, pod: PodUid) -> Sequence[Spot]:
        """See `Snapshot`."""
        del pod
        return [
            Spot(NodeName(node), GpuUuid(f"{node}-{number}"))
            for node, count in self.gpus.items()
            for number in range(count)
        ]

    def hosts(self, pod: PodUid) -> Sequence[Spot]:
        """See `Snapshot`."""
        return self.spots(pod)

    def evictable(self, pod: PodUid, spot: Spot) -> Sequence[EvictablePod]:
        """See `Snapshot`."""
        found = [
            EvictablePod(
                PodUid(name), spot.node, frozenset({place.gpu} if place.gpu else ()), self.costs[name]
            )
            for name, place in self.places.items()
            if place == spot and name in self.costs and name != pod
        ]
        return sorted(found, key=lambda one: (one.cost, one.pod))

    def place(
        self, pod: PodUid, spot: Spot, gone: Collection[PodUid], there: Collection[Booking]
    ) -> Booking | None:
        """See `Snapshot`."""
        self.trials += 1
        assert spot.gpu is not None
        others = [name for name, place in self.places.items() if place == spot and PodUid(name) not in gone]
        more = [one.pod for one in there if one.grants[0].gpu == spot.gpu]
        taken = sum(self.sizes[name] for name in (*others, *more))
        if taken + self.sizes[pod] > SIZE:
            return None
        grant = Grant(ContainerName("main"), spot.gpu, None, 0, 100, whole=False, line_bytes=0)
        return Booking(pod, spot.node, (grant,))

    def traffic_pct(self, node: NodeName, gpu: GpuUuid) -> float:
        """See `Snapshot`."""
        del node
        return self.traffic.get(gpu, 0.0)

    def plan(self, most_trials: int = 10**6) -> Relocation | None:
        """The plan for the waiting pod."""
        return result(search(self, WAITING, MOST, most_trials))

    def brute_force(self) -> tuple[int, float] | None:
        """The fewest moves, and the least cost with that number, by trying all pods on all GPUs."""
        spots = self.spots(WAITING)
        for count in range(MOST + 1):
            costs = [
                sum(self.costs[name] for name in group)
                for group in combinations(sorted(self.costs), count)
                if any(self.is_possible(group, to) for to in product(spots, repeat=count + 1))
            ]
            if costs:
                return count, min(costs)
        return None

    def is_possible(self, group: Sequence[str], to: Sequence[Spot]) -> bool:
        """Whether all pods have room with the waiting pod on the first spot, and this group on the others."""
        after = {**self.places, WAITING: to[0], **dict(zip(group, to[1:], strict=True))}
        loads: dict[Spot, int] = {}
        for name, spot in after.items():
            loads[spot] = loads.get(spot, 0) + self.sizes[name]
        return max(loads.values()) <= SIZE


@st.composite
def toys(draw: st.DrawFn) -> Toy:
    """Clusters of at most three GPUs, filled at random."""
    gpus = draw(st.sampled_from([{"a": 1, "b": 1}, {"a": 2}, {"a": 2, "b": 1}, {"a": 1, "b": 1, "c": 1}]))
    toy = Toy(gpus, {WAITING: draw(st.integers(3, SIZE))})
    spots = toy.spots(WAITING)
    free = dict.fromkeys(spots, SIZE)
    for number in range(draw(st.integers(0, 6))):
        name, spot, size = f"pod{number}", draw(st.sampled_from(spots)), draw(st.integers(1, 7))
        if size <= free[spot]:
            free[spot] -= size
            toy.sizes[name], toy.places[name] = size, spot
            if draw(st.integers(0, 3)):
                toy.costs[name] = draw(st.sampled_from([0.0, 1.0, 2.5]))
    toy.traffic = {spot.gpu: draw(st.sampled_from([0.0, 40.0])) for spot in spots if spot.gpu}
    return toy


@settings(max_examples=examples(150), deadline=None)
@given(toys())
def test_no_plan_is_larger_or_dearer_than_the_best_of_all_plans(toy: Toy) -> None:
    """The search finds a plan exactly where there is one, with the fewest moves and the least cost at that number."""
    found, best = toy.plan(), toy.brute_force()
    assert (None if found is None else (len(found.moves), found.cost)) == best


@settings(max_examples=examples(150), deadline=None)
@given(toys(), st.integers(0, 40))
def test_a_plan_moves_only_pods_that_allow_it_and_fits_no_gpu_twice(toy: Toy, most_trials: int) -> None:
    """All pods have room at the same time after the moves, also where the search had to end early."""
    found = toy.plan(most_trials)
    assert toy.trials <= most_trials
    if found is None:
        return
    moved = [str(one.evicted.pod) for one in found.moves]
    assert len(set(moved)) == len(moved) <= MOST
    assert set(moved) <= set(toy.costs)
    to = [Spot(one.node, one.grants[0].gpu) for one in (found.place, *(move.to for move in found.moves))]
    assert toy.is_possible(moved, to)


@settings(max_examples=examples(50), deadline=None)
@given(toys())
def test_the_same_cluster_gives_the_same_plan(toy: Toy) -> None:
    """Two searches agree, and a plan for a cluster that has not changed is confirmed."""
    found = toy.plan()
    assert toy.plan() == found
    assert found is None or confirmed(toy, WAITING, found) == found


def spot(gpu: str) -> Spot:
    """The spot of a GPU."""
    return Spot(NodeName(gpu[0]), GpuUuid(gpu))


def test_a_target_may_be_made_by_a_further_move() -> None:
    """The first pod's target has room once another pod has moved on."""
    toy = Toy({"a": 1, "b": 1, "c": 1}, {WAITING: 10, "first": 6, "second": 5, "stone": 1, "wall": 5})
    toy.places = {"first": spot("a-0"), "second": spot("b-0"), "stone": spot("b-0"), "wall": spot("c-0")}
    toy.costs = {"first": 0.0, "second": 0.0}
    found = toy.plan()
    assert found is not None
    assert {(str(one.evicted.pod), str(one.to.node)) for one in found.moves} == {
        ("first", "b"),
        ("second", "c"),
    }


@pytest.mark.parametrize(("busy", "leaves"), [("a-0", "left"), ("b-0", "right")])
def test_of_equal_pods_the_one_beside_busy_memory_moves(busy: str, leaves: str) -> None:
    """Where the bandwidth of a GPU is much used, the pod there moves, and not its equal elsewhere."""
    toy = Toy({"a": 1, "b": 1, "c": 1}, {WAITING: 8, "left": 4, "right": 4, "wall": 4})
    toy.places = {"left": spot("a-0"), "right": spot("b-0"), "wall": spot("c-0")}
    toy.costs, toy.traffic = {"left": 1.0, "right": 1.0}, {busy: 60.0, "c-0": 20.0}
    found = toy.plan()
    assert found is not None
    assert [one.evicted.pod for one in found.moves] == [leaves]


def test_a_moved_pod_goes_where_least_bandwidth_is_used() -> None:
    """The pod takes the GPU whose pods read and write less memory, where two GPUs have the same room."""
    toy = Toy({"a": 1, "b": 1, "c": 1}, {WAITING: 8, "mover": 4, "loud": 4, "quiet": 4})
    toy.places = {"mover": spot("a-0"), "loud": spot("b-0"), "quiet": spot("c-0")}
    toy.costs, toy.traffic = {"mover": 1.0}, {"b-0": 70.0, "c-0": 10.0}
    found = toy.plan()
    assert found is not None
    assert [one.to.node for one in found.moves] == ["c"]
