"""A percentage of a GPU's memory in bytes, and the largest percentage that free bytes allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.percent import bytes_of, most_pct
from plimsoll.quantity import GIB, MIB


@pytest.mark.parametrize(
    ("memory_pct", "usable_bytes", "expected_bytes"),
    [
        (50, 24 * GIB, 12 * GIB),
        (100, 24 * GIB, 24 * GIB),
        (33, 24 * GIB, 8110 * MIB),  # 8110.08 MiB
        (1, 24 * GIB + 1, 245 * MIB),  # 245.76 MiB
        (100, 24 * GIB + MIB - 1, 24 * GIB),
        (1, 50 * MIB, MIB),  # half a MiB
        (30, 8138 * MIB, 2441 * MIB),  # gpushare's own cards
    ],
)
def test_a_percentage_is_rounded_down_to_whole_mebibytes(
    memory_pct: int, usable_bytes: int, expected_bytes: int
) -> None:
    """A percentage counts of the usable bytes, in whole MiB, and at least one of them."""
    assert bytes_of(memory_pct, usable_bytes) == expected_bytes


sizes = st.one_of(st.integers(1, 1 << 40), st.integers(1, 1000).map(lambda count: count * 100 * MIB))
free = st.one_of(st.integers(-(1 << 41), 1 << 41), st.integers(-1, 100_000).map(lambda count: count * MIB))


@given(sizes, free)
def test_the_largest_percentage_is_the_last_that_fits(usable_bytes: int, free_bytes: int) -> None:
    """Exactly the percentages up to the largest fit into the free bytes."""
    fitting = [pct for pct in range(1, 101) if bytes_of(pct, usable_bytes) <= free_bytes]
    assert fitting == list(range(1, most_pct(usable_bytes, free_bytes) + 1))


@given(st.integers(100 * MIB, 1 << 40), st.lists(st.integers(1, 100), max_size=12))
def test_percentages_of_a_whole_fit_together(usable_bytes: int, parts: list[int]) -> None:
    """Percentages that sum up to 100 at most never need more than the GPU has."""
    kept = [pct for index, pct in enumerate(parts) if sum(parts[: index + 1]) <= 100]
    assert sum(bytes_of(pct, usable_bytes) for pct in kept) <= usable_bytes
