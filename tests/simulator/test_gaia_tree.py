"""Gaia's access cost tree and its three schedulers, on the paper's own examples."""

from collections.abc import Sequence

from placer.core.topology.links import LinkMatrix
from simulator.gaia.matrix import parse_matrix
from simulator.gaia.tree import Free, LevelOrder, TreeNode, access_tree, costs, schedule
from tests.placer.core.topology.matrices import FIGURE_7

EMPTY = (100, 100, 100, 100)
FIGURE_8A = (100, 100, 0, 100)
"""After one GPU was given: gpu2."""


def figure_7(order: LevelOrder) -> TreeNode:
    """The tree of the paper's experiments."""
    return access_tree(parse_matrix(FIGURE_7), order)


def every_pick(tree: TreeNode, free_pct: Free, asked_pct: int) -> set[tuple[int, ...]]:
    """The choices for all ways to break the ties."""

    def nth(number: int) -> set[tuple[int, ...]]:
        def pick(equal: Sequence[int]) -> int:
            return equal[number % len(equal)]

        return {schedule(tree, free_pct, asked_pct, pick)}

    return set().union(*(nth(number) for number in range(4)))


def test_fragment_takes_the_least_room_that_suffices() -> None:
    """§III.B, case 1: of the GPUs in use, the one whose rest is closest to the request; else a whole one."""
    tree = figure_7(LevelOrder.PAPER)
    assert every_pick(tree, (60, 40, 100, 100), 30) == {(1,)}
    assert every_pick(tree, (60, 40, 100, 100), 70) == {(2,), (3,)}
    assert every_pick(tree, (60, 40, 60, 60), 70) == {()}


def test_figure_5_a_single_gpu_breaks_no_pair() -> None:
    """Figure 5: GPU5, whose sibling is taken, and not GPU0 or GPU1 with the lowest access cost."""
    matrix = parse_matrix(
        """
        GPU0 GPU1 GPU2 GPU3 GPU4 GPU5
        GPU0 X PIX SOC SOC SOC SOC
        GPU1 PIX X SOC SOC SOC SOC
        GPU2 SOC SOC X PXB PHB PHB
        GPU3 SOC SOC PXB X PHB PHB
        GPU4 SOC SOC PHB PHB X PXB
        GPU5 SOC SOC PHB PHB PXB X
        """
    )
    tree = access_tree(matrix, LevelOrder.HARDWARE)
    assert every_pick(tree, (100, 100, 100, 100, 0, 100), 100) == {(5,)}
    assert costs(tree)[0] < costs(tree)[5]


def test_link_climbs_until_enough_gpus_are_free() -> None:
    """Three GPUs meet at the root alone, and five have no place."""
    tree = figure_7(LevelOrder.PAPER)
    assert {chosen[1:] for chosen in every_pick(tree, EMPTY, 300)} == {(2, 3)}
    assert every_pick(tree, EMPTY, 500) == {()}


def test_the_two_orders_differ_in_phb_and_pxb() -> None:
    """The paper joins GPUs over a host bridge before those over two switches; the hardware does not."""
    matrix: LinkMatrix = parse_matrix("GPU0 GPU1 GPU2\nGPU0 X PHB PXB\nGPU1 PHB X PHB\nGPU2 PXB PHB X")
    pair = {order: access_tree(matrix, order).children[0].gpus for order in LevelOrder}
    assert pair[LevelOrder.HARDWARE] == (0, 2)
    assert access_tree(matrix, LevelOrder.PAPER).gpus == (0, 1, 2)
    assert access_tree(matrix, LevelOrder.PAPER).level == "PHB"
    assert access_tree(matrix, LevelOrder.HARDWARE).level == "PHB"


def test_the_tree_is_printed_with_its_state() -> None:
    """A line for each node has its level, free GPUs and cost."""
    assert list(figure_7(LevelOrder.PAPER).lines(FIGURE_8A)) == [
        "SOC  3 free, cost 0",
        "  PHB  2 free, cost 0",
        "    gpu0  100 % free, access cost 2",
        "    gpu1  100 % free, access cost 2",
        "  PIX  1 free, cost 0",
        "    gpu2  0 % free, access cost 1",
        "    gpu3  100 % free, access cost 1",
    ]
