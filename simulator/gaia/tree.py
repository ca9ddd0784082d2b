"""Gaia's access cost tree with its schedulers Fragment, Singular and Link, as printed.

Source: S. Song et al., "Gaia Scheduler: A Kubernetes-based Scheduler Framework", ISPA 2018, §III.B, Algorithms 1–4.
The leaves are GPUs, and an inner node is the level at which those below it meet. Where the listings leave a point
open, or differ from the prose, we do as follows:

* The access cost of a GPU is the rank of the level at which it meets its next neighbours, 1 for the cheapest level.
* Algorithm 4 climbs from each GPU to a node with enough free GPUs, and never adds it to the candidates. We add it.
* In Algorithm 4 a set costs `m ×` the access cost of the node's children. Inner nodes have an access cost of 0, so
  the root would be the cheapest. We take the rank of the level at which the node's children meet.
* Ties are open. The caller breaks them, by seed in the tables.

The policy `topology` chooses by `placer.core.topology.sets`, which refines this.
"""

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from placer.core.topology.links import NVLINK, PATHS, GpuLink, LinkMatrix

WHOLE_PCT: Final = 100

Pick = Callable[[Sequence[int]], int]
"""Breaks a tie: chooses one of several equal GPUs, or the candidate that one of several equal GPUs stands for."""

Free = Sequence[int]
"""The free part of each GPU, in percent: 100 for an empty GPU, 0 for a full one."""


class LevelOrder(enum.Enum):
    """The two orders of the levels: their names, the cheapest first."""

    HARDWARE = (NVLINK, *PATHS)
    PAPER = ("PIX", "PHB", "PXB", "SOC")


