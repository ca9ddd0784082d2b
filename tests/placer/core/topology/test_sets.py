"""The nearest set of GPUs, and what it leaves to later containers."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placer.core.topology.links import PATHS, GpuLink, LinkMatrix, all_equal
from placer.core.topology.sets import best_set, shape_of
from simulator.gaia.matrix import parse_matrix
from tests.placer.core.topology.matrices import DGX_1V, FIGURE_7, SWITCHES

ALL = frozenset(range(8))


@st.composite
def matrices(draw: st.DrawFn) -> LinkMatrix:
    """Any symmetric matrix of two to seven GPUs, trees and meshes among them."""
    gpus = draw(st.integers(2, 7))
    pairs = {
        pair: GpuLink(draw(st.sampled_from(PATHS)), draw(st.sampled_from((0, 0, 1, 2, 18))))
        for pair in combinations(range(gpus), 2)
    }
    return tuple(
        tuple(pairs.get((min(one, other), max(one, other)), GpuLink("PIX")) for other in range(gpus))
        for one in range(gpus)
    )


@given(matrices(), st.data())
def test_no_other_free_set_of_the_size_is_cheaper(matrix: LinkMatrix, data: st.DataObject) -> None:
    """The set costs no more than any other one of GPUs that fit, whatever is preferred and whatever is empty."""
    shape = shape_of(matrix)
    fitting = data.draw(st.permutations(range(len(matrix))))[: data.draw(st.integers(1, len(matrix)))]
    count = data.draw(st.integers(1, len(fitting)))
    empty = frozenset(data.draw(st.sets(st.integers(0, len(matrix) - 1))))
    chosen = best_set(shape, tuple(fitting), count, empty)
    assert len(set(chosen)) == count
    assert set(chosen) <= set(fitting)
    assert shape.cost(chosen) == min(map(shape.cost, combinations(fitting, count)))


@given(matrices(), st.data())
def test_a_single_gpu_leaves_the_closest_pairs(matrix: LinkMatrix, data: st.DataObject) -> None:
    """For one GPU, no other choice keeps closer pairs of empty GPUs."""
    shape = shape_of(matrix)
    fitting = tuple(range(len(matrix)))
    empty = frozenset(data.draw(st.sets(st.integers(0, len(matrix) - 1))))
    (chosen,) = best_set(shape, fitting, 1, empty)
    assert shape.kept(empty - {chosen}) == max(shape.kept(empty - {place}) for place in fitting)


def test_a_level_outweighs_all_pairs_below() -> None:
    """A set with one pair at a level costs more than the largest set at the levels below."""
    worst_below = 120
    for nearer, farther in pairwise(PATHS):
        assert GpuLink(farther).cost > worst_below * GpuLink(nearer).cost
    assert GpuLink("PIX").cost > worst_below * GpuLink("SYS", nvlinks=1).cost > 0


@pytest.mark.parametrize(
    ("matrix", "empty", "count", "expected"),
    [
        (FIGURE_7, {0, 1, 2, 3}, 2, {2, 3}),
        (FIGURE_7, {0, 1, 3}, 1, {3}),
        (FIGURE_7, {0, 1, 2, 3}, 1, {0}),
        (FIGURE_7, {0, 1, 3}, 2, {0, 1}),
        (FIGURE_7, {0, 1, 2, 3}, 3, {0, 2, 3}),
        (SWITCHES, {0, 1, 2, 3}, 2, {0, 1}),
        (SWITCHES, {0, 3}, 2, {0, 3}),
        (DGX_1V, {0, 1, 2, 3, 4, 5, 6, 7}, 4, {0, 1, 2, 3}),
        (DGX_1V, {0, 1, 2, 3, 4, 5, 6, 7}, 2, {0, 3}),
        (DGX_1V, {0, 1, 5, 7}, 2, {1, 5}),
    ],
    ids=[
        "the-cheapest-pair",
        "beside-a-taken-gpu",
        "the-best-pair-is-kept",
        "the-pair-that-is-left",
        "a-whole-pair-among-three",
        "one-switch",
        "two-switches-before-a-host-bridge",
        "a-quarter-of-the-mesh",
        "two-nvlinks-before-one",
        "an-nvlink-between-sockets",
    ],
)
def test_the_set(matrix: str, empty: set[int], count: int, expected: set[int]) -> None:
    """Sets of empty GPUs on nodes that exist."""
    shape = shape_of(parse_matrix(matrix))
    assert set(best_set(shape, tuple(sorted(empty)), count, frozenset(empty))) == expected


def test_gpus_in_use_come_first() -> None:
    """A GPU in use takes no empty one away, also where links are equal or one empty GPU alone is left."""
    for matrix in (parse_matrix(FIGURE_7), all_equal(4)):
        assert best_set(shape_of(matrix), (0, 1, 2, 3), 1, frozenset({0, 1, 3})) == (2,)
        assert best_set(shape_of(matrix), (0, 1, 2, 3), 1, frozenset({0})) == (1,)


def test_preference_decides_among_equals() -> None:
    """Where links are equal, the GPUs that are preferred are taken, in their order."""
    assert best_set(shape_of(all_equal(16)), tuple(range(15, -1, -1)), 8, ALL) == tuple(range(15, 7, -1))
