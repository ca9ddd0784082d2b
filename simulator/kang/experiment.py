"""Two experiments, each with any number of nodes and any of the ways to place.

* `tables`: half of the nodes hold 23 tasks with 60,000 data, the others 25 with 40,000, as nodes 1 and 2 of the
  paper. For each pair of nodes two pods with 60,000 data arrive, at random over a minute.
* `burst`: the nodes are empty, and 20 pods with 60,000 data for each node arrive within one second. All of them fit.
"""

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from plimsoll.ids import PodUid
from simulator.kang.placers import PLACERS, Placer
from simulator.kang.world import LARGE, SMALL, START_S, RunningTask, World

NODES: Final = (3, 30, 300)

SETTLED_S: Final = 3 * LARGE.run_s
"""The new pods come after this many seconds, when each resident task has run twice at least."""
ARRIVALS_S: Final = 60.0
BURST_S: Final = 1.0
WATCH_S: Final = 5 * LARGE.run_s
"""Failures are counted until this many seconds after the last arrival."""

FULL_LARGE: Final = 23
FULL_SMALL: Final = 25
BURST_PER_NODE: Final = 20
"""As many tasks with 60,000 data fit on a card at their peaks (20 × 1205 of 24114 MiB)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run.

    Attributes:
        pods: the pods that arrived.
        failed: the tasks that failed after the first pod had come, resident ones among them.
        waiting: the pods that were not placed.
        most_on_a_node: the most pods that one node got.
        unfit: the resident tasks that failed before; the scene is valid only if there is none.
    """

    pods: int
    failed: int
    waiting: int
    most_on_a_node: int
    unfit: int


def run_once(experiment: str, placer: str, nodes: int, seed: int) -> Outcome:
    """Make one run; the same arguments always give the same result."""
    chance = random.Random(f"{experiment}/{nodes}/{seed}")
    world = World(nodes)
    arrivals_s = EXPERIMENTS[experiment](world, chance)
    world.run(SETTLED_S)
    unfit = _failed(world)
    for task in world.tasks:
        task.failures = 0
    placed = _place_all(world, PLACERS[placer](world, chance), arrivals_s)
    world.run(arrivals_s[-1] + WATCH_S)
    waiting = len(arrivals_s) - placed.total()
    return Outcome(len(arrivals_s), _failed(world), waiting, max(placed.values(), default=0), unfit)


def _tables(world: World, chance: random.Random) -> list[float]:
    """Fill the nodes; returns the times at which the new pods come."""
    pairs = world.nodes // 2
    for node in range(world.nodes):
        kind, count = (LARGE, FULL_LARGE) if node < pairs else (SMALL, FULL_SMALL)
        for place in range(count):
            world.add(place / count * kind.run_s, RunningTask(kind, node))
    return sorted(SETTLED_S + chance.uniform(0, ARRIVALS_S) for _ in range(2 * pairs))


def _burst(world: World, chance: random.Random) -> list[float]:
    return sorted(SETTLED_S + chance.uniform(0, BURST_S) for _ in range(BURST_PER_NODE * world.nodes))


EXPERIMENTS: Final[Mapping[str, Callable[[World, random.Random], list[float]]]] = MappingProxyType(
    {"tables": _tables, "burst": _burst}
)


def _place_all(world: World, placer: Placer, arrivals_s: list[float]) -> Counter[int]:
    """Let all pods arrive while the world runs; returns the number of pods that each node got."""
    world.on_phase = placer.take_event
    placed: Counter[int] = Counter()

    def arrive(now_s: float, pod: PodUid) -> None:
        node = placer.place(pod, LARGE)
        if node is not None:
            placed[node] += 1
            world.add(now_s + START_S, RunningTask(LARGE, node, pod))

    for number, time_s in enumerate(arrivals_s):
        pod = PodUid(f"pod-{number}")
        world.at(time_s, lambda now_s, pod=pod: arrive(now_s, pod))  # type: ignore[misc]
    world.run(arrivals_s[-1] + WATCH_S / 2)
    return placed


def _failed(world: World) -> int:
    return sum(task.failures > 0 for task in world.tasks)