def level_of(link: GpuLink, order: LevelOrder) -> str:
    """The name of a link's level in an order. The paper's order calls every level that it lacks SOC."""
    if order is LevelOrder.HARDWARE:
        return link.level
    return link.path if link.path in order.value else "SOC"


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node of the tree.

    Attributes:
        level: the level at which the children meet; empty for a GPU.
        cost: the rank of that level, 1 for the cheapest; for a GPU, its access cost.
        gpus: the numbers of the GPUs below, or of the GPU itself.
        children: empty for a GPU.
    """

    level: str
    cost: int
    gpus: tuple[int, ...]
    children: tuple["TreeNode", ...] = ()

    def whole(self, free_pct: Free) -> int:
        """The number of empty GPUs below."""
        return sum(free_pct[gpu] == WHOLE_PCT for gpu in self.gpus)

    def parents(self) -> Iterator["TreeNode"]:
        """All inner nodes, those above first."""
        if self.children:
            yield self
        for child in self.children:
            yield from child.parents()

    def lines(self, free_pct: Free, depth: int = 0) -> Iterator[str]:
        """The tree for people, a line for each node."""
        if self.children:
            yield f"{'  ' * depth}{self.level}  {self.whole(free_pct)} free, cost 0"
        else:
            yield f"{'  ' * depth}gpu{self.gpus[0]}  {free_pct[self.gpus[0]]} % free, access cost {self.cost}"
        for child in self.children:
            yield from child.lines(free_pct, depth + 1)


def access_tree(matrix: LinkMatrix, order: LevelOrder = LevelOrder.HARDWARE) -> TreeNode:
    """The tree of a node's GPUs. GPUs meet at a level if a chain of links of this level or cheaper ones joins them.

    Args:
        matrix: the link matrix of one GPU or more.
        order: the order of the levels.
    """
    nodes = [TreeNode("", 0, (gpu,)) for gpu in range(len(matrix))]
    for rank, level in enumerate(order.value, start=1):
        nodes = [_joined(level, rank, group) for group in _groups(nodes, matrix, order, rank)]
    return nodes[0]


def _groups(
    nodes: Sequence[TreeNode], matrix: LinkMatrix, order: LevelOrder, rank: int
) -> list[list[TreeNode]]:
    """The nodes that meet at a level, together."""
    groups: list[list[TreeNode]] = []
    for node in nodes:
        near = [group for group in groups if any(_meet(node, one, matrix, order, rank) for one in group)]
        groups = [group for group in groups if group not in near]
        groups.append([one for group in near for one in group] + [node])
    return sorted(groups, key=lambda group: min(gpu for node in group for gpu in node.gpus))


def _meet(one: TreeNode, other: TreeNode, matrix: LinkMatrix, order: LevelOrder, rank: int) -> bool:
    return any(
        order.value.index(level_of(matrix[first][second], order)) < rank
        for first in one.gpus
        for second in other.gpus
    )


def _joined(level: str, rank: int, group: Sequence[TreeNode]) -> TreeNode:
    if len(group) == 1:
        return group[0]
    children = [one if one.children else TreeNode("", rank, one.gpus) for one in group]
    return TreeNode(level, rank, tuple(sorted(gpu for one in group for gpu in one.gpus)), tuple(children))


def schedule(tree: TreeNode, free_pct: Free, asked_pct: int, pick: Pick) -> tuple[int, ...]:
    """Algorithm 1: the GPUs for a container, in rising order; empty if it has no place.

    Args:
        tree: the access cost tree.
        free_pct: the state of each GPU.
        asked_pct: 1 to 99 for a part of a GPU, or a multiple of 100.
        pick: breaks ties.
    """
    if asked_pct < WHOLE_PCT:
        return fragment(tree, free_pct, asked_pct, pick)
    if asked_pct == WHOLE_PCT:
        return singular(tree, free_pct, pick)
    return link(tree, free_pct, asked_pct // WHOLE_PCT, pick)


def fragment(tree: TreeNode, free_pct: Free, asked_pct: int, pick: Pick) -> tuple[int, ...]:
    """Algorithm 2: the GPU in use with the least room that suffices, else the empty one with the lowest cost."""
    enough = [gpu for gpu in tree.gpus if asked_pct <= free_pct[gpu] < WHOLE_PCT]
    if enough:
        least = min(free_pct[gpu] for gpu in enough)
        return (pick([gpu for gpu in enough if free_pct[gpu] == least]),)
    return _cheapest(tree, [gpu for gpu in tree.gpus if free_pct[gpu] == WHOLE_PCT], pick)


def singular(tree: TreeNode, free_pct: Free, pick: Pick) -> tuple[int, ...]:
    """Algorithm 3: the cheapest empty GPU with a sibling that is taken, else the cheapest empty GPU."""
    beside_taken = [
        child.gpus[0]
        for parent in tree.parents()
        for child in parent.children
        if not child.children
        and free_pct[child.gpus[0]] == WHOLE_PCT
        and any(sum(free_pct[gpu] for gpu in other.gpus) == 0 for other in parent.children)
    ]
    empty = [gpu for gpu in tree.gpus if free_pct[gpu] == WHOLE_PCT]
    return _cheapest(tree, beside_taken or empty, pick)


def link(tree: TreeNode, free_pct: Free, count: int, pick: Pick) -> tuple[int, ...]:
    """Algorithm 4: empty GPUs below the cheapest node that has enough of them."""
    enough = [node for node in tree.parents() if node.whole(free_pct) >= count]
    # A climb from a GPU ends at the lowest such node; a node above one is a candidate only for its other GPUs.
    if not enough:
        return ()
    least = min(node.cost for node in enough)
    cheapest = {node.gpus[0]: node for node in enough if node.cost == least}
    best = cheapest[pick(sorted(cheapest))]
    chosen: list[int] = []
    while len(chosen) < count:
        empty = [gpu for gpu in best.gpus if free_pct[gpu] == WHOLE_PCT and gpu not in chosen]
        chosen += _cheapest(tree, empty, pick)
    return tuple(sorted(chosen))


def _cheapest(tree: TreeNode, gpus: Sequence[int], pick: Pick) -> tuple[int, ...]:
    """A set of one GPU: one with the lowest access cost. Empty if there is no GPU."""
    if not gpus:
        return ()
    cost_of = costs(tree)
    least = min(cost_of[gpu] for gpu in gpus)
    return (pick([gpu for gpu in gpus if cost_of[gpu] == least]),)


def costs(tree: TreeNode) -> dict[int, int]:
    """The access cost of each GPU."""
    if not tree.children:
        return {tree.gpus[0]: tree.cost}
    return {gpu: cost for child in tree.children for gpu, cost in costs(child).items()}
