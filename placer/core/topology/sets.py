"""The set of GPUs of a node that a container gets: the nearest to each other.

Among equally near sets, the search chooses the one that later containers need least.

Source: Gaia's Fragment, Singular and Link (see `simulator.gaia.tree`). Deviations, which all refine it:

* Link compares the costs of all pairs of a set. The paper compares the level at which a set meets, so it takes any
  three GPUs of a node with two pairs, and ours has one whole pair among them. On a tree the set that meets at the
  lowest level always has the cheapest pairs. A mesh of NVLinks is no tree: only its pairs show which GPUs are near.
* Among sets of one cost, the empty GPUs that are left decide: their pairs must stay as close as can be. For a single
  GPU this is Singular, as a GPU whose neighbour is in use has no close pair to lose. Where every neighbour is free,
  the paper takes the GPU with the lowest access cost, which breaks the best pair. Ours breaks the worst.
* Fragment follows from the same rule: a GPU in use takes no empty GPU away, so fragments come first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Final

from placer.core.topology.links import MOST_NVLINKS, PAIRS, PATHS, GpuLink, LinkMatrix

_UNIT: Final = GpuLink(PATHS[0]).cost
_LEVELS: Final = len(PATHS)

SHAPES: Final = 1024
"""The link matrices whose shapes are kept, the last used."""

REMEMBERED: Final = 65_536
"""The choices that are kept: a cluster has few kinds of nodes, so most decisions repeat an earlier one."""


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The costs between the GPUs of a node, by their place in it. Nodes of one kind have the same shape.

    Shapes are compared by identity, because best sets are remembered by shape and a decision looks them up for many
    nodes; `shape_of` gives the same one for equal matrices.
    """

    costs: tuple[tuple[int, ...], ...]
    closeness: tuple[tuple[int, ...], ...]

    def cost(self, places: tuple[int, ...]) -> int:
        """The cost of a set: that of all its pairs."""
        return sum(self.costs[one][other] for one, other in combinations(places, 2))

    def nearness(self, places: tuple[int, ...]) -> float:
        """The cost of a set as a score, 0 to 1: 1 for a single GPU, and smaller the farther apart its farthest pairs
        are.

        Sets with fewer pairs at the farthest level have the higher score, then those with fewer at the next one, and
        so on. Each level has a sixth of the scale.
        """
        farther, nvlinks = divmod(self.cost(places), _UNIT)
        return 1 - _grade(_counts(farther), nvlinks / _UNIT)

    def apartness(self, place: int, empty: frozenset[int]) -> float:
        """How little an empty GPU is worth to the other empty ones, as a score: 1 if there is no other, else to 0.5.

        The score is smaller the closer the nearest empty neighbours are, and then the more of them there are.
        """
        others = empty - {place}
        if not others:
            return 1.0
        closeness = sum(self.closeness[place][other] for other in others)
        nvlinks = closeness // PAIRS**_LEVELS
        return (1 - _grade([*_counts(closeness), nvlinks / MOST_NVLINKS])) / 2

    def kept(self, places: Iterable[int]) -> int:
        """The closeness of all pairs of these GPUs: the worth of leaving them empty."""
        return sum(self.closeness[one][other] for one, other in combinations(places, 2))

    @property
    def is_even(self) -> bool:
        """Whether all pairs cost the same, so that no set is nearer than another one."""
        return len({cost for at, row in enumerate(self.costs) for cost in (*row[:at], *row[at + 1 :])}) < 2


@lru_cache(SHAPES)
def shape_of(matrix: LinkMatrix) -> Shape:
    """The shape of a link matrix."""
    return Shape(
        tuple(tuple(link.cost for link in row) for row in matrix),
        tuple(tuple(link.closeness for link in row) for row in matrix),
    )


def _counts(total: int) -> list[int]:
    """The counts of pairs in a sum of costs or closenesses, from the level that weighs least."""
    return [total // PAIRS**level % PAIRS for level in range(_LEVELS)]


def _grade(counts: Sequence[float], below: float = 0.0) -> float:
    """Counts by level as one number, 0 to 1: the weightiest level that has any decides, then its count, and so on.

    Args:
        counts: from the level that weighs least; each below `PAIRS`.
        below: what weighs less than all of them, 0 to 1.
    """
    level, part, grade = 0, below, below
    for place, count in enumerate(counts, start=1):
        part = (count + part) / PAIRS
        if count:
            level, grade = place, part
    return (level + grade) / (len(counts) + 1)


@lru_cache(REMEMBERED)
def best_set(shape: Shape, preferred: tuple[int, ...], count: int, empty: frozenset[int]) -> tuple[int, ...]:
    """The cheapest set of this many GPUs; among equals the one that leaves most, then the most preferred.

    Args:
        shape: the node's.
        preferred: the places of the GPUs that fit, the most preferred first; `count` of them or more.
        count: the number of GPUs of the set, 1 or more.
        empty: the places of the empty GPUs of the node.

    Returns:
        the places in the order of `preferred`.
    """
    if shape.is_even:  # 16 GPUs behind NVSwitches have 12 870 sets of 8
        chosen = set(sorted(preferred, key=empty.__contains__)[:count])
        return tuple(place for place in preferred if place in chosen)
    best: tuple[int, ...] = ()
    least: tuple[int, int, int] | None = None
    for places, cost in _cheap_sets(shape, preferred, count):
        left = empty.difference(places)
        found = cost, -shape.kept(left), -len(left)
        if least is None or found < least:
            best, least = places, found
    return best


def _cheap_sets(
    shape: Shape, preferred: tuple[int, ...], count: int
) -> Iterator[tuple[tuple[int, ...], int]]:
    """The sets in the order of preference, less those that cost more than one before, each with its cost.

    Sets that are grown from each GPU by the nearest others cost little, so they bound the search from its begin.
    """
    least = min(_grown(shape, preferred, count, first) for first in preferred)
    cheapest_pair = (
        min(shape.costs[one][other] for one, other in combinations(preferred, 2)) if count > 1 else 0
    )

    def grow(places: tuple[int, ...], cost: int, start: int) -> Iterator[tuple[tuple[int, ...], int]]:
        nonlocal least
        wanted = count - len(places)
        if cost + cheapest_pair * (wanted * len(places) + wanted * (wanted - 1) // 2) > least:
            return
        if not wanted:
            least = cost
            yield places, cost
            return
        for at in range(start, len(preferred) - wanted + 1):
            row = shape.costs[preferred[at]]
            added = sum(row[place] for place in places)
            yield from grow((*places, preferred[at]), cost + added, at + 1)

    yield from grow((), 0, 0)


def _grown(shape: Shape, among: tuple[int, ...], count: int, first: int) -> int:
    """The cost of a set that starts with this GPU and always takes the GPU that adds least."""
    added = {place: shape.costs[first][place] for place in among if place != first}
    cost = 0
    for _ in range(count - 1):
        nearest = min(added, key=added.__getitem__)
        cost += added.pop(nearest)
        for place in added:
            added[place] += shape.costs[nearest][place]
    return cost
