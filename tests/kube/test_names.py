"""Names that are made from other names are names that the API server takes."""

import re

import pytest

from placer.pool.core.planner import reservation_name
from plimsoll.ids import NodeName
from plimsoll.kube.names import NAME_PATTERN, fitted_name


@pytest.mark.parametrize("length", [1, 200, 236, 237, 240, 253])
@pytest.mark.parametrize("repeated", ["a", "a.", "a-", "ab."])
def test_a_name_with_an_ending_fits_whatever_its_length(length: int, repeated: str) -> None:
    """Wherever the cut falls, also at a dot or a dash, the result is a name, and two long names stay apart."""
    name = (repeated * 253)[: length - 1] + "z"
    made = fitted_name(f"{name}.{'0' * 16}")
    assert re.fullmatch(NAME_PATTERN, made)
    assert ".." not in made
    assert ".-" not in made
    assert made != fitted_name(f"{name}.{'0' * 15}1")


def test_reservations_of_nodes_with_long_names_stay_apart() -> None:
    """Two nodes whose names differ at the end alone have reservations of different names."""
    one, other = (reservation_name(NodeName("n" * 252 + end), 1) for end in "ab")
    assert one != other
